"""ModernBERT (Warner et al., 2024) fine-tuned for retrieval, up to 8,192 tokens.

Sources: the model cards of Alibaba-NLP/gte-modernbert-base (first token, no prompts) and nomic-ai/modernbert-embed-base (mean, prefixes).
"""

from __future__ import annotations

from .spec import hub_encoder

GTE = hub_encoder("gte-modernbert", "Alibaba-NLP/gte-modernbert-base", dim=768, max_tokens=8192, pooling="cls")
NOMIC = hub_encoder(
    "modernbert-embed",
    "nomic-ai/modernbert-embed-base",
    dim=768,
    max_tokens=8192,
    pooling="mean",
    query_prompt="search_query: ",
    passage_prompt="search_document: ",
)
