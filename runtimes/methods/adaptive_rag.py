"""Adaptive-RAG: a classifier of questions chooses between no retrieval, one search, and IRCoT.

Jeong et al., Adaptive-RAG: Learning to Adapt Retrieval-Augmented Large Language Models through Question Complexity, 2024 (arXiv
2403.14403, section 3), and the authors' code (``starsuzi/Adaptive-RAG``): A is a question that the model answers by itself, B one that
takes a search, C one that takes several. The classifier's label is the likeliest of the three letters.

Deviations: without a trained classifier the language model classifies, by a prompt; strategies are this project's ``direct``, ``rag`` and
``ircot``, whose prompts are others than the authors'.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from wikidx.base.validation import options
from wikidx.runtimes.llms.prompts import Choice, Decoding

from .base import Answer, Method, Preset, option
from .direct import DirectOptions, direct
from .forms import LineFormName, describe_forms
from .ircot import IrcotOptions, ircot
from .rag import RagOptions, rag
from .reading import ReadingOptions, reads_passages
from .requests import generate, label
from .templates import load_template

_LABELS = ("A", "B", "C")
_LABEL = re.compile(r"\b[ABC]\b")


@options
class AdaptiveRagOptions(ReadingOptions):
    """Options of Adaptive-RAG."""

    form: LineFormName = option("short", "ours", describe_forms(LineFormName))
    classifier: Literal["prompted", "trained"] = option(
        "prompted", "ours", "input of the classifier; prompted: a prompt; trained: the question alone, as for the paper's T5"
    )
    k_once: int = option(15, "authors' code", "number of passages of the only search (GPT-3.5: 6)", minimum=1)
    k_each: int = option(6, "authors' code", "number of passages of each of several searches (GPT-3.5: 3)", minimum=1)
    max_sentences: int = option(10, "authors' code", "maximum number of sentences of the chain of thought", minimum=1)
    shots: int = option(3, "ours", "number of demonstrations in the prompts that answer")
    max_tokens: int = option(256, "ours", "maximum number of tokens of an answer, with its reasoning", minimum=1)


@reads_passages
async def adaptive_rag(question: str, options: AdaptiveRagOptions) -> Answer:
    """Classify the question, and answer it by the strategy for its class."""
    prompt = load_template("adaptive_rag", options.classifier)(question=question)
    output = await generate(prompt, Decoding(max_tokens=8), role="classifier", schema=Choice(_LABELS))
    found = _LABEL.search(output.text)
    complexity = found[0] if found else "B"
    with label(complexity):
        answer = await _answer(question, complexity, options)
    return answer._replace(detail={"complexity": complexity, "classified": found is not None, **answer.detail})


async def _answer(question: str, complexity: str, options: AdaptiveRagOptions) -> Answer:
    """Answer without a search (A), by one (B), or by several (C)."""
    shared: dict[str, Any] = {"form": options.form, "shots": options.shots, "max_tokens": options.max_tokens}
    if complexity == "A":
        return await direct(question, DirectOptions(**shared))
    if complexity == "B":
        return await rag(question, RagOptions(k=options.k_once, **shared))
    return await ircot(question, IrcotOptions(k=options.k_each, max_sentences=options.max_sentences, **shared))


METHOD = Method(
    name="adaptive_rag",
    summary="classify the question, and answer it without a search, by one search, or by several",
    source="Adaptive-RAG, arXiv 2403.14403",
    roles=("answer", "classifier"),
    options=AdaptiveRagOptions,
    run=adaptive_rag,
    parts=("direct", "rag", "ircot"),
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)
