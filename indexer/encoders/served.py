"""Encoders that a server computes: requests to OpenAI's ``/v1/embeddings``, as OpenAI, TEI, vLLM, Ollama, Infinity and idx have it.

Texts are sent with the recipe's prompts. The server may truncate them, or add prompts of its own; its vectors are taken as they are, unless
the recipe normalises them. A server of idx is also told whether texts are queries or passages.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.failures import first_line
from wikidx.base.machine.workers import map_ahead
from wikidx.base.net.endpoint import Endpoint, EndpointError
from wikidx.base.net.request_threads import RequestThreads
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.networks.batching import batches
from wikidx.indexer.networks.checkpoints import ServedModel

from .recipes import Recipe, RecipeOptions
from .spec import NO_NETWORK, EncoderSpec, Side

N_REQUESTS = 8  # at a time
BATCH_TOKENS = 8_192  # of a request, estimated

_BATCH_TEXTS = 32  # of a request: the maximum of TEI by default
_BYTES_PER_TOKEN = 3  # fewer than real texts have, so that the estimate is rather too large
_TEXTS_REFUSED = (400, 413, 422)  # statuses for a text that is too long or a batch that is too large
_WITHOUT_DIM = ": leave --dim out, or give one that the model has"
_ADDRESS = "IDX_EMBEDDINGS_URL"  # variable of the environment with another address of the served models


def served_recipe(model: ServedModel, source: str, choices: RecipeOptions) -> Recipe:
    """Return the settings of a served encoder; the server is asked for the vector of one text, whose dimension is recorded.

    Raises:
        InputError: an option is for checkpoints only.
        EndpointError, IdxError: the server does not answer, or its answer cannot be used.
    """
    for name in ("pooling", "max_tokens", "trust_remote_code"):
        if getattr(choices, name):
            raise InputError(f"--{name.replace('_', '-')} is for a checkpoint, not for {source}: its server has its own settings")
    settings: dict[str, Any] = {
        "checkpoint": str(model),
        "url": model.url,
        "names_sides": _names_sides(model),
        "normalize": bool(choices.normalize),
        "query_prompt": choices.query_prompt or "",
        "passage_prompt": choices.passage_prompt or "",
        "truncate_dim": choices.dim,
        "dim": choices.dim or 0,
    }
    with closing(ServedEncoder(spec_of_served(source, settings))) as encoder:
        return settings | {"dim": encoder.encode_queries(["dimension"]).shape[1]}


def spec_of_served(name: str, recipe: Recipe) -> EncoderSpec:
    """Return the encoder of a recipe from ``served_recipe``; raises ``KeyError`` or ``TypeError`` if settings are missing or unknown."""
    settings: dict[str, Any] = {**recipe, **NO_NETWORK}
    model, url, names_sides = (settings.pop(key) for key in ("checkpoint", "url", "names_sides"))
    served = ServedModel(model=model.removeprefix("openai:"), url=url, names_sides=names_sides)
    return EncoderSpec(name=name, query_checkpoint=served, passage_checkpoint=served, **settings)


def _names_sides(model: ServedModel) -> bool:
    """Return whether the server tells queries from passages by the field ``input_type``, as a server of idx does."""
    try:
        listed = Endpoint(str(model), model.url, retries=0).get("/models")["data"]
        return any(entry["id"] == model.model and entry["owned_by"] == "idx" for entry in listed)
    except (EndpointError, KeyError, TypeError):  # no list of models, or of another form
        return False


class ServedEncoder:
    """Encoder that asks a server; thread-safe, to be closed.

    Args:
        spec: an encoder whose checkpoint is a ``ServedModel``. Its dimension is 0 if it is unknown.
        batch_tokens: maximum number of tokens of a request, estimated by the length of the texts.
        timeout_s: maximum time until an answer is complete, in seconds, for each attempt.
        retries: maximum number of retries of a request.

    Attributes:
        spec: the encoder.
        dim: components of a vector.

    Raises:
        InputError: the server's address or the API key is invalid.
    """

    dim: int

    def __init__(self, spec: EncoderSpec, batch_tokens: int = BATCH_TOKENS, *, timeout_s: float = 120.0, retries: int = 5) -> None:
        model = spec.passage_checkpoint
        assert isinstance(model, ServedModel)
        self.dim = spec.dim
        self.spec, self._model, self._batch_tokens = spec, model, batch_tokens
        self._endpoint = Endpoint(f"'{model.model}'", os.environ.get(_ADDRESS) or model.url, timeout_s=timeout_s, retries=retries)
        self._pool = RequestThreads(N_REQUESTS, "embeddings")
        self._max_texts, self._encoding = _BATCH_TEXTS, {"encoding_format": "base64"}  # as far as is known

    def close(self) -> None:
        """Close the connections; requests that have not begun are cancelled."""
        self._pool.shutdown()
        self._endpoint.close()

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim); raises as ``encode_texts`` does."""
        return self.encode_texts("query", queries)[0]

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim); raises as ``encode_texts`` does."""
        texts = [str(self.spec.passage_text(passage)) for passage in passages]
        return self._encode("passage", texts, [f"passage '{passage.id}'" for passage in passages])

    def encode_texts(self, side: Side, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.int64]]:
        """Return the vectors of texts as queries or as passages, (len(texts), dim), and the estimated number of tokens of each.

        Raises:
            EndpointError: the server does not answer, or refuses a text.
            IdxError: the answer cannot be used.
        """
        return self._encode(side, texts, [f"{side} {text[:60]!r}" for text in texts]), estimate_tokens(texts)

    def _encode(self, side: Side, texts: Sequence[str], names: Sequence[str]) -> Vectors:
        """Encode texts, with their names for messages, by several requests at a time."""
        prompt = self.spec.prompt(side)
        sent = [(prompt + text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in texts]
        numbers = list(batches(estimate_tokens(sent), self._batch_tokens, _BATCH_TEXTS))
        if not numbers:
            return np.empty((0, self.dim), dtype=np.float32)

        def submit(batch: NDArray[np.int64]) -> Future[Vectors]:
            return self._pool.submit(self._ask, side, [sent[n] for n in batch], [names[n] for n in batch])

        gathered = np.concatenate(list(map_ahead(submit, numbers, N_REQUESTS)))
        vectors = gathered[np.argsort(np.concatenate(numbers))]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if self.spec.normalize else vectors

    def _ask(self, side: Side, texts: list[str], names: list[str]) -> Vectors:
        """Return the vectors of a batch. A refused batch is halved, down to the text that is refused."""
        if len(texts) <= self._max_texts:
            encoding = self._encoding
            try:
                return self._read(self._endpoint.post("/embeddings", self._body(side, texts) | encoding), names)
            except EndpointError as error:
                if encoding and "encoding_format" in str(error):
                    self._encoding = {}
                    return self._ask(side, texts, names)
                if self.spec.truncate_dim and re.search("(?i)matryoshka|dimension", str(error)):
                    raise EndpointError(f"{error}{_WITHOUT_DIM}", status=error.status, is_final=True) from error
                if error.status not in _TEXTS_REFUSED and not (error.status == 500 and error.is_final):  # the latter is llama.cpp's
                    raise
                if len(texts) == 1:
                    advice = "if it is too long, let the server truncate texts, or build from shorter passages"
                    raise EndpointError(f"{names[0]}, of {len(texts[0]):,} characters, is refused: {error}: {advice}") from error
                if error.status == 413:
                    self._max_texts = min(self._max_texts, len(texts) // 2)
        middle = len(texts) // 2
        return np.concatenate([self._ask(side, texts[:middle], names[:middle]), self._ask(side, texts[middle:], names[middle:])])

    def _body(self, side: Side, texts: list[str]) -> dict[str, Any]:
        """Return a request but for the encoding: base64, as OpenAI's own client asks for, until a server refuses the field."""
        body = {"model": self._model.model, "input": texts}
        dimensions = {"dimensions": self.spec.truncate_dim} if self.spec.truncate_dim else {}
        return body | dimensions | ({"input_type": side} if self._model.names_sides else {})

    def _read(self, reply: Any, names: Sequence[str]) -> Vectors:  # noqa: ANN401 - any JSON
        """Return the vectors of a reply in the order of the texts.

        Raises:
            IdxError: the reply has other rows, other dimensions, numbers that are not finite, or vectors of zeros.
        """
        try:
            rows = {row["index"]: row["embedding"] for row in reply["data"]}
            indices = sorted(row["index"] for row in reply["data"])
            vectors = [_to_vector(rows[index]) for index in indices]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise IdxError(f"'{self._model.model}' answers something else than embeddings ({first_line(error)}): {reply!r:.80}") from error
        if indices != list(range(len(names))):
            raise IdxError(f"'{self._model.model}' answers {len(names):,} texts with the indices {str(indices)[1:-1]:.80}: none is used")
        expected, advice = self.dim or len(vectors[0]), _WITHOUT_DIM if self.spec.truncate_dim else ""
        if differing := sorted({len(vector) for vector in vectors} - {expected}):
            raise IdxError(f"'{self._model.model}' answers vectors of {differing[0]:,} components instead of {expected:,}{advice}")
        usable = [bool(np.isfinite(vector).all() and vector.any()) for vector in vectors]
        if not all(usable):
            raise IdxError(f"'{self._model.model}' answers {names[usable.index(False)]} by a vector of zeros, or one that is not finite")
        return np.stack(vectors)


def estimate_tokens(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return an estimate of the number of tokens of each text, at least 1, rather too large than too small."""
    return np.array([1 + len(text.encode(errors="replace")) // _BYTES_PER_TOKEN for text in texts], dtype=np.int64)


def _to_vector(embedding: object) -> Vectors:
    """Return a vector from a list of numbers, or from base64 of little-endian float32; raises ``TypeError`` or ``ValueError``."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    if not isinstance(embedding, list):
        raise TypeError("an embedding is no list")
    return np.array(embedding, dtype=np.float32).reshape(len(embedding))
