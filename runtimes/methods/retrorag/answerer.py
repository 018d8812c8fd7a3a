"""The answerer: an answer with its reason, a second sampled answer, their consistency, and the declarative assessor."""

from __future__ import annotations

import re
from typing import NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Chat, Decoding, JsonSchema
from wikidx.runtimes.methods.model_output import json_object, labelled, plain
from wikidx.runtimes.methods.requests import Run, generate, together
from wikidx.runtimes.methods.templates import numbered, template

from .inquiry import Inquiry, scores

_GIVES_UP = re.compile(r"unknown|can(?:no|['’])t (?:be )?determin", re.IGNORECASE)  # MetaRAG's rule
_REVISED_WORDS = 10  # maximum, by the same rule
_FAULTS = ("wrong reasoning", "off the question", "redundant")
_REASONED = JsonSchema.of_fields({"reason": {"type": "string"}, "answer": {"type": "string"}})
_ASSESSED = JsonSchema.of_fields({"judgement": {"type": "string", "enum": [*_FAULTS, "correct"]}, "feedback": {"type": "string"}})


class Attempt(NamedTuple):
    """An answer.

    Attributes:
        reason, answer: r and a, as parsed.
        parse_ok: whether the answer was found in its field.
        prompt, written: the model's prompt and its output.
        source: the source evidence of its round.
        monitor: a_sc, the monitoring answer; None: not requested.
        consistency: s_sc; None: not scored.
    """

    reason: str
    answer: str
    parse_ok: bool
    prompt: Chat
    written: str
    source: tuple[Passage, ...] = ()
    monitor: str | None = None
    consistency: float | None = None


def answered(inquiry: Inquiry) -> Run[Attempt]:
    """Answer from the current evidence (M_C), and sample a monitoring answer (M_D) if answers are judged."""
    options = inquiry.options
    source = inquiry.shown_source() if options.source_evidence else numbered(())
    inferred = inquiry.shown_inferred()
    prompt = template("retrorag", "reason")(source=source, inferred=inferred, question=inquiry.question, shots=options.shots)
    calls = [generate(prompt, inquiry.decoding(options.reason_tokens), schema=_REASONED)]
    if options.answer_evaluation and options.ellery:
        freely = Decoding(max_tokens=options.answer_tokens, temperature=options.monitor_temperature)
        unreasoned = template("retrorag", "direct")(source=source, inferred=inferred, question=inquiry.question)
        calls.append(generate(unreasoned, freely, role="monitor"))
    written, *monitors = yield from together(calls)
    attempt = read_attempt(prompt, written.text)._replace(source=inquiry.source)
    return attempt._replace(monitor=monitors[0].text.strip()) if monitors else attempt


def read_attempt(prompt: Chat, written: str) -> Attempt:
    """Parse reason and answer from JSON or labelled lines; any other text is both reason and answer, as in MetaRAG."""
    fields = json_object(written, ("reason", "answer")).value or dict(labelled(written, ("reason", "answer")))
    reason = plain(fields.get("reason", written))
    answer = plain(fields["answer"]) if "answer" in fields else reason
    return Attempt(reason, answer, "answer" in fields, prompt, written)


def judged(inquiry: Inquiry, attempt: Attempt) -> Run[Attempt]:
    """Score whether the answer and the monitoring answer agree (M_sc); an empty one never agrees."""
    if attempt.monitor is None:
        return attempt
    if not attempt.answer or not attempt.monitor:
        return attempt._replace(consistency=0.0)
    prompt = template("retrorag", "consistency")(question=inquiry.question, answer=attempt.answer, monitor=attempt.monitor)
    (score,) = yield from scores(inquiry, [prompt], "consistency")
    return attempt._replace(consistency=score)


def assessed(inquiry: Inquiry, attempt: Attempt) -> Run[Attempt]:
    """Let the assessor judge an answer; if it finds a fault and suggests a correction, ask for the answer again.

    An unreadable assessment counts as "correct". A new answer that is empty, too long or gives up is discarded.
    """
    options = inquiry.options
    prompt = template("retrorag", "assess")(question=inquiry.question, reason=attempt.reason, answer=attempt.answer)
    verdict = yield from generate(prompt, inquiry.decoding(options.reason_tokens), role="assessor", schema=_ASSESSED)
    fields = json_object(verdict.text, ("judgement", "feedback")).value
    feedback = plain(fields.get("feedback"))
    if plain(fields.get("judgement")).casefold() not in _FAULTS or not feedback:
        return attempt
    again = (*attempt.prompt, *template("retrorag", "revise")(written=attempt.written, feedback=feedback))
    written = yield from generate(again, inquiry.decoding(options.reason_tokens), schema=_REASONED)
    revised = read_attempt(attempt.prompt, written.text)
    is_short = 0 < len(revised.answer.split()) <= _REVISED_WORDS
    if not is_short or _GIVES_UP.search(revised.answer):
        return attempt
    return attempt._replace(reason=revised.reason, answer=revised.answer, parse_ok=revised.parse_ok, written=revised.written)
