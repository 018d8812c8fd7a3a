"""Checks of a trajectory against the passages: the cited passage, whether it holds the snippet, and the answer of each task."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Choice

Verbatim = Literal["exact", "folded", "elsewhere", "no"]
LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
"""FEVER's, as its scorer spells them; the paper says Supported, Refuted, NotEnoughInfo."""

_SUPPORTS, _REFUTES, _UNDECIDED = LABELS
_ALONE = {
    **dict.fromkeys(("supports", "supported", "support", "true", "yes"), _SUPPORTS),
    **dict.fromkeys(("refutes", "refuted", "refute", "false", "no"), _REFUTES),
    **dict.fromkeys(("notenoughinfo", "notenoughinformation", "nei", "unverifiable", "unknown"), _UNDECIDED),
}
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)", re.ASCII)
_MARK = re.compile(r"(\s*)\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\]", re.ASCII)


class Cited(NamedTuple):
    """A long answer on one line with citations as ``[n]``, and the distinct numbers cited, in and out of range."""

    text: str
    cited: list[int]
    missing: list[int]


def place_of(said: str, passages: Sequence[Passage]) -> int | None:
    """Return the index (from 0) of the passage named by its title or by the first number in a text (from 1); None if there is none."""
    for place, passage in enumerate(passages):
        if said and said == passage.title:
            return place
    number = _NUMBER.search(said)
    return int(number[0]) - 1 if number and 1 <= int(number[0]) <= len(passages) else None


def verbatim(snippet: str, place: int | None, passages: Sequence[Passage]) -> Verbatim:
    """Look for a snippet, first in the title and text of its passage, then in the other passages.

    Returns:
        "exact" if its passage contains it literally, "folded" if after folding case, spacing and Unicode compatibility forms,
        "elsewhere" if another passage contains it, "no" if none does.
    """
    if not snippet:
        return "no"
    if place is not None:
        if snippet in _shown(passages[place]):
            return "exact"
        if _folded(snippet) in _folded(_shown(passages[place])):
            return "folded"
    return "elsewhere" if any(_folded(snippet) in _folded(_shown(passage)) for passage in passages) else "no"


def label_of(text: str) -> tuple[str, bool]:
    """Parse the label of a claim, and whether it was readable; an unreadable one is NOT ENOUGH INFO."""
    alone = _ALONE.get(re.sub(r"[\W_]+", "", text.casefold()))
    if alone:
        return alone, True
    words = re.findall(r"\w+", text.casefold())
    if "not enough" in " ".join(words):
        return _UNDECIDED, True
    if "not" in words:  # "not supported" may mean either label
        return _UNDECIDED, False
    named = {_ALONE[word] for word in words if word.startswith(("support", "refute")) and word in _ALONE}
    return (named.pop(), True) if len(named) == 1 else (_UNDECIDED, False)


def cited_text(text: str, n_passages: int) -> Cited:
    """Convert a long answer to the form that ALCE's evaluation reads: ``[1, 2]`` becomes ``[1][2]``, lines are joined."""
    numbers = [int(number) for mark in _MARK.finditer(text) for number in _NUMBER.findall(mark[2])]
    missing = [number for number in dict.fromkeys(numbers) if not 1 <= number <= n_passages]
    rewritten = _MARK.sub(lambda mark: mark[1] + "".join(f"[{int(number)}]" for number in _NUMBER.findall(mark[2])), text)
    return Cited(" ".join(rewritten.split()), [number for number in dict.fromkeys(numbers) if number not in missing], missing)


def _shown(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


class Finished(NamedTuple):
    """An answer in the form of its task, whether it was readable, and further details for the record."""

    text: str
    is_read: bool = True
    record: dict[str, Any] = {}


class Task(NamedTuple):
    """Rules of reading the answers of a task.

    Attributes:
        finish: (the model's output, number of passages) -> the answer in the task's form.
        is_analysis: whether the analysis is the answer.
        if_irrelevant: the answer if no passage is relevant; None: the model answers from its own knowledge.
        schema: of another reader's answer; None: unconstrained.
    """

    finish: Callable[[str, int], Finished]
    is_analysis: bool = False
    if_irrelevant: str | None = None
    schema: Choice | None = None


def _long(text: str, n_passages: int) -> Finished:
    cited = cited_text(text, n_passages)
    return Finished(cited.text, record={"citations": {"cited": cited.cited, "missing": cited.missing}})


TASKS = {
    "short": Task(lambda text, _: Finished(text.strip())),
    "long": Task(_long, is_analysis=True),
    "fever": Task(lambda text, _: Finished(*label_of(text)), if_irrelevant=LABELS[-1], schema=Choice(LABELS)),
}
