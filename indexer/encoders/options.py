"""Settings of an encoder that a checkpoint's files do not have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wikidx.corpora.validation import options


@options
class RecipeOptions:
    """Settings of a checkpoint that its files lack, or that replace theirs; None: the files', or sentence-transformers' default.

    Attributes:
        pooling: see ``EncoderSpec``, as are normalize, query_prompt and passage_prompt.
        max_tokens: maximum length of queries and passages.
        dim: components that are kept of each vector (Matryoshka).
        trust_remote_code: run the network's Python code in the checkpoint's folder.
    """

    pooling: Annotated[str | None, Field(description="Pooling of token vectors: cls, mean, last, max, or several as cls+mean.")] = None
    normalize: bool | None = None
    query_prompt: Annotated[str | None, Field(description="Text before each query.")] = None
    passage_prompt: Annotated[str | None, Field(description="Text before each passage.")] = None
    max_tokens: Annotated[int | None, Field(ge=4, description="Maximum number of tokens of a text.")] = None
    dim: Annotated[int | None, Field(ge=1, description="Number of components that are kept of each vector.")] = None
    trust_remote_code: Annotated[bool, Field(description="Run the network's Python code in the checkpoint's folder.")] = False
