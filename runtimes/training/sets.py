"""Sets of distinct training questions, and random draws from them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from wikidx.base.errors import InputError
from wikidx.runtimes.questions import Question, sample


class QuestionSet(NamedTuple):
    """The questions of one data set.

    Attributes:
        name: unique among the sets.
        questions: the questions to ask.
        others: texts of all questions of the set, drawn or not. A negative example takes its passages from one of these questions.
        n_read: number of questions in the file.
        sha256: checksum of the file; empty: there is no file.
        format: what runs record of a format that is a plug-in.
    """

    name: str
    questions: tuple[Question, ...]
    others: tuple[str, ...]
    n_read: int
    sha256: str = ""
    format: Mapping[str, str] = MappingProxyType({})


def words_of(text: str) -> list[str]:
    """Return a text's words, NFKC-normalised, case-folded and without punctuation. A text without words counts as one word."""
    normalised = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"\w+", normalised) or [normalised.strip()]


def key_of(text: str) -> str:
    """Return a question's key: the normalised words, joined without spaces."""
    return "".join(words_of(text))


def make_question_set(name: str, questions: Sequence[Question], sha256: str = "") -> QuestionSet:
    """Create a set. If several questions have the same key, only the first is kept."""
    first: dict[str, Question] = {}
    for question in questions:
        first.setdefault(key_of(question.text), question)
    kept = tuple(first.values())
    return QuestionSet(name, kept, tuple(question.text for question in kept), len(questions), sha256)


def remove(question_set: QuestionSet, ids: frozenset[str]) -> QuestionSet:
    """Remove the questions with these ids from a set and from ``others``."""
    kept = tuple(question for question in question_set.questions if question.id not in ids)
    return question_set._replace(questions=kept, others=tuple(question.text for question in kept))


def draw_questions(source: QuestionSet, n: int, seed: int) -> QuestionSet:
    """Return a set with at most ``n`` of its questions, drawn at random, in file order."""
    return source._replace(questions=tuple(sample(source.questions, n, seed)) if 0 < n < len(source.questions) else source.questions[:n])


def draw_evenly(sets: Sequence[QuestionSet], n: int, seed: int) -> list[QuestionSet]:
    """Draw at most ``n`` questions in total, as evenly as possible. Larger sets make up for sets with too few questions."""
    sizes: dict[str, int] = {}
    remaining = n
    for position, item in enumerate(sorted(sets, key=lambda item: len(item.questions))):
        sizes[item.name] = min(len(item.questions), remaining // (len(sets) - position))
        remaining -= sizes[item.name]
    return [draw_questions(item, sizes[item.name], seed) for item in sets]


def check_set_names(sets: Sequence[QuestionSet]) -> None:
    """Raise ``InputError`` if two sets have the same name."""
    names = [item.name for item in sets]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(f"two sets of questions are called '{repeated}': name one otherwise, as in --questions other=FILE")
