"""Sets of training questions without duplicates, and drawing from them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.runtimes.questions import Question, sample


class QuestionSet(NamedTuple):
    """Questions of one data set.

    Attributes:
        name: unique among the sets.
        questions: the questions to ask.
        others: texts from which another question is drawn if needed: all questions of the set, drawn or not.
        n_read: number of questions in its file.
        sha256: of its file; empty: there is no file.
    """

    name: str
    questions: tuple[Question, ...]
    others: tuple[str, ...]
    n_read: int
    sha256: str = ""


def words_of(text: str) -> list[str]:
    """Return a question's words with case, punctuation and compatibility forms normalised; a text without words is one word."""
    levelled = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"\w+", levelled) or [levelled.strip()]


def key_of(text: str) -> str:
    """Return a key that spellings of a question share: its letters and digits."""
    return "".join(words_of(text))


def question_set(name: str, questions: Sequence[Question], sha256: str = "") -> QuestionSet:
    """Create a set; of questions with the same key the first is kept."""
    first: dict[str, Question] = {}
    for question in questions:
        first.setdefault(key_of(question.text), question)
    kept = tuple(first.values())
    return QuestionSet(name, kept, tuple(question.text for question in kept), len(questions), sha256)


def without(one: QuestionSet, ids: frozenset[str]) -> QuestionSet:
    """Return a set without some questions, which are removed from ``others`` too."""
    kept = tuple(question for question in one.questions if question.id not in ids)
    return one._replace(questions=kept, others=tuple(question.text for question in kept))


def drawn(one: QuestionSet, n: int, seed: int) -> QuestionSet:
    """Return a set with at most ``n`` of its questions, drawn at random, in file order."""
    return one._replace(questions=tuple(sample(one.questions, n, seed)) if 0 < n < len(one.questions) else one.questions[:n])


def drawn_evenly(sets: Sequence[QuestionSet], n: int, seed: int) -> list[QuestionSet]:
    """Return sets with ``n`` questions in total, as evenly as possible: larger sets make up for small ones."""
    shares: dict[str, int] = {}
    left = n
    for place, one in enumerate(sorted(sets, key=lambda one: len(one.questions))):
        shares[one.name] = min(len(one.questions), left // (len(sets) - place))
        left -= shares[one.name]
    return [drawn(one, shares[one.name], seed) for one in sets]


def check_names(sets: Sequence[QuestionSet]) -> None:
    """Raise ``InputError`` if two sets have the same name."""
    names = [one.name for one in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two sets of questions are called '{twice}': name one otherwise, as in --questions other=FILE")
