"""Options of Self-Reasoning's training data."""

from __future__ import annotations

from typing import Literal

from wikidx.base.validation import options
from wikidx.runtimes.methods.base import option


@options
class CollectOptions:
    """Options for collecting the teacher's trajectories."""

    samples: int = option(
        10_000, "paper", "maximum number of samples that the teacher writes, drawn as evenly as possible from the sets", minimum=1
    )
    k: int = option(5, "paper", "number of documents of a sample", minimum=1)
    negatives: float = option(
        0.5, "ours", "probability that a sample has the documents of another question; the paper states no share", maximum=1
    )
    shuffle: bool = option(True, "paper", "put the documents in random order")
    form: Literal["gold", "short", "long", "fever"] = option(
        "gold",
        "ours",
        "form of the answers; short: short answers; long: long answers with citations (ASQA); fever: verdicts on claims (FEVER); gold: the "
        "gold data of each set decide (answer groups: long; FEVER's labels: fever; otherwise: short)",
    )
    relevance: Literal["set", "passage"] = option(
        "set", "ours", "set: judge the relevance of all documents together; passage: judge each document"
    )
    structured: bool = option(True, "ours", "constrain the output to the JSON schema of the fields, if the teacher's backend can")
    shots: int = option(1, "ours", "number of demonstrations in the teacher's prompt")
    max_tokens: int = option(2048, "paper", "maximum number of tokens of a trajectory", minimum=1)
    temperature: float = option(0.0, "ours", "temperature of the teacher; the paper states none")


@options
class BuildOptions:
    """Options for building the files from the trajectories."""

    citation_recall: float = option(0.8, "paper", "minimum ALCE citation recall of a long answer (delta_r)", maximum=1)
    citation_precision: float = option(0.8, "paper", "minimum ALCE citation precision of a long answer (delta_p)", maximum=1)
    nli: str = option(
        "true",
        "paper",
        "NLI model that decides whether documents entail a sentence: true (T5-XXL, 11 billion weights), small, hf:REPOSITORY or a folder",
    )
    sentences: Literal["punkt", "simple"] = option(
        "punkt", "paper", "sentence splitter for the citation metrics: punkt (as in ALCE) or simple"
    )
    least_str_em: float = option(
        1.0,
        "ours",
        "minimum STR-EM at which a long answer counts as correct; the paper names the metric, but no minimum",
        maximum=1,
    )
    size: int = option(2000, "paper", "maximum number of examples of a training set, drawn at random from the kept samples", minimum=1)
    stages: Literal["asked", "cut"] = option(
        "asked",
        "ours",
        "prompts and targets of the first two stages; asked: the prompt requests only the stage's fields, and the target is a complete "
        "JSON object; cut: the prompt requests all fields, and the target ends after the stage's fields. cut is the paper's mask, except "
        "for the end of turn that trainers append",
    )
    without: Literal["none", "rap", "eap", "tap"] = option(
        "none",
        "paper",
        "process that no stage learns (w/o RAP, w/o EAP, w/o TAP); set the method's option of this name to false",
    )
    prompt_shots: int = option(
        0, "ours", "number of demonstrations in the training prompts; set the method's option 'shots' to the same value"
    )
