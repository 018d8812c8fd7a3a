"""RetroRAG: collect evidence, answer, check the answer's consistency; if it is low, infer from the evidence and search for missing facts.

algorithm  the rounds                   options  the options of the paper     state  the state of a question, and yes/no scoring
answerer   answers and their check      evidence  ELLERY: passages, inferences, the next query
"""

from wikidx.runtimes.methods.base import Method, Preset

from .algorithm import retrorag
from .options import RetroRAGOptions

__all__ = ["METHOD", "RetroRAGOptions", "retrorag"]

METHOD = Method(
    name="retrorag",
    summary="evidence collected, inferred from and searched for again until the answer agrees with itself",
    source="Xiao et al. 2025, Retrieval-Augmented Generation by Evidence Retroactivity in LLMs, arXiv 2501.05475",
    roles=("answer", "monitor", "consistency", "evidence", "entities", "inference", "relevance", "attribution", "query", "assessor"),
    options=RetroRAGOptions,
    run=retrorag,
    presets={
        # "BM25 algorithm and SimLM retriever" is SimLM's reranker over BM25's first 100, as in MetaRAG, which the paper follows
        "default": Preset(corpus="wiki2018", retriever="bm25", search={"depth": 100, "rerank": "cross-encoder", "rerank_depth": 100}),
    },
)
