"""Endpoints ``/v1/embeddings`` and ``/v1/models`` in OpenAI's format: vectors of texts by the encoders of the served retrievers."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args

import numpy as np
import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from wikidx.base.registry import unknown_name_error
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.spec import Side
from wikidx.retrievers.base import DEFAULTS
from wikidx.retrievers.cancellation import raise_if_cancelled
from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.options import SearchOptions

from .batcher import Batcher, Groups, SearchRequest
from .catalog import Catalog
from .gate import JSON
from .open_searchers import TextEncoder
from .schemas import NAME_CHARACTERS, validate_body
from .searching import read_body, submit, wait_until_open
from .settings import Settings

_MAX_TEXTS = 2_048  # OpenAI's limit
_List = Annotated[list[str], Field(min_length=1, max_length=_MAX_TEXTS)]


def _to_list(given: object) -> object:
    """Return a text as a list of one; raise ``ValueError`` for the tokens of another model, which some clients send."""
    if isinstance(given, list) and given and isinstance(given[0], int | list):
        raise ValueError(
            "input: tokens are another model's here, send texts (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
        )
    return [given] if isinstance(given, str) else given


_Texts = Annotated[_List, BeforeValidator(_to_list, str | _List)]
_TEXTS_AT_ONCE = 256  # between two of these steps, embedding ends if the client has gone


class EmbeddingBody(BaseModel):
    """Texts to embed."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Embedding")

    input: _Texts = Field(description="A text, or a list of texts.")
    model: Annotated[str, StringConstraints(max_length=NAME_CHARACTERS)] = Field(description="A served encoder; see /v1/models.")
    encoding_format: Literal["float", "base64"] | None = Field("float", description="base64: the bytes of little-endian float32 numbers.")
    dimensions: int | None = Field(None, ge=1, description="Number of components; other encoders than Matryoshka's have only one number.")
    user: str | None = Field(None, description="OpenAI's name of the end user, which is not used.")
    input_type: Side = Field("passage", description="Embed the texts as passages, or as queries for them.")


class EmbeddingRow(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens that the encoder has read, special tokens and prompts included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(BaseModel):
    """The vectors of all texts, in request order."""

    object: Literal["list"]
    data: list[EmbeddingRow]
    model: str
    usage: EmbeddingUsage


class _Embedder:
    """One side of an encoder as a searcher; the result of a group of texts is their vectors and the number of their tokens.

    The texts of each request are encoded apart: their vectors do not depend on other requests, to the last bit.
    """

    def __init__(self, encoder: TextEncoder, side: Side) -> None:
        self._encoder, self._side = encoder, side

    def search_groups(self, groups: Groups, options: SearchOptions) -> list[tuple[Vectors, int]]:
        return [self._embed(group) for group in groups]

    def _embed(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        parts = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            raise_if_cancelled()
            parts.append(self._encoder.encode_texts(self._side, texts[start : start + _TEXTS_AT_ONCE]))
        return np.concatenate([vectors for vectors, _ in parts]), int(sum(lengths.sum() for _, lengths in parts))


class EmbeddingEndpoints:
    """The endpoints for vectors."""

    def __init__(self, settings: Settings, catalog: Catalog, batcher: Batcher) -> None:
        self._settings, self._catalog, self._batcher, self._started = settings, catalog, batcher, int(time.time())

    async def embed(self, request: Request) -> Response:
        """Embed texts, as passages or as queries."""
        body = validate_body(EmbeddingBody, await read_body(request, self._settings.limits.max_body_bytes))
        deadline = time.monotonic() + self._settings.limits.deadline_s
        with self._catalog.memory.holding(n_bytes := request.state.n_bytes):
            encoder = await wait_until_open(request, partial(self._find, body.model), deadline)
        self._check(body.input, body, encoder)
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        embedder = _Embedder(encoder, body.input_type)
        search = SearchRequest(("", body.model), embedder, [body.input], DEFAULTS, deadline, answer, n_bytes=n_bytes)
        request.state.logged = {"model": body.model, "texts": len(body.input)}
        ((vectors, n_tokens),) = await submit(request, self._batcher, search)
        return Response(await run_in_threadpool(_to_json, body, vectors, n_tokens), media_type=JSON)

    async def models(self, request: Request) -> Response:
        """Return the served encoders."""
        constant = {"object": "model", "created": self._started, "owned_by": "idx", "input_types": get_args(Side)}
        described = [{"id": name, "dimensions": encoder.dim, **constant} for name, encoder in self._catalog.served.encoders().items()]
        return Response(orjson.dumps({"object": "list", "data": described}), media_type=JSON)

    def _find(self, model: str) -> TextEncoder:
        encoders = self._catalog.served.encoders()
        if model in encoders:
            return encoders[model]
        for corpus, retriever in self._settings.served_pairs:
            self._catalog.find(corpus, retriever)  # raises ``NotReady`` until all are open
        raise unknown_name_error("model", model, encoders)

    def _check(self, texts: Sequence[str], body: EmbeddingBody, encoder: TextEncoder) -> None:
        """Raise ``InvalidRequest`` if a text is blank or too long, or if the encoder has another dimension."""
        longest = max(map(len, texts))
        if longest > self._settings.limits.max_query_characters:
            raise InvalidRequest(f"input: a text has {longest:,} characters, {self._settings.limits.max_query_characters:,} are allowed")
        if blank := [position for position, text in enumerate(texts) if not text.strip()]:
            raise InvalidRequest(f"input.{blank[0]} is a blank text: leave it out, because its vector would mean nothing")
        is_shorter = encoder.spec.truncate_dim is not None and (body.dimensions or 0) < encoder.dim
        if body.dimensions not in (None, encoder.dim) and not is_shorter:
            raise InvalidRequest(f"dimensions: '{body.model}' has vectors of {encoder.dim} components, not of {body.dimensions}")


def _truncate(vectors: Vectors, dim: int) -> Vectors:
    """Return the first components of vectors, scaled to length 1 again if the vectors have this length."""
    truncated = vectors[:, :dim]
    if dim == vectors.shape[1] or not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3):
        return truncated
    return np.asarray(truncated / np.linalg.norm(truncated, axis=1, keepdims=True), dtype=np.float32)


def _to_json(body: EmbeddingBody, vectors: Vectors, n_tokens: int) -> bytes:
    rows = _truncate(vectors, body.dimensions or vectors.shape[1]).astype("<f4", copy=False)
    as_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": base64.b64encode(row.tobytes()).decode() if as_text else row}
        for index, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return orjson.dumps({"object": "list", "data": data, "model": body.model, "usage": usage}, option=orjson.OPT_SERIALIZE_NUMPY)
