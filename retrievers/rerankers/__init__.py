"""Rerankers: models that score passages for queries, each a ``retrievers.base.Reranker``.

by_name       a name, a checkpoint or an endpoint -> an open reranker; recognises the kind of a checkpoint
checkpoint    RerankerSpec, and RerankerNetwork: a checkpoint's network that scores pairs in batches
cross_encoder networks with a classifier that read a query with a passage
decoder       language models that answer yes or no, as Qwen3-Reranker does
maxsim        ColBERT: similarities between the vectors of a query's and a passage's tokens
endpoint      servers with a path /rerank
plugged       rerankers by the user's own code

A kind of reranker is a file with a class that takes a ``RerankerSpec`` and a device, and a line in ``KINDS``; a name for a checkpoint is
a line in ``RERANKERS``.
"""

from wikidx.base.plugins import name_of

__all__ = ["KINDS", "RERANKERS", "reranker_name"]

KINDS = {
    "cross-encoder": "wikidx.retrievers.rerankers.cross_encoder:CrossEncoder",
    "decoder": "wikidx.retrievers.rerankers.decoder:Decoder",
    "maxsim": "wikidx.retrievers.rerankers.maxsim:MaxSim",
    "rerank": "wikidx.retrievers.rerankers.endpoint:open_endpoint",
}

RERANKERS = {
    "simlm": "wikidx.retrievers.rerankers.cross_encoder:SIMLM",
    "minilm-msmarco": "wikidx.retrievers.rerankers.cross_encoder:MINILM",
    "bge-base": "wikidx.retrievers.rerankers.cross_encoder:BGE_BASE",
    "qwen3": "wikidx.retrievers.rerankers.decoder:QWEN3",
    "moderncolbert": "wikidx.retrievers.rerankers.maxsim:GTE_MODERNCOLBERT",
}


def reranker_name(text: str) -> str:
    """Return the name of the reranker that a user means; a plug-in named by ``FILE.py:NAME`` is loaded. Raises as ``plug`` does."""
    return text if text.partition(":")[0] in KINDS else name_of("reranker", text)
