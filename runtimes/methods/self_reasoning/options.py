"""Options of Self-Reasoning."""

from __future__ import annotations

from typing import Literal

from wikidx.corpora.errors import InputError
from wikidx.corpora.validation import options
from wikidx.runtimes.methods.base import option


@options
class SelfReasoningOptions:
    """Settings, ablations and robustness experiments of the paper, and choices that the paper leaves open.

    Raises:
        InputError: the values contradict one another.
    """

    k: int = option(5, "paper", "passages that are read", minimum=1)
    task: Literal["short", "long", "fever"] = option(
        "short",
        "paper",
        "short answers, long ones with citations (ASQA), or verdicts on claims (FEVER)",
    )
    max_tokens: int = option(2048, "paper", "tokens of the trajectory and its answer", minimum=1)
    temperature: float = option(0.0, "paper", "the paper says both 'greedy in all experiments' and 'set to 0.2'", maximum=100)

    rap: bool = option(True, "paper", "False is 'w/o RAP': relevance is not judged (the fields are left out; the paper trained anew)")
    eap: bool = option(True, "paper", "False is 'w/o EAP': nothing is cited")
    tap: bool = option(True, "paper", "False is 'w/o TAP': no analysis")

    irrelevant: Literal["rule", "closed-book", "as-written"] = option(
        "rule",
        "paper",
        "nothing relevant: the pass's answer from the model's own knowledge and, for claims, NOT ENOUGH INFO whatever is written; "
        "or a question asked again without passages; or everything as written",
    )
    relevance: Literal["set", "passage"] = option("set", "proposed", "relevance is judged for the passages together, or for each one")
    structured: bool = option(True, "proposed", "hold the model to the fields' JSON schema, where it can be held")
    shots: int = option(1, "proposed", "demonstrations before the question")
    max_citations: int = option(10, "proposed", "citations that are read, the rest of an endless list being left out", minimum=1)

    reader: bool = option(False, "paper", "hand the trajectory to another model, which answers (the paper's table 3)")
    reader_tokens: int = option(256, "proposed", "tokens of the reader's answer, and of an answer without passages", minimum=1)

    shuffle: bool = option(False, "paper", "put the passages in random order (the paper's figure 3)")
    noise: float = option(
        0.0, "paper", "share of the passages replaced by another question's, a half rounded up (figure 3: 0.5)", maximum=1
    )
    noise_questions: tuple[str, ...] = option((), "proposed", "the questions whose passages are the noise, such as all of the data set")
    seed: int = option(0, "proposed", "of the order and the noise, together with the question")

    def __post_init__(self) -> None:
        """Check combinations of values."""
        if self.noise and not self.noise_questions:
            raise InputError(f"noise is {self.noise:g}, but nothing says where it comes from: give noise_questions")
        if self.task == "long" and not self.tap:
            raise InputError("a long answer is the analysis: it cannot be had without TAP, use task 'short' or 'fever'")
