"""Self-Reasoning: in one pass, the model judges the passages, cites from them, analyses its citations, and answers.

algorithm   the steps of the method
checks      checks of citations and snippets
fields      the fields of the output
options     the options of the method
trajectory  parsing of the output
"""

from wikidx.runtimes.methods.base import Method, Preset

from .algorithm import self_reasoning
from .options import SelfReasoningOptions

__all__ = ["METHOD", "SelfReasoningOptions", "self_reasoning"]

METHOD = Method(
    name="self_reasoning",
    summary="in one pass, judge the passages, cite from them, analyse, and answer",
    source="Xia et al. 2024, Improving Retrieval Augmented Language Model with Self-Reasoning, arXiv 2407.19813",
    roles=("answer", "trajectory"),
    options=SelfReasoningOptions,
    run=self_reasoning,
    presets={
        "NQ": Preset(corpus="wiki2018", retriever="dpr"),
        "PopQA": Preset(corpus="wiki2020", retriever="contriever"),
        "ASQA": Preset(corpus="wiki2018", retriever="gtr-xxl"),  # as in ALCE, whose setting the paper follows
    },
)
