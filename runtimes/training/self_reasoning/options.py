"""Options of Self-Reasoning's training data."""

from __future__ import annotations

from typing import Literal

from wikidx.corpora.validation import options
from wikidx.runtimes.methods.base import option


@options
class CollectOptions:
    """Options for collecting the teacher's trajectories."""

    samples: int = option(10_000, "paper", "samples that the teacher writes, in all; shared out evenly over the sets", minimum=1)
    k: int = option(5, "paper", "documents of a sample", minimum=1)
    negatives: float = option(
        0.5, "proposed", "share of samples that have another question's documents; the paper has both and no share", maximum=1
    )
    shuffle: bool = option(True, "paper", "put the documents in random order")
    task: Literal["gold", "short", "long", "fever"] = option(
        "gold",
        "proposed",
        "short answers, long ones with citations (ASQA), verdicts on claims (FEVER); or by each set's gold: groups of answers are long, "
        "labels are claims",
    )
    relevance: Literal["set", "passage"] = option("set", "proposed", "relevance is judged for the documents together, or for each one")
    structured: bool = option(True, "proposed", "hold the teacher to the fields' JSON schema, where it can be held")
    shots: int = option(1, "proposed", "demonstrations that the teacher is shown")
    max_tokens: int = option(2048, "paper", "tokens of a trajectory", minimum=1)
    temperature: float = option(0.0, "proposed", "of the teacher; the paper does not say")


@options
class BuildOptions:
    """Options for building the files from the trajectories."""

    citation_recall: float = option(0.8, "paper", "least ALCE citation recall of a long answer (delta_r)", maximum=1)
    citation_precision: float = option(0.8, "paper", "least ALCE citation precision of a long answer (delta_p)", maximum=1)
    nli: str = option(
        "true",
        "paper",
        "what tells whether documents entail a sentence: true (T5-XXL, 11 billion weights), small, hf:REPOSITORY or a folder",
    )
    sentences: Literal["punkt", "simple"] = option("punkt", "paper", "where sentences end, for the citations")
    least_str_em: float = option(
        1.0,
        "proposed",
        "least STR-EM of a long answer that is correct; the paper gives the metric, not the figure that is correct",
        maximum=1,
    )
    size: int = option(2000, "paper", "examples of a training set at most, drawn at random from the kept ones", minimum=1)
    stages: Literal["asked", "cut"] = option(
        "asked",
        "proposed",
        "targets of the first two stages: a whole object of the stage's fields, which the prompt asks for, so that the end of the turn is "
        "right; or the whole prompt, its target cut where the stage ends: the paper's mask, except the end of the turn that trainers add",
    )
    without: Literal["none", "rap", "eap", "tap"] = option(
        "none",
        "paper",
        "w/o RAP, w/o EAP, w/o TAP: the process that no stage learns; the method's option of that name is false later",
    )
    prompt_shots: int = option(0, "proposed", "demonstrations in the prompts that are trained on: the method's option 'shots' later")
