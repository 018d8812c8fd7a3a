"""Self-Ask: the model asks follow-up questions, each of which is answered, until it gives the final answer.

Press et al., Measuring and Narrowing the Compositionality Gap in Language Models, 2023 (arXiv 2210.03350). The paper takes the answers to
follow-up questions from the model, or from a question-answering search engine, here replaced by a reader of retrieved passages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.corpora.validation import options
from wikidx.runtimes.llms.base import Chat, Decoding, Message

from .base import Answer, Method, Preset, option
from .model_output import first_line, labelled
from .requests import Run, generate, named, retrieve
from .sentences import words
from .sub_questions import sub_questions
from .templates import numbered, template

_NEEDED = "Are follow up questions needed here:"
_FOLLOW_UP, _INTERMEDIATE, _FINAL = "Follow up:", "Intermediate answer:", "So the final answer is:"
_LABELS = ("follow_up", "follow_up_question", "intermediate_answer", "so_the_final_answer_is", "the_final_answer_is", "final_answer")
_FINALLY = re.compile(r"\bfinal\s+answer[\s*_]*(?:is\b[\s*_]*[:：]?|[:：])[\s*_]*(\S.*)", re.IGNORECASE)
_NEXT_QUESTION = "\nQuestion:"  # a model that continues after its answer invents another question


@options
class SelfAskOptions:
    """Options: source of the answers to follow-up questions, and their maximum number."""

    answered_by: Literal["reader", "context", "model"] = option(
        "reader",
        "proposed",
        "who answers a follow-up question: a reader of the passages that it finds; the model itself, with the passages in front of the "
        "question (context) or without any (model: the paper's Self-Ask without search engine)",
    )
    k: int = option(5, "proposed", "passages for a follow-up question", least=1)
    max_follow_ups: int = option(5, "proposed", "follow-up questions, after which the final answer is asked for")
    if_repeated: Literal["conclude", "again"] = option(
        "conclude",
        "proposed",
        "a follow-up question that was asked before: ask for the final answer, or answer it again",
    )
    shots: int = option(4, "proposed", "demonstrations before the question, none for the reader; the paper shows several")
    max_tokens: int = option(256, "proposed", "tokens that are generated at once, and of the final answer", least=1)
    reader_tokens: int = option(64, "proposed", "tokens of the reader's answer", least=1)


class _FollowUp(NamedTuple):
    """A follow-up question, its answer (None: to be generated next), and the passages found with it."""

    question: str
    answer: str | None = None
    passages: tuple[Passage, ...] = ()


class _Said(NamedTuple):
    """A parsed text: the answer to the last follow-up question, the next follow-up, the final answer; each may be missing."""

    intermediate: str | None
    follow_up: str
    final: str


def self_ask(question: str, options: SelfAskOptions) -> Run[Answer]:
    """Answer after follow-up questions. If the model neither asks nor concludes, it is asked for the final answer."""
    asked: list[_FollowUp] = []
    stop = (_NEXT_QUESTION,) if options.answered_by == "model" else (f"\n{_INTERMEDIATE}", _NEXT_QUESTION)
    while True:
        text = (yield from generate(_prompt(question, asked, options), Decoding(max_tokens=options.max_tokens, stop=stop))).text
        if options.answered_by == "model":
            asked, final = _whole(text, options)
            ended = "answer" if final else "no_answer"
            break
        said = _read(text, is_answering=bool(asked) and asked[-1].answer is None)
        if said.intermediate is not None:
            asked[-1] = asked[-1]._replace(answer=said.intermediate or "unknown")
        final = said.final
        ended = _reason_to_end(said, asked, options)
        if ended:
            break
        asked.append((yield from named(f"follow-up {len(asked) + 1}", _followed_up(said.follow_up, options))))
    if not final:
        final = yield from _concluded(question, asked, options)
    passages = dict.fromkeys(passage for one in asked for passage in one.passages)
    follow_ups = [{"question": one.question, "answer": one.answer, "passages": [passage.id for passage in one.passages]} for one in asked]
    return Answer(final, tuple(passages), {"follow_ups": follow_ups, "ended": ended, "parse_ok": ended == "answer"})


def _reason_to_end(said: _Said, asked: Sequence[_FollowUp], options: SelfAskOptions) -> str:
    """Return the reason to stop answering follow-up questions; blank to continue."""
    if said.final:
        return "answer"
    if not words(said.follow_up):
        return "no_follow_up"
    if options.if_repeated == "conclude" and words(said.follow_up) in [words(one.question) for one in asked]:
        return "repeated"
    return "max_follow_ups" if len(asked) >= options.max_follow_ups else ""


def _followed_up(question: str, options: SelfAskOptions) -> Run[_FollowUp]:
    """Search for a follow-up question and, with a reader, answer it."""
    found = yield from retrieve(question, options.k)
    if options.answered_by == "context":
        return _FollowUp(question, None, found)
    prompt = template("self_ask", "intermediate")(passages=numbered(found), question=question)
    written = yield from generate(prompt, Decoding(max_tokens=options.reader_tokens), role="reader")
    return _FollowUp(question, first_line(written.text) or "unknown", found)


def _concluded(question: str, asked: Sequence[_FollowUp], options: SelfAskOptions) -> Run[str]:
    """Let the model complete the final answer."""
    *turns, last = _prompt(question, [one._replace(answer=one.answer or "unknown") for one in asked], options)
    begun = last.content if asked else f"{_NEEDED} No."
    prompt = (*turns, Message("assistant", f"{begun}\n{_FINAL}"))
    written = yield from named("final answer", generate(prompt, Decoding(max_tokens=options.max_tokens, stop=(_NEXT_QUESTION,))))
    return _final_answer(written.text) or first_line(written.text)


def _prompt(question: str, asked: Sequence[_FollowUp], options: SelfAskOptions) -> Chat:
    """Return the conversation so far; the passages found last come first."""
    if options.answered_by == "context":
        found = list(dict.fromkeys(passage for one in reversed(asked) for passage in one.passages))
        turns = template("self_ask", "context")(passages=numbered(found), question=question, shots=options.shots)
    else:
        turns = template("self_ask", "ask")(question=question, shots=options.shots)
    return (*turns, Message("assistant", _transcript(asked)))


def _transcript(asked: Sequence[_FollowUp]) -> str:
    """Return the model's output so far, in the form of the demonstrations."""
    lines = [_NEEDED + " Yes." * bool(asked)]
    for one in asked:
        lines += [f"{_FOLLOW_UP} {one.question}", f"{_INTERMEDIATE} {one.answer}" if one.answer is not None else _INTERMEDIATE]
    return "\n".join(lines)


