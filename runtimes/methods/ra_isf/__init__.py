"""RA-ISF: answer from memory, else from relevant passages, else from the answers to sub-questions, up to a depth limit.

Liu et al., RA-ISF: Learning to Answer and Understand from Retrieval Augmentation via Iterative Self-Feedback, 2024 (arXiv 2403.06840).

algorithm  Algorithm 1               sub_models  self-knowledge, retrieval and relevance, decomposition
tree       tree of sub-questions     replies     parsing of verdicts                                options  the options of the paper

The paper's three sub-models have the roles "know", "relevance" and "decompose". Their replies may be the labels of the paper's training
data, or the words of an instruct model.
"""

from wikidx.runtimes.methods.base import Method, Preset

from .algorithm import ra_isf
from .options import RaIsfOptions

METHOD = Method(
    name="ra_isf",
    summary="answer from memory, from relevant passages, or from the answers to sub-questions",
    source="RA-ISF, arXiv 2403.06840",
    roles=("answer", "know", "relevance", "decompose"),
    options=RaIsfOptions,
    run=ra_isf,
    demonstrated=lambda options: ("closed_book", "from_passages"),
    presets={"default": Preset(corpus="wiki2018", retriever="contriever")},
)

__all__ = ["METHOD", "RaIsfOptions", "ra_isf"]
