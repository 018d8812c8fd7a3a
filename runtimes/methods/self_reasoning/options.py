"""Options of Self-Reasoning."""

from __future__ import annotations

from typing import Literal

from wikidx.base.errors import InputError
from wikidx.base.validation import options
from wikidx.runtimes.methods.base import option
from wikidx.runtimes.methods.forms import describe_forms
from wikidx.runtimes.methods.reading import ReadingOptions

TrajectoryForm = Literal["short", "yes_no", "fever", "long"]


@options
class SelfReasoningOptions(ReadingOptions):
    """Settings, ablations and robustness experiments of the paper, and choices that the paper leaves open.

    Raises:
        InputError: the values contradict one another.
    """

    form: TrajectoryForm = option("short", "paper", describe_forms(TrajectoryForm))
    k: int = option(5, "paper", "number of passages", minimum=1)
    max_tokens: int = option(2048, "paper", "maximum number of tokens of the trajectory and its answer", minimum=1)
    temperature: float = option(
        0.0, "paper, open", "temperature of all outputs; the paper states both greedy decoding and 0.2", maximum=100
    )

    rap: bool = option(True, "paper", "judge relevance; false: without its fields (w/o RAP, for which the paper retrained)")
    eap: bool = option(True, "paper", "cite evidence; false: without citations (w/o EAP)")
    tap: bool = option(True, "paper", "analyse the citations; false: without analysis (w/o TAP)")

    irrelevant: Literal["rule", "closed-book", "as-written"] = option(
        "rule",
        "paper",
        "answer if no passage is relevant; rule: the generated answer, but NOT ENOUGH INFO for claims; closed-book: as rule, but questions "
        "are asked again without passages; as-written: the generated answer",
    )
    relevance: Literal["set", "passage"] = option(
        "set", "paper, open", "set: judge the relevance of all passages together; passage: judge each passage"
    )
    structured: bool = option(True, "ours", "constrain the output to the JSON schema of the fields, if the model's backend can")
    shots: int = option(1, "ours", "number of demonstrations in the prompt")

    reader: bool = option(False, "paper", "let another model answer from passages and trajectory (the paper's table 3)")

    def __post_init__(self) -> None:
        """Check combinations of values."""
        ReadingOptions.__post_init__(self)
        if self.form == "long" and not self.tap:
            raise InputError("a long answer is the analysis: it cannot be had without TAP, use another form")
