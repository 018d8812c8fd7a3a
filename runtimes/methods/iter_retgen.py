"""Iter-RetGen: retrieve with the question and the previous round's output, answer from the passages, and repeat.

Shao et al., Enhancing Retrieval-Augmented Large Language Models with Iterative Retrieval-Generation Synergy, 2023 (arXiv 2305.15294).
A single round is retrieve-then-read, with a chain of thought if ``output`` is "cot".
"""

from __future__ import annotations

from typing import Any, Literal

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Decoding

from .base import Answer, Method, Preset, option
from .forms import LineFormName, describe_forms
from .reading import ReadingOptions, reads_passages
from .requests import generate, label, retrieve
from .templates import format_passages, load_template
from .written_answers import Draft, answer_in_form, parse_draft


@options
class IterRetGenOptions(ReadingOptions):
    """Options of Iter-RetGen."""

    rounds: int = option(3, "paper", "number of rounds of retrieval and answering, as in RA-ISF's comparison", minimum=1)
    k: int = option(5, "paper", "number of passages per round; each round replaces the passages of the previous one", minimum=1)
    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    output: Literal["cot", "answer"] = option(
        "cot", "paper", "output; cot: a chain of thought that ends with the answer; answer: the answer alone"
    )
    query: Literal["text", "answer"] = option(
        "text", "paper", "text before the question in a query (equation 1); text: the whole previous output; answer: its answer"
    )
    shots: int = option(3, "paper", "number of demonstrations in the prompt")
    max_tokens: int = option(256, "ours", "maximum number of tokens of an output", minimum=1)


@reads_passages
async def iter_retgen(question: str, options: IterRetGenOptions) -> Answer:
    """Answer in rounds, and return the answer of the last round. ``detail`` holds query and output of every round."""
    rounds: list[dict[str, Any]] = []
    query, passages = question, tuple[Passage, ...]()
    output = Draft("", 0, "", None, parse_ok=False)
    for number in range(1, options.rounds + 1):
        with label(f"round {number}"):
            passages, output = await _round(question, query, options)
        rounds.append(
            {"query": query, "passages": [passage.id for passage in passages], "output": output.text, "parse_ok": output.parse_ok}
        )
        query = " ".join(f"{output.text if options.query == 'text' else output.answer} {question}".split())
    return answer_in_form(output, options.form, passages, rounds=rounds)


async def _round(question: str, query: str, options: IterRetGenOptions) -> tuple[tuple[Passage, ...], Draft]:
    passages = await retrieve(query, options.k)
    prompt = load_template("iter_retgen", options.output, options.form)(
        passages=format_passages(passages), question=question, shots=options.shots
    )
    output = await generate(prompt, Decoding(max_tokens=options.max_tokens))
    return passages, parse_draft(output, options.output)


METHOD = Method(
    name="iter_retgen",
    summary="retrieve with question and previous output, answer, and repeat",
    source="Iter-RetGen, arXiv 2305.15294",
    roles=("answer",),
    options=IterRetGenOptions,
    run=iter_retgen,
    demonstrated=lambda options: ("answer",) if options.output == "answer" else (),
    presets={"default": Preset(corpus="wiki2018", retriever="contriever")},
)
