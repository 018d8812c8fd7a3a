"""The answerer: a reasoned answer, a monitoring answer, the consistency of the two answers, and the declarative assessor."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.prompts import Chat, JsonSchema
from wikidx.runtimes.methods.asking_again import Field, read_field, request_again
from wikidx.runtimes.methods.model_output import find_object, parse_labels, to_text
from wikidx.runtimes.methods.requests import gather, generate
from wikidx.runtimes.methods.templates import format_passages, load_template
from wikidx.runtimes.methods.written_answers import parse_draft

from .state import State, score_yes

_UNKNOWN = re.compile(r"unknown|can(?:no|['’])t (?:be )?determin", re.IGNORECASE)  # as in MetaRAG
_MAX_REVISED_WORDS = 10  # words of a revised answer, as in MetaRAG
_FAULTS = ("logic error", "off the question", "redundant")
_REASONED = JsonSchema.of_fields({"reason": {"type": "string"}, "answer": {"type": "string"}})
_ASSESSED = JsonSchema.of_fields({"judgement": {"type": "string", "enum": [*_FAULTS, "correct"]}, "feedback": {"type": "string"}})


class Attempt(NamedTuple):
    """An answer to the question, and its evaluation.

    Attributes:
        reason, answer: the paper's r and a, parsed from the output.
        parse_ok: whether the output states an answer, which the token limit has not cut.
        prompt, output: the model's prompt and the model's output.
        source: the source evidence of the round.
        monitor: a_sc, the monitoring answer; None: not requested.
        consistency: s_sc, the agreement of answer and monitoring answer, from 0 to 1; None: not scored.
    """

    reason: str
    answer: str
    parse_ok: bool
    prompt: Chat
    output: str
    source: tuple[Passage, ...] = ()
    monitor: str | None = None
    consistency: float | None = None


async def answer_question(state: State) -> Attempt:
    """Generate an answer from the current evidence (M_C). If answers are evaluated, also sample a monitoring answer (M_D).

    If the output states no answer, the answer is requested once more.
    """
    options = state.options
    source = state.format_source() if options.source_evidence else format_passages(())
    inferred = state.format_inferred()
    prompt = load_template("retrorag", "reason", options.form)(
        source=source, inferred=inferred, question=state.question, shots=options.shots
    )
    calls = [generate(prompt, state.decoding, schema=_REASONED)]
    if options.answer_evaluation and options.ellery:
        sampling = replace(state.brief, temperature=options.monitor_temperature)
        direct_prompt = load_template("retrorag", "direct", options.form)(source=source, inferred=inferred, question=state.question)
        calls.append(generate(direct_prompt, sampling, role="monitor"))
    output, *monitors = await gather(*calls)
    attempt = read_attempt(prompt, output)._replace(source=state.source)
    if not attempt.parse_ok:
        field = await request_again("retrorag", prompt, output, Field("answer", "", is_cut=False), state.question, state.brief)
        attempt = attempt._replace(answer=field.text, parse_ok=field.is_whole) if field.text else attempt
    return attempt._replace(monitor=monitors[0].text.strip()) if monitors else attempt


def read_attempt(prompt: Chat, output: Gen) -> Attempt:
    """Parse reason and answer from JSON or labelled lines.

    As in MetaRAG, the whole output replaces a missing reason, and the reason replaces a missing answer, unless it states the answer.
    """
    fields = find_object(output.text, ("reason", "answer")).value or dict(parse_labels(output.text, ("reason", "answer")))
    reason = to_text(fields.get("reason", output.text))
    draft = parse_draft(Gen(text=reason), "cot")
    answer = to_text(fields["answer"]) if "answer" in fields else draft.answer if draft.parse_ok else reason
    is_stated = "answer" in fields or draft.parse_ok
    return Attempt(reason, answer, is_stated and read_field(output, "answer", answer).is_whole, prompt, output.text)


async def check_consistency(state: State, attempt: Attempt) -> Attempt:
    """Score the agreement of answer and monitoring answer (M_sc), if there is a monitoring answer.

    The score is 0 if one of the answers is empty.
    """
    if attempt.monitor is None:
        return attempt
    if not attempt.answer or not attempt.monitor:
        return attempt._replace(consistency=0.0)
    prompt = load_template("retrorag", "consistency")(question=state.question, answer=attempt.answer, monitor=attempt.monitor)
    (score,) = await score_yes(state, [prompt], "consistency")
    return attempt._replace(consistency=score)


async def assess(state: State, attempt: Attempt) -> Attempt:
    """Assess an answer without its reason, as MetaRAG does; if the assessor reports a fault with feedback, request a revised answer.

    An unreadable assessment counts as "correct". A revised answer that is empty, too long or "unknown" is discarded.
    """
    prompt = load_template("retrorag", "assess")(question=state.question, answer=attempt.answer)
    verdict = await generate(prompt, state.decoding, role="assessor", schema=_ASSESSED)
    fields = find_object(verdict.text, ("judgement", "feedback")).value
    feedback = to_text(fields.get("feedback"))
    if to_text(fields.get("judgement")).casefold() not in _FAULTS or not feedback:
        return attempt
    dialogue = (*attempt.prompt, *load_template("retrorag", "revise")(written=attempt.output, feedback=feedback))
    output = await generate(dialogue, state.decoding, schema=_REASONED)
    revised = read_attempt(attempt.prompt, output)
    is_short = 0 < len(revised.answer.split()) <= _MAX_REVISED_WORDS
    if not is_short or _UNKNOWN.search(revised.answer):
        return attempt
    return attempt._replace(reason=revised.reason, answer=revised.answer, parse_ok=revised.parse_ok, output=revised.output)
