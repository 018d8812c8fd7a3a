"""Encoders in wide use: one repository each, normalised, with the same maximum length of queries and passages.

Sources: the model cards, and the files of sentence-transformers in the repositories. Cards that do not mention titles have title and text
joined by a space; ``e5`` and ``bge`` have the format of FlashRAG's and Search-R1's corpora, to match their published indexes. Qwen3's last
token is the end of text that its tokenizer adds; of BGE-M3, these are the dense vectors alone; beyond 2,048 tokens, Nomic's network would
need other positions; EmbeddingGemma's licence must be accepted before its download.
"""

from __future__ import annotations

from typing import Any

from wikidx.corpora.passage import Passage

from .spec import hub_encoder


def contents(passage: Passage) -> str:
    """Return the title in double quotes and the text on a new line, or the text alone if there is no title."""
    return f'"{passage.title}"\n{passage.text}' if passage.title else passage.text


def label_title(passage: Passage) -> str:
    """Return title and text with EmbeddingGemma's labels."""
    return f"title: {passage.title or 'none'} | text: {passage.text}"


_WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
_RELEVANT = "Represent this sentence for searching relevant passages: "
_E5: dict[str, Any] = {"max_tokens": 512, "pooling": "mean", "query_prompt": "query: ", "passage_prompt": "passage: "}
_NOMIC: dict[str, Any] = {"max_tokens": 2048, "pooling": "mean", "query_prompt": "search_query: ", "passage_prompt": "search_document: "}
_GEMMA: dict[str, Any] = {
    "max_tokens": 2048,
    "pooling": "mean",
    "dense": ("2_Dense", "3_Dense"),
    "passage_text": label_title,
    "gpu_dtype": "bfloat16",
}

_OF_2024: dict[str, Any] = {"dim": 768, "max_tokens": 512, "passage_text": contents, "by_transformers": False}

E5 = hub_encoder(
    "e5",
    "intfloat/e5-base-v2@f52bf8ec8c7124536f0efb74aca902b2995e5bcd",
    **_OF_2024 | {"pooling": "mean", "query_prompt": "query: ", "passage_prompt": "passage: "},
)
BGE = hub_encoder(
    "bge", "BAAI/bge-base-en-v1.5@a5beb1e3e68b9ab74eb54cfd186867f64f240e1a", pooling="cls", query_prompt=_RELEVANT, **_OF_2024
)
QWEN3 = hub_encoder(
    "qwen3",
    "Qwen/Qwen3-Embedding-0.6B",
    dim=1024,
    max_tokens=32_768,
    pooling="lasttoken",
    query_prompt=_WEB_SEARCH,
    gpu_dtype="bfloat16",
)
BGE_M3 = hub_encoder("bge-m3", "BAAI/bge-m3", dim=1024, max_tokens=8192, pooling="cls")
MULTILINGUAL_E5 = hub_encoder("multilingual-e5", "intfloat/multilingual-e5-base", dim=768, **_E5)
MULTILINGUAL_E5_SMALL = hub_encoder("multilingual-e5-small", "intfloat/multilingual-e5-small", dim=384, **_E5)
MULTILINGUAL_E5_LARGE = hub_encoder("multilingual-e5-large", "intfloat/multilingual-e5-large", dim=1024, **_E5)
NOMIC = hub_encoder("nomic", "nomic-ai/nomic-embed-text-v1.5", dim=768, **_NOMIC)
ARCTIC_V2 = hub_encoder(
    "arctic-v2", "Snowflake/snowflake-arctic-embed-l-v2.0", dim=1024, max_tokens=8192, pooling="cls", query_prompt="query: "
)
EMBEDDINGGEMMA = hub_encoder(
    "embeddinggemma", "google/embeddinggemma-300m", dim=768, query_prompt="task: search result | query: ", **_GEMMA
)
MXBAI = hub_encoder("mxbai", "mixedbread-ai/mxbai-embed-large-v1", dim=1024, max_tokens=512, pooling="cls", query_prompt=_RELEVANT)
MPNET = hub_encoder("mpnet", "sentence-transformers/all-mpnet-base-v2", dim=768, max_tokens=384, pooling="mean")
