"""Self-Ask: the model asks follow-up questions and receives answers until it gives the final answer.

Press et al., Measuring and Narrowing the Compositionality Gap in Language Models, 2023 (arXiv 2210.03350).

In the paper, either the model or a search engine answers the follow-up questions. Here, a reader model that answers from retrieved passages
replaces the search engine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Chat, Decoding, Message

from .base import Answer, Method, Preset, option
from .forms import FORMS, describe_forms
from .model_output import drop_placeholder, first_line, parse_labels
from .reading import ReadingOptions, reads_passages
from .requests import generate, label, retrieve
from .sentences import normalize_words
from .sub_questions import parse_sub_questions
from .templates import format_passages, load_template
from .written_answers import parse_answer

_NEEDED = "Are follow up questions needed here:"
_FOLLOW_UP, _INTERMEDIATE, _FINAL = "Follow up:", "Intermediate answer:", "So the final answer is:"
_LABELS = ("follow_up", "follow_up_question", "intermediate_answer", "so_the_final_answer_is", "the_final_answer_is", "final_answer")
_FINALLY = re.compile(r"\bfinal\s+answer[\s*_]*(?:is\b[\s*_]*[:：]?|[:：])[\s*_]*(\S.*)", re.IGNORECASE)
_READER_TOKENS = 64
_NEXT_QUESTION = "\nQuestion:"  # stops a model that invents another question after its answer


@options
class SelfAskOptions(ReadingOptions):
    """Options of Self-Ask."""

    form: Literal["short", "yes_no"] = option("short", "ours", describe_forms(Literal["short", "yes_no"]))
    answered_by: Literal["reader", "context", "model"] = option(
        "reader",
        "ours",
        "who answers a follow-up question; reader: a reader model, from passages retrieved for that question; context: the model "
        "itself, with these passages in its prompt; model: the model itself, without passages (the paper's Self-Ask without search engine)",
    )
    k: int = option(5, "ours", "number of passages for a follow-up question", minimum=1)
    max_follow_ups: int = option(5, "ours", "maximum number of follow-up questions; then the final answer is requested")
    shots: int = option(4, "paper, open", "number of demonstrations in the prompt; the reader gets none; the paper shows several")
    max_tokens: int = option(256, "ours", "maximum number of tokens of each output of the model, including the final answer", minimum=1)


class _FollowUp(NamedTuple):
    """A follow-up question, its answer (None: not yet answered), and the passages retrieved with the question."""

    question: str
    answer: str | None = None
    passages: tuple[Passage, ...] = ()


class _Parsed(NamedTuple):
    """Parts of the model's output; missing parts are empty.

    Attributes:
        intermediate: the answer to the last follow-up question; None: not expected.
        follow_up: the next follow-up question.
        final: the final answer.
    """

    intermediate: str | None
    follow_up: str
    final: str


@reads_passages
async def self_ask(question: str, options: SelfAskOptions) -> Answer:
    """Generate and answer follow-up questions, and return the final answer. If the model gives no final answer, request the answer."""
    follow_ups: list[_FollowUp] = []
    stop = (_NEXT_QUESTION,) if options.answered_by == "model" else (f"\n{_INTERMEDIATE}", _NEXT_QUESTION)
    while True:
        text = (await generate(_prompt(question, follow_ups, options), Decoding(max_tokens=options.max_tokens, stop=stop))).text
        if options.answered_by == "model":
            follow_ups, final = _parse_all(text, options)
            stop_reason = "answer" if final else "no_answer"
            break
        parsed = _parse(text, is_answering=bool(follow_ups) and follow_ups[-1].answer is None)
        if parsed.intermediate is not None:
            follow_ups[-1] = follow_ups[-1]._replace(answer=parsed.intermediate or "unknown")
        final = parsed.final
        stop_reason = _stop_reason(parsed, follow_ups, options)
        if stop_reason:
            break
        with label(f"follow-up {len(follow_ups) + 1}"):
            follow_ups.append(await _answer_follow_up(parsed.follow_up, options))
    if not final:
        final = await _conclude(question, follow_ups, options)
    passages = dict.fromkeys(passage for follow_up in follow_ups for passage in follow_up.passages)
    records = [
        {"question": follow_up.question, "answer": follow_up.answer, "passages": [passage.id for passage in follow_up.passages]}
        for follow_up in follow_ups
    ]
    answer = FORMS[options.form].read(final, 0)
    detail = {"follow_ups": records, "stop_reason": stop_reason, "parse_ok": stop_reason == "answer" and answer.is_read}
    return Answer(answer.text, tuple(passages), detail)


def _stop_reason(parsed: _Parsed, follow_ups: Sequence[_FollowUp], options: SelfAskOptions) -> str:
    """Return the reason to end the follow-up questions; empty if there is none."""
    if parsed.final:
        return "answer"
    if not normalize_words(parsed.follow_up):
        return "no_follow_up"
    if normalize_words(parsed.follow_up) in [normalize_words(follow_up.question) for follow_up in follow_ups]:
        return "repeated"
    return "max_follow_ups" if len(follow_ups) >= options.max_follow_ups else ""


async def _answer_follow_up(question: str, options: SelfAskOptions) -> _FollowUp:
    """Retrieve passages for a follow-up question and, if a reader is used, answer the question from them."""
    passages = await retrieve(question, options.k)
    if options.answered_by == "context":
        return _FollowUp(question, None, passages)
    prompt = load_template("self_ask", "intermediate")(passages=format_passages(passages), question=question)
    output = await generate(prompt, Decoding(max_tokens=min(options.max_tokens, _READER_TOKENS)), role="reader")
    return _FollowUp(question, first_line(parse_answer(output).answer) or "unknown", passages)


async def _conclude(question: str, follow_ups: Sequence[_FollowUp], options: SelfAskOptions) -> str:
    """Begin the final answer, and let the model complete it."""
    *turns, last = _prompt(question, [follow_up._replace(answer=follow_up.answer or "unknown") for follow_up in follow_ups], options)
    prefix = last.content if follow_ups else f"{_NEEDED} No."
    prompt = (*turns, Message("assistant", f"{prefix}\n{_FINAL}"))
    with label("final answer"):
        output = await generate(prompt, Decoding(max_tokens=options.max_tokens, stop=(_NEXT_QUESTION,)))
    return _final_answer(output.text) or first_line(output.text)


def _prompt(question: str, follow_ups: Sequence[_FollowUp], options: SelfAskOptions) -> Chat:
    """Return the conversation so far. If ``answered_by`` is "context", it includes the passages, latest follow-up question first."""
    if options.answered_by == "context":
        passages = list(dict.fromkeys(passage for follow_up in reversed(follow_ups) for passage in follow_up.passages))
        turns = load_template("self_ask", "context", options.form)(
            passages=format_passages(passages), question=question, shots=options.shots
        )
    else:
        turns = load_template("self_ask", "ask", options.form)(question=question, shots=options.shots)
    return (*turns, Message("assistant", _transcript(follow_ups)))


def _transcript(follow_ups: Sequence[_FollowUp]) -> str:
    """Return the follow-up questions and their answers in the form of the demonstrations."""
    lines = [_NEEDED + " Yes." * bool(follow_ups)]
    for follow_up in follow_ups:
        lines += [
            f"{_FOLLOW_UP} {follow_up.question}",
            f"{_INTERMEDIATE} {follow_up.answer}" if follow_up.answer is not None else _INTERMEDIATE,
        ]
    return "\n".join(lines)


def _parse(text: str, *, is_answering: bool) -> _Parsed:
    """Parse labelled lines up to the next follow-up question.

    If no line is labelled as a follow-up question or final answer, the first item that ends with a question mark is the follow-up question.

    Args:
        text: the model's output.
        is_answering: whether the output should begin with the answer to the last follow-up question.
    """
    if is_answering:
        text = re.sub(rf"^\s*{_INTERMEDIATE}", "", text, flags=re.IGNORECASE).lstrip()
    parts = parse_labels(f"{_INTERMEDIATE}\n{text}" if is_answering else text, _LABELS)
    intermediate = next((first_line(value) for name, value in parts if name == "intermediate_answer"), "") if is_answering else None
    follow_ups = [first_line(value) for name, value in parts if name.startswith("follow_up")]
    final = _final_answer(text)
    if not follow_ups and not final:
        rest = text.partition("\n")[2] if is_answering else text
        follow_ups = [item.text.strip() for item in parse_sub_questions(rest) if item.text.strip().endswith(("?", "？"))]
    return _Parsed(intermediate, follow_ups[0] if follow_ups else "", final)


def _parse_all(text: str, options: SelfAskOptions) -> tuple[list[_FollowUp], str]:
    """Parse the final answer, and at most ``max_follow_ups`` follow-up questions with the model's own answers."""
    follow_ups: list[_FollowUp] = []
    for name, value in parse_labels(text, _LABELS):
        if name.startswith("follow_up"):
            follow_ups.append(_FollowUp(first_line(value)))
        elif name == "intermediate_answer" and follow_ups:
            follow_ups[-1] = follow_ups[-1]._replace(answer=first_line(value))
    return follow_ups[: options.max_follow_ups], _final_answer(text)


def _final_answer(text: str) -> str:
    """Return the text after the last "final answer is" or "final answer:"; empty if neither occurs."""
    matches = list(_FINALLY.finditer(text))
    return drop_placeholder(matches[-1][1].strip(" \t\r*_")) if matches else ""


METHOD = Method(
    name="self_ask",
    summary="ask follow-up questions, answer each from retrieved passages, then conclude",
    source="Self-Ask, arXiv 2210.03350",
    roles=("answer", "reader"),
    options=SelfAskOptions,
    run=self_ask,
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)
