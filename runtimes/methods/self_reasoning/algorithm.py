"""The algorithm of Self-Reasoning: a trajectory of relevance (RAP), evidence (EAP) and analysis (TAP), and the answer at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Decoding, JsonSchema
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.model_output import plain
from wikidx.runtimes.methods.requests import Run, generate
from wikidx.runtimes.methods.templates import numbered, template

from .checks import TASKS, place_of, verbatim
from .fields import fields_of, prompt_of
from .options import SelfReasoningOptions
from .reading import read_passages
from .trajectory import Trajectory, parse_trajectory


class _Candidate(NamedTuple):
    """The text of the answer, its source, whether the output was readable, and the number of passages seen."""

    text: str
    answered_from: str
    parse_ok: bool
    n_passages: int


def self_reasoning(question: str, options: SelfReasoningOptions) -> Run[Answer]:
    """Retrieve, generate a trajectory with its answer in one pass, and check it against the passages."""
    passages, noise = yield from read_passages(question, options)
    written = yield from generate(
        prompt_of(question, passages, options),
        Decoding(max_tokens=options.max_tokens, temperature=options.temperature),
        role="trajectory" if options.reader else "answer",
        schema=JsonSchema.of_fields(fields_of(options)) if options.structured else None,
    )
    trajectory = parse_trajectory(written.text, fields_of(options), options.max_citations)
    answer = _read_by_another if options.reader else _answer_of_pass
    final = yield from answer(question, passages, written.text, trajectory, options)
    finished = TASKS[options.task].finish(final.text, final.n_passages)
    detail = {
        "task": options.task,
        "read": [passage.id for passage in passages],
        "noise": [passage.id for passage in passages if passage.id in noise],
        "relevant": trajectory.relevant,
        "relevant_reason": trajectory.relevant_reason,
        "relevance": [{**item._asdict(), "passage": _id_at(place_of(item.document, passages), passages)} for item in trajectory.relevance],
        "cite_list": _checked(trajectory, passages),
        "analysis": trajectory.analysis,
        "answer": trajectory.answer,
        "answered_from": final.answered_from,
        "parse": trajectory.parse,
        "parse_ok": final.parse_ok and finished.is_read,
        "truncated": written.finish == "length",
        **finished.record,
    }
    return Answer(finished.text, passages[: final.n_passages], detail)


def _checked(trajectory: Trajectory, passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Return the citations with the passages that they refer to, and whether these contain the snippets."""
    checked = []
    for citation in trajectory.cite_list:
        place = place_of(citation.cite, passages)
        found = verbatim(citation.cite_content, place, passages)
        checked.append({**citation._asdict(), "passage": _id_at(place, passages), "verbatim": found})
    return checked


def _id_at(place: int | None, passages: Sequence[Passage]) -> str | None:
    return None if place is None else passages[place].id


def _answer_of_pass(
    question: str, passages: Sequence[Passage], written: str, trajectory: Trajectory, options: SelfReasoningOptions
) -> Run[_Candidate]:
    """Return the answer of the pass, or that for passages that are all irrelevant, which includes no passages at all."""
    task = TASKS[options.task]
    text, parse_ok = _text_of(written, trajectory, is_analysis=task.is_analysis)
    is_irrelevant = options.rap and (trajectory.relevant is False or not passages)
    if not is_irrelevant or options.irrelevant == "as-written":
        return _Candidate(text, "own knowledge" if is_irrelevant else "passages", parse_ok, len(passages))
    if task.if_irrelevant is not None:
        return _Candidate(task.if_irrelevant, "rule", parse_ok, len(passages))
    if options.irrelevant == "rule":
        return _Candidate(text, "own knowledge", parse_ok, len(passages))
    prompt = template("self_reasoning", f"closed_{options.task}")(question=question)
    answer = yield from generate(prompt, Decoding(max_tokens=options.reader_tokens, temperature=options.temperature))
    return _Candidate(answer.text, "closed book", True, 0)


def _text_of(written: str, trajectory: Trajectory, *, is_analysis: bool) -> tuple[str, bool]:
    """Return the text that answers the question, and whether it comes from its proper field, the analysis or the answer.

    If the field is empty the other one is used; if the output is unreadable, all of an analysis or the last line of an answer.
    """
    first, second = (trajectory.analysis, trajectory.answer) if is_analysis else (trajectory.answer, trajectory.analysis)
    if first or second or trajectory.parse != "none":
        return first or second, bool(first)
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    return (written if is_analysis else lines[-1] if lines else ""), False


def _read_by_another(
    question: str, passages: Sequence[Passage], written: str, trajectory: Trajectory, options: SelfReasoningOptions
) -> Run[_Candidate]:
    """Let another model answer from the passages and the trajectory (table 3)."""
    handed = written if trajectory.parse == "none" else _without_answer(trajectory, options)
    prompt = template("self_reasoning", f"read_{options.task}")(passages=numbered(passages), trajectory=handed, question=question)
    decoding = Decoding(max_tokens=options.reader_tokens, temperature=options.temperature)
    answer = yield from generate(prompt, decoding, schema=TASKS[options.task].schema)
    return _Candidate(answer.text, "reader", trajectory.parse != "none", len(passages))


def _without_answer(trajectory: Trajectory, options: SelfReasoningOptions) -> str:
    """Return a trajectory for another reader: JSON of its fields without the answer."""
    shown: dict[str, Any] = {
        **trajectory._asdict(),
        "relevance": [{**item._asdict(), "document": _number(item.document)} for item in trajectory.relevance],
        "cite_list": [{**item._asdict(), "cite": _number(item.cite)} for item in trajectory.cite_list],
    }
    return plain({name: shown[name] for name in fields_of(options) if name != "answer"})


def _number(said: str) -> int | str:
    return int(said) if said.isdecimal() and said.isascii() and len(said) < 5 else said
