"""Options of ReFeed. The paper's text does not state the number of samples or their decoding parameters."""

from __future__ import annotations

from typing import Literal

from wikidx.corpora.validation import options
from wikidx.retrievers.options import DedupRule, MergeRule
from wikidx.runtimes.methods.base import option


@options
class RefeedOptions:
    """Hyper-parameters and ablations of the paper, and choices that the paper leaves open."""

    diverse: bool = option(True, "paper", "draw several initial answers; False: w/o diversifying generation, one greedy answer")
    ensemble: bool = option(True, "paper", "keep the likelier of initial and refined answer; False: w/o ensemble, the refined one")
    form: Literal["answer", "cot", "dialogue"] = option(
        "answer",
        "paper",
        "output: an answer, a chain of thought with the answer at its end (section 4.3.3), or a conversation's next turn (WoW)",
    )
    k: int = option(10, "paper", "documents, also after those of several queries are merged", minimum=1)
    samples: int = option(10, "proposed", "initial answers that are drawn", minimum=1)
    temperature: float = option(1.0, "proposed", "of the initial answers that are drawn", minimum=0.01, maximum=100)
    top_p: float = option(0.95, "proposed", "of the initial answers that are drawn, by nucleus sampling", minimum=0.01, maximum=1)
    merge: MergeRule = option(
        "max",
        "paper",
        "how the documents of several queries are ranked: by their best score, or as the rule of that name says",
    )
    dedup: DedupRule = option("row", "paper", "documents that are one: the same, or of the same text")
    search_question: bool = option(False, "paper", "search with the question by itself too, as the group's primary query")
    initial_candidate: Literal["best", "greedy"] = option(
        "best",
        "proposed",
        "initial answer that may be kept, of several: the answer of the lowest mean NLL, or the greedy answer",
    )
    nll: Literal["output", "text", "answer"] = option(
        "output",
        "proposed",
        "tokens whose NLL is averaged: as generated, with the end of text if the model gives it; of the stripped text, scored anew; or "
        "of the answer in it, scored anew",
    )
    shots: int = option(0, "proposed", "demonstrations before each prompt")
    max_tokens: int = option(64, "proposed", "tokens of an answer or a turn", minimum=1)
    max_reasoning_tokens: int = option(256, "proposed", "tokens of a chain of thought with its answer", minimum=1)
