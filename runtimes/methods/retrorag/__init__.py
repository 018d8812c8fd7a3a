"""RetroRAG: rounds of retrieval, inference and answering until an answer is consistent.

algorithm  the rounds
answerer   the answer, its consistency check and the declarative assessor
evidence   ELLERY: passages, inferred statements and the next query
options    the options of the method
state      the state of a question, and yes/no scoring
"""

from wikidx.runtimes.methods.base import Method, Preset

from .algorithm import retrorag
from .options import RetroRAGOptions

__all__ = ["METHOD", "RetroRAGOptions", "retrorag"]

METHOD = Method(
    name="retrorag",
    summary="rounds of retrieval, inference and answering until an answer is consistent",
    source="Xiao et al. 2025, Retrieval-Augmented Generation by Evidence Retroactivity in LLMs, arXiv 2501.05475",
    roles=("answer", "monitor", "consistency", "evidence", "entities", "inference", "relevance", "attribution", "query", "assessor"),
    options=RetroRAGOptions,
    run=retrorag,
    presets={
        # the paper's "BM25 algorithm and SimLM retriever": SimLM reranks the first 100 BM25 results, as in MetaRAG
        "default": Preset(corpus="wiki2018", retriever="bm25", search={"depth": 100, "rerank": "cross-encoder", "rerank_depth": 100}),
    },
)
