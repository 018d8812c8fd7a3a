"""Evaluation questions among training questions.

A question leaks if an evaluation question has the same letters and digits in the same order, ignoring other characters, case and
Unicode compatibility forms: "wo n 't" is "won't" ("equal"). It also leaks if the Jaccard similarity of their sets of words is at least
``near`` ("near"). With ``near`` 0.8, two questions of nine words each that share eight are near; with 1, only order and repetition of
words may differ.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.runtimes.questions import Question

from .sets import QuestionSet, key_of, without, words_of

MODES = ("refuse", "drop", "keep")
_SHOWN_CHARACTERS = 60


class Leak(NamedTuple):
    """A question and the most similar evaluation question, the first among equals.

    Attributes:
        set, id, text: of the question.
        against, against_id, against_text: of the evaluation question.
        kind: the rule that it matches.
        overlap: Jaccard similarity of their words, 0 to 1.
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
    """Return the questions that leak, in the order of the sets.

    Args:
        sets: training questions.
        against: evaluation questions.
        near: minimum overlap, above 0 and at most 1.
    """
    index = _Index([(one.name, other) for one in against for other in one.questions], Fraction(str(near)))
    return [leak for one in sets for asked in one.questions if (leak := index.most_like(one.name, asked)) is not None]


class _Index:
    """An index of evaluation questions, each with its set's name, by their words."""

    def __init__(self, others: Sequence[tuple[str, Question]], near: Fraction) -> None:
        self._others, self._near = others, near
        self._words = [frozenset(words_of(other.text)) for _, other in others]
        self._equal: dict[str, int] = {}
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, (_, other) in enumerate(others):
            self._equal.setdefault(key_of(other.text), place)
            for word in self._words[place]:
                self._places[word].append(place)

    def most_like(self, name: str, asked: Question) -> Leak | None:
        """Return the leak of a question from the named set; None if it is not one."""
        place, overlap = self._equal.get(key_of(asked.text)), Fraction(1)
        kind: Literal["equal", "near"] = "near" if place is None else "equal"
        if place is None:
            overlap, place = max(
                self._near_ones(frozenset(words_of(asked.text))), key=lambda one: (one[0], -one[1]), default=(Fraction(0), 0)
            )
        if not overlap:
            return None
        against, other = self._others[place]
        return Leak(name, asked.id, asked.text, against, other.id, other.text, kind, round(float(overlap), 4))

    def _near_ones(self, words: frozenset[str]) -> Iterator[tuple[Fraction, int]]:
        """Yield overlap and position of each near question. These share ``near`` of the words, hence one of the rarest few."""
        n_shared = math.ceil(self._near * len(words))
        rarest = sorted(words, key=lambda word: (len(self._places.get(word, ())), word))[: len(words) - n_shared + 1]
        for place in {place for word in rarest for place in self._places.get(word, ())}:
            n_common = len(words & self._words[place])
            overlap = Fraction(n_common, len(words) + len(self._words[place]) - n_common)
            if overlap >= self._near:
                yield overlap, place


class Checked(NamedTuple):
    """Sets after the check, and its findings.

    Attributes:
        sets: without leaked questions if these are dropped.
        mode: the handling of leaks.
        near: the minimum overlap.
        against: evaluation set -> its number of questions; empty: nothing was checked.
        leaks: all leaks.
    """

    sets: list[QuestionSet]
    mode: str
    near: float
    against: dict[str, int]
    leaks: list[Leak]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        kinds = Counter(leak.kind for leak in self.leaks)
        found = {kind: kinds[kind] for kind in ("equal", "near")}
        return {"leaks": self.mode, "near": self.near, "against": self.against, "found": found}


def checked(sets: Sequence[QuestionSet], against: Sequence[QuestionSet], mode: str, near: float) -> Checked:
    """Check sets against evaluation questions.

    Args:
        sets: all candidate training questions.
        against: evaluation questions.
        mode: "refuse" leaks, "drop" them from the sets, or "keep" them, as RA-ISF's authors report.
        near: see ``find_leaks``.

    Raises:
        InputError: there are leaks and they are refused; there are no evaluation questions and leaks are not kept; or ``mode`` or ``near``
            is invalid.
    """
    if mode not in MODES or not 0 < near <= 1:
        raise InputError(
            f"--leaks {mode} --near {near:g}: leaks can be refused, dropped or kept ({', '.join(MODES)}), near is above 0, at most 1"
        )
    if not against and mode != "keep":
        raise InputError("name the evaluation questions with --against FILE, so that none of them is trained on; or say --leaks keep")
    found = find_leaks(sets, against, near)
    if found and mode == "refuse":
        raise InputError(_refusal(found, sum(len(one.questions) for one in sets)))
    left = list(sets)
    if mode == "drop":
        ids = {one.name: frozenset(leak.id for leak in found if leak.set == one.name) for one in sets}
        left = [without(one, ids[one.name]) for one in sets]
    return Checked(left, mode, near, {one.name: len(one.questions) for one in against}, found)


def _refusal(found: Sequence[Leak], n_questions: int) -> str:
    first = found[0]
    n_equal = sum(leak.kind == "equal" for leak in found)
    one, other = (text[:_SHOWN_CHARACTERS] for text in (first.text, first.against_text))
    return (
        f"{len(found):,} of {n_questions:,} questions are evaluation questions too, {n_equal:,} equal and {len(found) - n_equal:,} near, "
        f"such as '{one}' ({first.set}/{first.id}) and '{other}' ({first.against}/{first.against_id}): "
        "--leaks drop leaves them out, --leaks keep trains on them"
    )
