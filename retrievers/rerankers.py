"""The rerankers that are known by name: ``RERANKERS`` of the package lists them, each a function from a device to the open reranker."""

from __future__ import annotations

from functools import partial

from wikidx.corpora.passage import Passage
from wikidx.indexer.encoders.checkpoints import HubCheckpoint

from .cross_encoder import CrossEncoder, CrossEncoderSpec


def title_colon_text(passage: Passage) -> str:
    """Return title and text as SimLM's reranker was trained with; "-" stands for a title that is missing."""
    return f"{passage.title or '-'}: {passage.text}"


SIMLM_SPEC = CrossEncoderSpec(  # Wang et al., 2023; the model card has the format, which RetroRAG's retriever (BM25, then this) uses
    name="simlm",
    checkpoint=HubCheckpoint("intfloat/simlm-msmarco-reranker", "main"),
    max_tokens=192,
    passage_text=title_colon_text,
)
MINILM_SPEC = CrossEncoderSpec(name="minilm-msmarco", checkpoint=HubCheckpoint("cross-encoder/ms-marco-MiniLM-L6-v2", "main"))
BGE_BASE_SPEC = CrossEncoderSpec(name="bge-base", checkpoint=HubCheckpoint("BAAI/bge-reranker-base", "main"))

SIMLM = partial(CrossEncoder, SIMLM_SPEC)
MINILM = partial(CrossEncoder, MINILM_SPEC)
BGE_BASE = partial(CrossEncoder, BGE_BASE_SPEC)
