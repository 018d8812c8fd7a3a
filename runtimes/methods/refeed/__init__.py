"""ReFeed: answer from memory, retrieve with question and answers, answer again from the documents, and keep the likelier answer.

Yu et al., Improving Language Models via Plug-and-Play Retrieval Feedback, 2023 (arXiv 2305.14002).

algorithm   the steps of the method
ensemble    the choice between initial and refined answer
options     the options of the method
"""

from wikidx.runtimes.methods.base import Method, Preset

from .algorithm import refeed
from .options import RefeedOptions

METHOD = Method(
    name="refeed",
    summary="answer from memory, retrieve with question and answers, refine, and keep the likelier answer",
    source="ReFeed, arXiv 2305.14002",
    roles=("answer",),
    options=RefeedOptions,
    run=refeed,
    demonstrated=lambda options: ("initial_answer",) if options.output == "answer" else (),
    presets={"default": Preset(corpus="wiki2018", retriever="bm25")},
)

__all__ = ["METHOD", "RefeedOptions", "refeed"]
