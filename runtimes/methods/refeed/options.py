"""Options of ReFeed. The paper's text does not state the number of samples or their decoding parameters."""

from __future__ import annotations

from typing import Literal, get_args

from wikidx.base.errors import InputError
from wikidx.base.validation import options
from wikidx.retrievers.options import DedupRule, MergeRule
from wikidx.runtimes.methods.base import option
from wikidx.runtimes.methods.forms import FormName, LineFormName, describe_forms
from wikidx.runtimes.methods.reading import ReadingOptions


@options
class RefeedOptions(ReadingOptions):
    """Hyper-parameters and ablations of the paper, and choices that the paper leaves open.

    Raises:
        InputError: a chain of thought cannot end in this form.
    """

    diverse: bool = option(True, "paper", "sample several initial answers; false: one greedy answer (w/o diversifying generation)")
    ensemble: bool = option(True, "paper", "keep the likelier of initial and refined answer; false: keep the refined one (w/o ensemble)")
    form: FormName = option("short", "paper", describe_forms(FormName))
    output: Literal["answer", "cot"] = option(
        "answer", "paper", "output; answer: the answer alone; cot: a chain of thought that ends with the answer (section 4.3.3)"
    )
    k: int = option(
        10,
        "paper, open",
        "number of documents after the results of all queries are merged; the paper states 10 for a single query",
        minimum=1,
    )
    samples: int = option(10, "paper, open", "number of sampled initial answers", minimum=1)
    temperature: float = option(1.0, "paper, open", "temperature of the sampled initial answers", minimum=0.01, maximum=100)
    top_p: float = option(0.95, "paper, open", "top_p of the sampled initial answers (nucleus sampling)", minimum=0.01, maximum=1)
    merge: MergeRule = option(
        "max",
        "paper",
        "how the results of several queries are merged, as in the search option 'merge'; max: by best score, although BM25 scores of "
        "a longer query are higher",
    )
    dedup: DedupRule = option("row", "paper", "how duplicate documents are recognised; row: the same passage; text: the same text")
    search_question: bool = option(False, "paper", "also search with the question alone, as the primary query of the group")
    initial_candidate: Literal["best", "greedy"] = option(
        "best",
        "paper, open",
        "initial answer that is compared with the refined one; best: the sample with the lowest mean NLL, which favours initial "
        "answers, the more so the more samples there are; greedy: the greedy answer, for one more call",
    )
    nll: Literal["output", "text", "answer"] = option(
        "output",
        "paper, open",
        "tokens whose NLL is averaged; output: as generated, with the end of text if the model returns it; text: the stripped text, scored "
        "by a second call; answer: the answer in that text, scored by a second call; chat endpoints over HTTP cannot score a text",
    )
    shots: int = option(0, "paper", "number of demonstrations in each prompt")
    max_tokens: int | None = option(
        None, "ours", "maximum number of tokens of an answer, with its chain of thought; none: 256; long: 300; dialogue: 50", minimum=1
    )

    def __post_init__(self) -> None:
        """Check combinations of values."""
        ReadingOptions.__post_init__(self)
        if self.output == "cot" and self.form not in get_args(LineFormName):
            raise InputError(
                f"a chain of thought ends in the form {', '.join(get_args(LineFormName))}, not '{self.form}': use output=answer"
            )
