"""Parsing of the answer in a generated text."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from wikidx.runtimes.llms.base import Gen

_LABELLED = re.compile(r"^[\W_]*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?[*_ \t]*[:：][*_]*[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)
_IN_A_SENTENCE = re.compile(r"\banswer\s+is:?\s+(\S.*)$", re.MULTILINE | re.IGNORECASE)
_LABEL = re.compile(r"^[\W_]*(?:final\s+)?answer[\W_]*$", re.IGNORECASE)


class Draft(NamedTuple):
    """A generated text and the answer that it contains.

    Attributes:
        text: the text, without surrounding spaces.
        start: offset of the answer in the text.
        answer: the answer.
        nll: mean negative log-probability of the tokens (nats); None: unknown or not finite.
        parse_ok: whether the text contains an answer in the expected form.
    """

    text: str
    start: int
    answer: str
    nll: float | None
    parse_ok: bool

    def to_json(self) -> dict[str, Any]:
        """Return all fields except ``start`` as JSON values."""
        return {"answer": self.answer, "text": self.text, "nll": self.nll, "parse_ok": self.parse_ok}


def parse_draft(gen: Gen, form: str) -> Draft:
    """Parse the answer in a generated text.

    The answer is the whole text unless ``form`` is "cot". The answer of a chain of thought is the text after the last label "Answer:", else
    the text after the last "answer is", else the last line.
    """
    text = gen.text.strip()
    start, end, is_found = _conclusion(text) if form == "cot" else (0, len(text), True)
    answer = text[start:end]
    return Draft(text, start, answer, finite_or_none(gen.mean_nll), is_found and bool(answer))


def finite_or_none(nll: float | None) -> float | None:
    """Return a mean NLL; None if it is unknown or not finite."""
    return nll if nll is not None and math.isfinite(nll) else None


def _conclusion(text: str) -> tuple[int, int, bool]:
    """Return start and end of the answer in a chain of thought, and whether a label or phrase marks the answer."""
    for pattern in (_LABELLED, _IN_A_SENTENCE):
        if matches := list(pattern.finditer(text)):
            start, end = matches[-1].span(1)
            if pattern is _IN_A_SENTENCE:
                end = start + len(text[start:end].rstrip().rstrip("."))
            return start, start + len(text[start:end].rstrip(" \t\r*_")), True
    lines = [line for line in re.finditer(r"\S.*", text) if not _LABEL.match(line[0])]
    start, end = lines[-1].span() if lines else (0, 0)
    return start, start + len(text[start:end].rstrip()), False
