"""No encoder: vectors that users import without one. Their queries are vectors, too; see ``retrievers.vector_queries``."""

from __future__ import annotations

from .spec import EncoderSpec

SPEC = EncoderSpec(
    name="none",
    query_checkpoint=None,
    passage_checkpoint=None,
    dim=0,
    pooling="mean",
    normalize=False,
    max_query_tokens=0,
    max_passage_tokens=0,
)
