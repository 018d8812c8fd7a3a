"""The algorithm of Self-Reasoning: a trajectory of relevance (RAP), evidence (EAP), analysis (TAP) and answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Choice, Decoding, JsonSchema
from wikidx.runtimes.methods.asking_again import read_field, request_again
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.forms import FORMS
from wikidx.runtimes.methods.model_output import to_text
from wikidx.runtimes.methods.reading import reads_passages
from wikidx.runtimes.methods.requests import generate, retrieve
from wikidx.runtimes.methods.templates import format_passages, load_template

from .checks import find_cited, match_snippet
from .fields import build_prompt, requested_fields
from .options import SelfReasoningOptions
from .trajectory import Trajectory, parse_trajectory

_ANSWER_TOKENS = 256  # of an answer by the reader, without passages, or on a second request


class _Candidate(NamedTuple):
    """An answer before it is formatted.

    Attributes:
        text: the text.
        answered_from: source of the answer: "passages", "own knowledge", "rule", "closed book" or "reader".
        parse_ok: whether the model's output has the expected form.
        n_passages: number of passages that the answer may cite.
    """

    text: str
    answered_from: str
    parse_ok: bool
    n_passages: int


@reads_passages
async def self_reasoning(question: str, options: SelfReasoningOptions) -> Answer:
    """Retrieve passages, generate a trajectory with its answer in one pass, and check the citations against the passages.

    If the pass lacks the answer, the answer is requested once more.
    """
    passages = await retrieve(question, options.k)
    prompt = build_prompt(question, passages, options)
    output = await generate(
        prompt,
        Decoding(max_tokens=options.max_tokens, temperature=options.temperature),
        role="trajectory" if options.reader else "answer",
        schema=JsonSchema.of_fields(requested_fields(options)) if options.structured else None,
    )
    trajectory = parse_trajectory(output.text, requested_fields(options))
    name = "analysis" if options.form == "long" else "answer"
    field = read_field(output, name, getattr(trajectory, name))
    is_asked_again = not (options.reader or field.is_whole)
    if is_asked_again:
        field = await request_again("self_reasoning", prompt, output, field, question, _brief(options))
        trajectory = trajectory._replace(analysis=field.text) if name == "analysis" else trajectory._replace(answer=field.text)
    answer = _answer_by_reader if options.reader else _answer_from_pass
    final = await answer(question, passages, output.text, trajectory, options)
    formatted = FORMS[options.form].read(final.text, final.n_passages)
    detail = {
        "read": [passage.id for passage in passages],
        "relevant": trajectory.relevant,
        "relevant_reason": trajectory.relevant_reason,
        "relevance": [
            {**item._asdict(), "passage": _id_at(find_cited(item.document, passages), passages)} for item in trajectory.relevance
        ],
        "cite_list": _check_citations(trajectory, passages),
        "analysis": trajectory.analysis,
        "answer": trajectory.answer,
        "answered_from": final.answered_from,
        "parse": trajectory.parse,
        "parse_ok": final.parse_ok and formatted.is_read and not field.is_cut,
        "truncated": output.finish == "length",
        "asked_again": is_asked_again,
        **formatted.record,
    }
    return Answer(formatted.text, passages[: final.n_passages], detail)


def _check_citations(trajectory: Trajectory, passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Return each citation with the id of the cited passage and the match of its snippet."""
    citations = []
    for citation in trajectory.cite_list:
        position = find_cited(citation.cite, passages)
        verbatim = match_snippet(citation.cite_content, position, passages)
        citations.append({**citation._asdict(), "passage": _id_at(position, passages), "verbatim": verbatim})
    return citations


def _id_at(position: int | None, passages: Sequence[Passage]) -> str | None:
    return None if position is None else passages[position].id


async def _answer_from_pass(
    question: str, passages: Sequence[Passage], output: str, trajectory: Trajectory, options: SelfReasoningOptions
) -> _Candidate:
    """Return the answer of the pass. If no passage is relevant, the form and the option ``irrelevant`` determine the answer."""
    undecided = FORMS[options.form].undecided
    text, parse_ok = _answer_text(output, trajectory, is_analysis=options.form == "long")
    is_irrelevant = options.rap and (trajectory.relevant is False or not passages)
    if not is_irrelevant or options.irrelevant == "as-written":
        return _Candidate(text, "own knowledge" if is_irrelevant else "passages", parse_ok, len(passages))
    if undecided is not None:
        return _Candidate(undecided, "rule", parse_ok, len(passages))
    if options.irrelevant == "rule":
        return _Candidate(text, "own knowledge", parse_ok, len(passages))
    prompt = load_template("self_reasoning", "closed", options.form)(question=question)
    answer = await generate(prompt, _brief(options))
    return _Candidate(answer.text, "closed book", True, 0)


def _brief(options: SelfReasoningOptions) -> Decoding:
    """Return the decoding parameters of an answer alone."""
    return Decoding(max_tokens=min(options.max_tokens, _ANSWER_TOKENS), temperature=options.temperature)


def _answer_text(output: str, trajectory: Trajectory, *, is_analysis: bool) -> tuple[str, bool]:
    """Return the text of the answer, and whether the expected field contains it.

    The expected field is "analysis" if ``is_analysis``, else "answer". If this field is empty, the text of the other field is returned.
    Without any field, the text is the whole output if ``is_analysis``, else the last line of the output.
    """
    first, second = (trajectory.analysis, trajectory.answer) if is_analysis else (trajectory.answer, trajectory.analysis)
    if first or second or trajectory.parse != "none":
        return first or second, bool(first)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return (output if is_analysis else lines[-1] if lines else ""), False


async def _answer_by_reader(
    question: str, passages: Sequence[Passage], output: str, trajectory: Trajectory, options: SelfReasoningOptions
) -> _Candidate:
    """Let a separate reader answer from the passages and the trajectory (the paper's table 3)."""
    trajectory_text = output if trajectory.parse == "none" else _without_answer(trajectory, options)
    prompt = load_template("self_reasoning", "read", options.form)(
        passages=format_passages(passages), trajectory=trajectory_text, question=question
    )
    choices = FORMS[options.form].choices
    answer = await generate(prompt, _brief(options), schema=Choice(choices) if choices else None)
    return _Candidate(answer.text, "reader", trajectory.parse != "none", len(passages))


def _without_answer(trajectory: Trajectory, options: SelfReasoningOptions) -> str:
    """Return the requested fields of a trajectory as JSON, without the answer."""
    fields: dict[str, Any] = {
        **trajectory._asdict(),
        "relevance": [{**item._asdict(), "document": _number(item.document)} for item in trajectory.relevance],
        "cite_list": [{**item._asdict(), "cite": _number(item.cite)} for item in trajectory.cite_list],
    }
    return to_text({name: fields[name] for name in requested_fields(options) if name != "answer"})


def _number(reference: str) -> int | str:
    return int(reference) if reference.isdecimal() and reference.isascii() and len(reference) < 5 else reference
