"""Iter-RetGen: retrieve with the question and the last round's output, answer from the passages, and repeat.

Shao et al., Enhancing Retrieval-Augmented Large Language Models with Iterative Retrieval-Generation Synergy, 2023 (arXiv 2305.15294).
With one round it is retrieve-then-read, by chain of thought if ``form`` says so.
"""

from __future__ import annotations

from typing import Any, Literal

from wikidx.corpora.passage import Passage
from wikidx.corpora.validation import options
from wikidx.runtimes.llms.base import Decoding

from .base import Answer, Method, Preset, option
from .requests import Run, generate, named, retrieve
from .templates import numbered, template
from .written_answers import Draft, draft


@options
class IterRetGenOptions:
    """Options: number of rounds, and the form of output and query in each."""

    rounds: int = option(3, "paper", "times that is retrieved and answered, as in RA-ISF's comparison", least=1)
    k: int = option(5, "proposed", "passages of a round, in place of the last one's", least=1)
    form: Literal["cot", "answer"] = option(
        "cot", "paper", "what is written: a chain of thought that ends in an answer, or the answer alone"
    )
    query: Literal["text", "answer"] = option(
        "text", "paper", "what follows the question in a query: the last output as a whole, or its answer"
    )
    shots: int = option(3, "proposed", "demonstrations before the question; the paper shows several")
    max_tokens: int = option(256, "proposed", "tokens of an output", least=1)


def iter_retgen(question: str, options: IterRetGenOptions) -> Run[Answer]:
    """Answer in rounds; the last round's answer counts. ``detail`` holds every round's query and output."""
    rounds: list[dict[str, Any]] = []
    query, found = question, tuple[Passage, ...]()
    output = Draft("", 0, "", None, parse_ok=False)
    for number in range(1, options.rounds + 1):
        found, output = yield from named(f"round {number}", _round(question, query, options))
        rounds.append({"query": query, "passages": [passage.id for passage in found], "output": output.text, "parse_ok": output.parse_ok})
        query = " ".join(f"{question} {output.text if options.query == 'text' else output.answer}".split())
    return Answer(output.answer, found, {"rounds": rounds, "parse_ok": output.parse_ok})


def _round(question: str, query: str, options: IterRetGenOptions) -> Run[tuple[tuple[Passage, ...], Draft]]:
    found = yield from retrieve(query, options.k)
    prompt = template("iter_retgen", options.form)(passages=numbered(found), question=question, shots=options.shots)
    written = yield from generate(prompt, Decoding(max_tokens=options.max_tokens))
    return found, draft(written, options.form)


METHOD = Method(
    name="iter_retgen",
    summary="retrieve with question and last answer, answer again, for some rounds",
    source="Iter-RetGen, arXiv 2305.15294",
    roles=("answer",),
    options=IterRetGenOptions,
    run=iter_retgen,
    presets={"default": Preset(corpus="wiki2018", retriever="contriever")},
)
