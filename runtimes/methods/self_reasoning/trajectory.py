"""Parsing of a trajectory from the model's output; every output is accepted.

The fields come from the first JSON object that has a known field, complete or cut off. Without such an object, they come from labelled
lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from wikidx.runtimes.methods.model_output import find_object, fold_keys, parse_labels, to_text

Parse = Literal["whole", "within", "cut", "labels", "none"]

_KEYS = ("relevant", "relevant_reason", "relevance", "cite_list", "analysis", "answer")
_LABELS = (*_KEYS, "cite", "cite_content", "reason_for_cite")
_MAX_CITATIONS = 10
_TRUE = frozenset({"true", "yes", "relevant", "1"})
_FALSE = frozenset({"false", "no", "not", "irrelevant", "none", "0"})


class Citation(NamedTuple):
    """A citation in the model's words.

    Attributes:
        cite: the number or title of the passage.
        cite_content: the quoted snippet.
        reason_for_cite: the reason for the citation.
    """

    cite: str
    cite_content: str
    reason_for_cite: str


class Verdict(NamedTuple):
    """The model's verdict on a passage.

    Attributes:
        document: the number or title of the passage, as the model writes it.
        relevant: whether the passage is relevant; None: not recognised.
        relevant_reason: the reason for the verdict.
    """

    document: str
    relevant: bool | None
    relevant_reason: str


class Trajectory(NamedTuple):
    """The fields of the model's output; missing fields are empty.

    Attributes:
        relevant: whether any passage is relevant; None: not requested or not recognised.
        relevance: verdicts on single passages, if they are requested.
        parse: origin of the fields: a JSON object ("whole", "within" or "cut", as in ``ParsedObject``), labelled lines ("labels"), or
            "none" if no requested field is found.
    """

    relevant: bool | None
    relevant_reason: str
    relevance: tuple[Verdict, ...]
    cite_list: tuple[Citation, ...]
    analysis: str
    answer: str
    parse: Parse


def parse_trajectory(output: str, requested: Iterable[str]) -> Trajectory:
    """Parse a trajectory; citations beyond ten are dropped.

    Args:
        output: the model's output.
        requested: names of the requested fields; other fields are ignored.
    """
    parsed = find_object(output, _KEYS)
    parse: Parse = parsed.state or "labels"
    value = parsed.value if parsed.state else _from_labels(output)
    fields = {name: value[name] for name in requested if name in value}
    relevance = tuple(map(_verdict, filter(fold_keys, _items(fields.get("relevance")))))
    return Trajectory(
        relevant=any_true(verdict.relevant for verdict in relevance) if relevance else parse_truth(fields.get("relevant")),
        relevant_reason=to_text(fields.get("relevant_reason")),
        relevance=relevance,
        cite_list=tuple(_citation(item) for item in _items(fields.get("cite_list")) if isinstance(item, dict | str))[:_MAX_CITATIONS],
        analysis=to_text(fields.get("analysis")),
        answer=to_text(fields.get("answer")),
        parse=parse if fields else "none",
    )


def parse_truth(value: object) -> bool | None:
    """Parse yes or no from a value's first word; None if the word is neither."""
    word = re.search(r"\w+", to_text(value).casefold())
    return None if word is None else True if word[0] in _TRUE else False if word[0] in _FALSE else None


def any_true(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether any value is true; None if all are None."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return any(known) if known else None


def _from_labels(output: str) -> Mapping[str, Any]:
    """Parse labelled lines into the fields of a JSON output.

    If a label is repeated, the last value counts, with two exceptions. "relevant" is true if any of its values is true. A repeated citation
    label begins a new citation.
    """
    labels = parse_labels(output, _LABELS)
    citations: list[dict[str, str]] = []
    for name, value in labels:
        if name in ("cite", "cite_content", "reason_for_cite"):
            if not citations or name in citations[-1]:
                citations.append({})
            citations[-1][name] = value
    fields: dict[str, Any] = {**dict(labels), "cite_list": citations}
    if "relevant" in fields:
        fields["relevant"] = any_true(parse_truth(value) for name, value in labels if name == "relevant")
    return fields if labels else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _citation(item: dict[str, Any] | str) -> Citation:
    if isinstance(item, str):
        return Citation("", to_text(item), "")
    fields = fold_keys(item)
    return Citation(to_text(fields.get("cite")), to_text(fields.get("cite_content")), to_text(fields.get("reason_for_cite")))


def _verdict(item: object) -> Verdict:
    fields = fold_keys(item)
    return Verdict(to_text(fields.get("document")), parse_truth(fields.get("relevant")), to_text(fields.get("relevant_reason")))
