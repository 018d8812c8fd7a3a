"""Leaks: evaluation questions among the training questions.

A training question leaks if it is equal or near to an evaluation question. Two questions are equal if they have the same letters and digits
in the same order. Other characters, case and Unicode compatibility forms are ignored: "wo n 't" equals "won't".

Two questions are near if the Jaccard similarity of their word sets is at least ``near``. With ``near`` 0.8, two questions of nine distinct
words each are near if they share eight words. With ``near`` 1, near questions differ only in the order and repetition of words.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from wikidx.base.errors import InputError
from wikidx.runtimes.questions import Question

from .sets import QuestionSet, key_of, remove, words_of

MODES = ("refuse", "drop", "keep")
_MAX_CHARACTERS = 60


class Leak(NamedTuple):
    """A leaked training question, and the most similar evaluation question (the first among equals).

    Attributes:
        set, id, text: set name, id and text of the training question.
        against, against_id, against_text: set name, id and text of the evaluation question.
        kind: "equal" if the questions are equal, else "near".
        overlap: Jaccard similarity of the two word sets, from 0 to 1; 1 for "equal".
    """

    set: str
    id: str
    text: str
    against: str
    against_id: str
    against_text: str
    kind: Literal["equal", "near"]
    overlap: float


def find_leaks(sets: Sequence[QuestionSet], against: Sequence[QuestionSet], near: float) -> list[Leak]:
    """Return the leaks, in the order of the sets and their questions.

    Args:
        sets: training questions.
        against: evaluation questions.
        near: minimum Jaccard similarity of near questions, above 0 and at most 1.
    """
    index = _Index([(item.name, other) for item in against for other in item.questions], Fraction(str(near)))
    return [leak for item in sets for question in item.questions if (leak := index.find_leak(item.name, question)) is not None]


class _Index:
    """An inverted index: word -> positions of the evaluation questions that contain the word."""

    def __init__(self, others: Sequence[tuple[str, Question]], near: Fraction) -> None:
        self._others, self._near = others, near
        self._words = [frozenset(words_of(other.text)) for _, other in others]
        self._equal: dict[str, int] = {}
        self._positions: defaultdict[str, list[int]] = defaultdict(list)
        for position, (_, other) in enumerate(others):
            self._equal.setdefault(key_of(other.text), position)
            for word in self._words[position]:
                self._positions[word].append(position)

    def find_leak(self, name: str, question: Question) -> Leak | None:
        """Return the leak of a training question; None if the question does not leak. ``name`` is the question's set."""
        position, overlap = self._equal.get(key_of(question.text)), Fraction(1)
        kind: Literal["equal", "near"] = "near" if position is None else "equal"
        if position is None:
            overlap, position = max(
                self._near_questions(frozenset(words_of(question.text))), key=lambda item: (item[0], -item[1]), default=(Fraction(0), 0)
            )
        if not overlap:
            return None
        against, other = self._others[position]
        return Leak(name, question.id, question.text, against, other.id, other.text, kind, round(float(overlap), 4))

    def _near_questions(self, words: frozenset[str]) -> Iterator[tuple[Fraction, int]]:
        """Yield overlap and position of each near question.

        A near question shares at least ``near`` of the words. It therefore contains at least one of the rarest words, and other questions
        need not be compared.
        """
        n_shared = math.ceil(self._near * len(words))
        rarest = sorted(words, key=lambda word: (len(self._positions.get(word, ())), word))[: len(words) - n_shared + 1]
        for position in {position for word in rarest for position in self._positions.get(word, ())}:
            n_common = len(words & self._words[position])
            overlap = Fraction(n_common, len(words) + len(self._words[position]) - n_common)
            if overlap >= self._near:
                yield overlap, position


class LeakCheck(NamedTuple):
    """The result of a leak check.

    Attributes:
        sets: the training sets, without leaked questions if ``mode`` is "drop".
        mode: the handling of leaks, one of ``MODES``.
        near: minimum Jaccard similarity of near questions.
        against: evaluation set -> number of questions; empty: nothing was checked.
        leaks: the leaks, whether dropped or kept.
    """

    sets: list[QuestionSet]
    mode: str
    near: float
    against: dict[str, int]
    leaks: list[Leak]

    def to_json(self) -> dict[str, Any]:
        """Return settings and numbers of leaks as JSON values."""
        kinds = Counter(leak.kind for leak in self.leaks)
        counts = {kind: kinds[kind] for kind in ("equal", "near")}
        return {"mode": self.mode, "near": self.near, "against": self.against, "counts": counts}


def check_leaks(sets: Sequence[QuestionSet], against: Sequence[QuestionSet], mode: str, near: float) -> LeakCheck:
    """Check training sets against evaluation questions.

    Args:
        sets: all candidate training questions.
        against: evaluation questions.
        mode: "refuse" raises an error for leaks, "drop" removes leaked questions from the sets, "keep" changes nothing.
        near: minimum Jaccard similarity of near questions, above 0 and at most 1.

    Raises:
        InputError: a leak is found with ``mode`` "refuse", there are no evaluation questions although ``mode`` is not "keep", or ``mode``
            or ``near`` is invalid.
    """
    if mode not in MODES or not 0 < near <= 1:
        raise InputError(
            f"--leaks {mode} --near {near:g}: leaks can be refused, dropped or kept ({', '.join(MODES)}), near is above 0, at most 1"
        )
    if not against and mode != "keep":
        raise InputError("name the evaluation questions with --against FILE, so that none of them is trained on; or use --leaks keep")
    found_leaks = find_leaks(sets, against, near)
    if found_leaks and mode == "refuse":
        raise InputError(_refusal(found_leaks, sum(len(question_set.questions) for question_set in sets)))
    remaining = list(sets)
    if mode == "drop":
        ids = {question_set.name: frozenset(leak.id for leak in found_leaks if leak.set == question_set.name) for question_set in sets}
        remaining = [remove(question_set, ids[question_set.name]) for question_set in sets]
    return LeakCheck(
        remaining,
        mode,
        near,
        {question_set.name: len(question_set.questions) for question_set in against},
        found_leaks,
    )


def _refusal(leaks: Sequence[Leak], n_questions: int) -> str:
    first = leaks[0]
    n_equal = sum(leak.kind == "equal" for leak in leaks)
    text, other_text = (line[:_MAX_CHARACTERS] for line in (first.text, first.against_text))
    return (
        f"{len(leaks):,} of {n_questions:,} questions are evaluation questions too, {n_equal:,} equal and {len(leaks) - n_equal:,} near, "
        f"such as '{text}' ({first.set}/{first.id}) and '{other_text}' ({first.against}/{first.against_id}): "
        "--leaks drop leaves them out, --leaks keep trains on them"
    )
