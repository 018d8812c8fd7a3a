"""Parsing of the answer in a generated text."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Gen

from .base import Answer
from .forms import FORMS, FormName
from .model_output import drop_placeholder
from .sentences import sentence_spans

_LABELLED = re.compile(r"^[\W_]*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?[*_ \t]*[:：][*_]*[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)
_VERDICT = (  # on an answer, in prose: "the answer is wrong, because", "the answer is not given in the passages"
    r"(?:(?:also|still|most|very|not|yet|[a-z]+ly)\s+)*(?:(?:in)?correct|wrong|right|(?:un)?known|(?:un)?clear|(?:un)?certain|unsure|missing"
    r"|(?:im)?possible|given|stated|found)(?=\W*(?:$|\n|[.,:;!?)]|(?:because|but|and|since|so|if|for|from|in|by|to|that|or)\b))"
)
_IN_A_SENTENCE = re.compile(rf"\banswer\s+is(?::\s+|\s+(?![*_\"']*(?-i:{_VERDICT})))(?=\S)", re.IGNORECASE)
_REASON = re.compile(r"(?:,|(?<=[^\s,]))\s+because\b", re.IGNORECASE)
_NEXT_QUESTION = re.compile(r"\n[\W_]*question[*_ \t]*\d*[*_ \t]*[:：]", re.IGNORECASE)
_PASSAGE_NUMBERS = re.compile(r"(?:(?:\[\d{1,3}\]|\d{1,3}\)(?=\s))[ \t:]*)+(?=[\"'“*(]*\w)")
_ECHOED_LABEL = re.compile(r"(?:(?:so )?the (?:final )?answer is|(?:final )?answer)[ \t]*:\s*(?=\w|[\"'“*(\[])", re.IGNORECASE)
_LABEL = re.compile(r"^[\W_]*(?:final\s+)?answer[\W_]*$", re.IGNORECASE)


class Draft(NamedTuple):
    """A generated text and the answer that it contains.

    Attributes:
        text: the text, without surrounding spaces.
        start: offset of the answer in the text.
        answer: the answer.
        nll: mean negative log-probability of the text's tokens (nats), with the end of text if it is known; None: unknown or not finite.
        parse_ok: whether the text contains an answer in the expected form, which the token limit has not cut.
    """

    text: str
    start: int
    answer: str
    nll: float | None
    parse_ok: bool

    def to_json(self) -> dict[str, Any]:
        """Return all fields except ``start`` as JSON values."""
        return {"answer": self.answer, "text": self.text, "nll": self.nll, "parse_ok": self.parse_ok}


def parse_draft(gen: Gen, output: str) -> Draft:
    """Parse the answer in a generated text.

    The answer is the whole text unless ``output`` is "cot". The answer of a chain of thought is the text after the last label "Answer:",
    else the sentence after the last "answer is", unless it judges an answer ("is wrong"), else the last line. A further question that the
    model invents is cut off, with what follows.
    """
    text = whole = gen.text.strip()
    cut = text[: next_question.start()].rstrip() if (next_question := _NEXT_QUESTION.search(text)) else text
    if output != "cot" or _conclusion(cut)[2]:  # a chain of thought may also repeat its question before it answers
        text = cut
    start, end, is_found = _conclusion(text) if output == "cot" else (_start_of_answer(text), len(text), True)
    answer = drop_placeholder(text[start:end])
    is_cut = gen.finish == "length" and end == len(whole)
    kept = gen if text == whole else gen.part(0, gen.text.index(text) + len(text))
    return Draft(text, start, answer, finite_or_none(kept.mean_nll), bool(answer) and is_found and not is_cut)


def answer_in_form(draft: Draft, form: FormName, passages: tuple[Passage, ...] = (), **detail: Any) -> Answer:  # noqa: ANN401 - JSON
    """Return the answer of a draft in a form, with the passages that it may cite and further ``detail``."""
    answer = FORMS[form].read(draft.answer, len(passages))
    parse_ok = draft.parse_ok and answer.is_read and detail.get("parse_ok", True)
    return Answer(answer.text, passages, {**detail, **answer.record, "parse_ok": parse_ok})


def parse_answer(gen: Gen) -> Draft:
    """Parse the answer in a text that should hold the answer alone."""
    return parse_draft(gen, "answer")


def _start_of_answer(text: str) -> int:
    """Return the offset after the label "Answer:" and the numbers of passages with which a text begins."""
    label = _ECHOED_LABEL.match(text)
    start = label.end() if label else 0
    numbers = _PASSAGE_NUMBERS.match(text, start)
    return numbers.end() if numbers else start


def finite_or_none(nll: float | None) -> float | None:
    """Return a mean NLL; None if it is unknown or not finite."""
    return nll if nll is not None and math.isfinite(nll) else None


def _conclusion(text: str) -> tuple[int, int, bool]:
    """Return start and end of the answer in a chain of thought, and whether a label or phrase marks the answer."""
    if labelled := list(_LABELLED.finditer(text)):
        return *_strip_end(text, *labelled[-1].span(1)), True
    if phrases := list(_IN_A_SENTENCE.finditer(text)):
        start = phrases[-1].end()
        end = start + _sentence_length(text[start:].partition("\n")[0])
        return *_strip_end(text, start, end), True
    lines = [line for line in re.finditer(r"\S.*", text) if not _LABEL.match(line[0])]
    start, end = lines[-1].span() if lines else (0, 0)
    return start, start + len(text[start:end].rstrip()), False


def _sentence_length(line: str) -> int:
    """Return the length of the first sentence of a line, without its full stop and without a reason."""
    start, end = sentence_spans(line)[0]
    sentence = line[start:end]
    reason = _REASON.search(sentence)
    return len((sentence[: reason.start()] if reason else sentence).rstrip().rstrip("."))


def _strip_end(text: str, start: int, end: int) -> tuple[int, int]:
    return start, start + len(text[start:end].rstrip(" \t\r*_"))
