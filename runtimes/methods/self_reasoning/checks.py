"""Checks of citations and snippets against the passages, and the answer form of each task."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Choice

Verbatim = Literal["exact", "folded", "elsewhere", "no"]
LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
"""FEVER's labels, spelled as in its scorer; the paper writes Supported, Refuted, NotEnoughInfo."""

_SUPPORTS, _REFUTES, _UNDECIDED = LABELS
_LABEL_OF_WORD = {
    **dict.fromkeys(("supports", "supported", "support", "true", "yes"), _SUPPORTS),
    **dict.fromkeys(("refutes", "refuted", "refute", "false", "no"), _REFUTES),
    **dict.fromkeys(("notenoughinfo", "notenoughinformation", "nei", "unverifiable", "unknown"), _UNDECIDED),
}
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)", re.ASCII)
_MARK = re.compile(r"(\s*)\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\]", re.ASCII)


class CitedText(NamedTuple):
    """A long answer in the input form of ALCE's evaluation.

    Attributes:
        text: the answer on one line, with citations as ``[n]``.
        cited: distinct citation numbers that belong to a passage.
        missing: distinct citation numbers that belong to no passage.
    """

    text: str
    cited: list[int]
    missing: list[int]


def find_cited(reference: str, passages: Sequence[Passage]) -> int | None:
    """Return the index of a cited passage, from 0; None if no passage matches.

    A reference is either a passage's title or a text whose first number is the passage's number, from 1.
    """
    for position, passage in enumerate(passages):
        if reference and reference == passage.title:
            return position
    number = _NUMBER.search(reference)
    return int(number[0]) - 1 if number and 1 <= int(number[0]) <= len(passages) else None


def match_snippet(snippet: str, position: int | None, passages: Sequence[Passage]) -> Verbatim:
    """Search for a snippet in title and text of the cited passage, then in the other passages.

    Returns:
        "exact": the cited passage contains the snippet literally.
        "folded": the cited passage contains the snippet except for case, spacing and Unicode compatibility forms.
        "elsewhere": another passage contains the snippet, except for the same differences.
        "no": no passage contains the snippet.
    """
    if not snippet:
        return "no"
    if position is not None:
        if snippet in _passage_text(passages[position]):
            return "exact"
        if _fold(snippet) in _fold(_passage_text(passages[position])):
            return "folded"
    return "elsewhere" if any(_fold(snippet) in _fold(_passage_text(passage)) for passage in passages) else "no"


def parse_label(text: str) -> tuple[str, bool]:
    """Return the label that a text states, and whether a label was recognised; an unrecognised label becomes NOT ENOUGH INFO."""
    label = _LABEL_OF_WORD.get(re.sub(r"[\W_]+", "", text.casefold()))
    if label:
        return label, True
    words = re.findall(r"\w+", text.casefold())
    if "not enough" in " ".join(words):
        return _UNDECIDED, True
    if "not" in words:  # "not supported" may mean REFUTES or NOT ENOUGH INFO
        return _UNDECIDED, False
    labels = {_LABEL_OF_WORD[word] for word in words if word.startswith(("support", "refute")) and word in _LABEL_OF_WORD}
    return (labels.pop(), True) if len(labels) == 1 else (_UNDECIDED, False)


def normalize_citations(text: str, n_passages: int) -> CitedText:
    """Convert a long answer to the input form of ALCE's evaluation: ``[1, 2]`` becomes ``[1][2]``, and lines are joined."""
    numbers = [int(number) for mark in _MARK.finditer(text) for number in _NUMBER.findall(mark[2])]
    missing = [number for number in dict.fromkeys(numbers) if not 1 <= number <= n_passages]
    rewritten = _MARK.sub(lambda mark: mark[1] + "".join(f"[{int(number)}]" for number in _NUMBER.findall(mark[2])), text)
    return CitedText(" ".join(rewritten.split()), [number for number in dict.fromkeys(numbers) if number not in missing], missing)


def _passage_text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


class FormattedAnswer(NamedTuple):
    """An answer in the form of its task.

    Attributes:
        text: the answer.
        is_read: whether the model's answer was recognised.
        record: further fields of the answer's ``detail``.
    """

    text: str
    is_read: bool = True
    record: dict[str, Any] = {}


class Task(NamedTuple):
    """Rules for a task's answers.

    Attributes:
        format: (answer text, number of passages) -> the answer in the task's form.
        is_analysis: whether the answer is in the trajectory's field "analysis" instead of "answer".
        if_irrelevant: fixed answer if no passage is relevant; None: the model answers from its own knowledge.
        schema: constraint on a separate reader's answer; None: unconstrained.
    """

    format: Callable[[str, int], FormattedAnswer]
    is_analysis: bool = False
    if_irrelevant: str | None = None
    schema: Choice | None = None


def _long(text: str, n_passages: int) -> FormattedAnswer:
    cited = normalize_citations(text, n_passages)
    return FormattedAnswer(cited.text, record={"citations": {"cited": cited.cited, "missing": cited.missing}})


TASKS = {
    "short": Task(lambda text, _: FormattedAnswer(text.strip())),
    "long": Task(_long, is_analysis=True),
    "fever": Task(lambda text, _: FormattedAnswer(*parse_label(text)), if_irrelevant=LABELS[-1], schema=Choice(LABELS)),
}
