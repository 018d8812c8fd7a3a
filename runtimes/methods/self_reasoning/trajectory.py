"""Parsing of a trajectory from the model's output: strict JSON first, then ever more lenient; it never fails.

In order: the text is JSON; the first JSON object in it; a truncated JSON object; labelled lines; nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from wikidx.runtimes.methods.model_output import folded_keys, json_object, labelled, plain

Parse = Literal["whole", "within", "cut", "labels", "none"]

_KEYS = ("relevant", "relevant_reason", "relevance", "cite_list", "analysis", "answer")
_LABELS = (*_KEYS, "cite", "cite_content", "reason_for_cite")
_TRUE = frozenset({"true", "yes", "relevant", "1"})
_FALSE = frozenset({"false", "no", "not", "irrelevant", "none", "0"})


class Citation(NamedTuple):
    """A passage as the model names it, the snippet quoted from it, and the reason."""

    cite: str
    cite_content: str
    reason_for_cite: str


class Verdict(NamedTuple):
    """A passage's relevance and the reason; None: unreadable."""

    document: str
    relevant: bool | None
    relevant_reason: str


class Trajectory(NamedTuple):
    """The fields of the model's output; missing ones are empty.

    Attributes:
        relevant: whether any passage is relevant; None: not requested, or unreadable.
        relevance: verdicts on the passages, if they are judged one by one.
        parse: the parser that succeeded; "none": none did.
    """

    relevant: bool | None
    relevant_reason: str
    relevance: tuple[Verdict, ...]
    cite_list: tuple[Citation, ...]
    analysis: str
    answer: str
    parse: Parse


def parse_trajectory(written: str, wanted: Iterable[str], max_citations: int) -> Trajectory:
    """Parse a trajectory.

    Args:
        written: the model's output.
        wanted: the requested fields; others are ignored.
        max_citations: maximum number of citations to parse.
    """
    found = json_object(written, _KEYS)
    parse: Parse = found.state or "labels"
    value = found.value if found.state else _from_labels(written)
    fields = {name: value[name] for name in wanted if name in value}
    relevance = tuple(map(_verdict, filter(folded_keys, _items(fields.get("relevance")))))
    return Trajectory(
        relevant=any_of(verdict.relevant for verdict in relevance) if relevance else truth(fields.get("relevant")),
        relevant_reason=plain(fields.get("relevant_reason")),
        relevance=relevance,
        cite_list=tuple(_citation(item) for item in _items(fields.get("cite_list")) if isinstance(item, dict | str))[:max_citations],
        analysis=plain(fields.get("analysis")),
        answer=plain(fields.get("answer")),
        parse=parse if fields else "none",
    )


def truth(value: object) -> bool | None:
    """Parse yes or no from a value's first word; None if it is neither."""
    word = re.search(r"\w+", plain(value).casefold())
    return None if word is None else True if word[0] in _TRUE else False if word[0] in _FALSE else None


def any_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether any value is true; None if all are unreadable."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return any(known) if known else None


def _from_labels(written: str) -> Mapping[str, Any]:
    """Parse labelled lines into the form of the JSON; of a repeated label the last counts."""
    pairs = labelled(written, _LABELS)
    citations: list[dict[str, str]] = []
    for name, value in pairs:
        if name in ("cite", "cite_content", "reason_for_cite"):
            if not citations or name in citations[-1]:
                citations.append({})
            citations[-1][name] = value
    fields: dict[str, Any] = {**dict(pairs), "cite_list": citations}
    if "relevant" in fields:
        fields["relevant"] = any_of(truth(value) for name, value in pairs if name == "relevant")
    return fields if pairs else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _citation(item: dict[str, Any] | str) -> Citation:
    if isinstance(item, str):
        return Citation("", plain(item), "")
    fields = folded_keys(item)
    return Citation(plain(fields.get("cite")), plain(fields.get("cite_content")), plain(fields.get("reason_for_cite")))


def _verdict(item: object) -> Verdict:
    fields = folded_keys(item)
    return Verdict(plain(fields.get("document")), truth(fields.get("relevant")), plain(fields.get("relevant_reason")))