def _read(text: str, *, is_answering: bool) -> _Said:
    """Parse a text up to the next follow-up question: labelled lines, else the text that ends with a question mark.

    Args:
        text: the model's output.
        is_answering: whether it should begin with the answer to the last follow-up question.
    """
    if is_answering:
        text = re.sub(rf"^\s*{_INTERMEDIATE}", "", text, flags=re.IGNORECASE).lstrip()
    parts = labelled(f"{_INTERMEDIATE}\n{text}" if is_answering else text, _LABELS)
    intermediate = next((first_line(value) for name, value in parts if name == "intermediate_answer"), "") if is_answering else None
    follow_ups = [first_line(value) for name, value in parts if name.startswith("follow_up")]
    final = _final_answer(text)
    if not follow_ups and not final:
        rest = text.partition("\n")[2] if is_answering else text
        follow_ups = [one.text.strip() for one in sub_questions(rest) if one.text.strip().endswith(("?", "？"))]
    return _Said(intermediate, follow_ups[0] if follow_ups else "", final)


def _whole(text: str, options: SelfAskOptions) -> tuple[list[_FollowUp], str]:
    """Parse all follow-up questions with the model's own answers, up to the limit, and the final answer."""
    asked: list[_FollowUp] = []
    for name, value in labelled(text, _LABELS):
        if name.startswith("follow_up"):
            asked.append(_FollowUp(first_line(value)))
        elif name == "intermediate_answer" and asked:
            asked[-1] = asked[-1]._replace(answer=first_line(value))
    return asked[: options.max_follow_ups], _final_answer(text)


def _final_answer(text: str) -> str:
    """Return the text after the last "final answer is", or the empty text."""
    places = list(_FINALLY.finditer(text))
    return places[-1][1].strip(" \t\r*_") if places else ""


METHOD = Method(
    name="self_ask",
    summary="ask follow-up questions, answer each from what it finds, then conclude",
    source="Self-Ask, arXiv 2210.03350",
    roles=("answer", "reader"),
    options=SelfAskOptions,
    run=self_ask,
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)
