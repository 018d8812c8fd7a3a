"""``Tokenizer`` and ``Model`` as one ``Encoder``, for queries and a few passages; ``indexer.embedding.embed`` embeds whole corpora."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.base.machine.devices import may_use_gpus, resolve_device
from wikidx.base.machine.fit import Demand
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.networks.batching import batches
from wikidx.indexer.networks.checkpoints import Checkpoint
from wikidx.indexer.networks.network_size import Dtype, network_demand

from .model import Model, default_dtype
from .plugged import PluggedEncoder
from .served import ServedEncoder
from .spec import EncoderSpec, Side, Tokens
from .tokenizing import Tokenizer

_SERVER_TIMEOUT_S = 30.0
_BATCH = 32  # texts per forward pass on a CPU, where larger batches gain nothing
_GPU_BATCH_TOKENS = 16_384  # per forward pass on a GPU, padding included: as many queries as exact search takes at a time


class TransformerEncoder:
    """An encoder of queries and passages. DPR's second network is loaded on first use.

    Args:
        spec: the encoder.
        device: see ``Model``.
        dtype: see ``Model``.

    Attributes:
        spec: the encoder.
        dim: components of a vector.
        device: name of the device.
        dtype: precision of the forward pass.

    Raises:
        MissingExtraError, InputError, ArtifactMismatch, ArtifactCorrupt, DownloadError: see ``Tokenizer`` and ``Model``.
        IdxError: the device has too little memory, or fails; so do the methods.
    """

    dim: int

    def __init__(self, spec: EncoderSpec, device: str = "cpu", dtype: Dtype | None = None) -> None:
        self.spec, self.device, self.dtype = spec, device, dtype
        self._tokenizers: dict[Side, Tokenizer] = {}
        self._models: dict[Checkpoint, Model] = {}
        self._tokenizer("query")
        if may_use_gpus(device):  # resolved once, for both networks
            self.device = resolve_device(device, query_demand(spec, dtype))
        model = self._model("query")
        self.dim, self.device, self.dtype = model.dim, str(model.device), model.dtype

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim)."""
        return self._encode("query", self._tokenizer("query").queries(queries))

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim)."""
        return self._encode("passage", self._tokenizer("passage").passages(passages))

    def encode_texts(self, side: Side, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.int64]]:
        """Return the vectors of texts as queries or as passages without titles, (len(texts), dim), and the number of tokens of each."""
        tokenizer = self._tokenizer(side)
        tokens = tokenizer.queries(texts) if side == "query" else tokenizer.passages(Passage("", "", text) for text in texts)
        return self._encode(side, tokens), tokens.lengths()

    def _encode(self, side: Side, tokens: Tokens) -> Vectors:
        """Encode in batches of texts of similar length, to minimise padding."""
        model, lengths = self._model(side), tokens.lengths()
        vectors = np.empty((len(lengths), model.dim), dtype=np.float32)
        limits = (_GPU_BATCH_TOKENS,) if model.device.type == "cuda" else (sys.maxsize, _BATCH)
        with model.computing(f"{len(lengths):,} texts"):
            for numbers in batches(lengths, *limits):
                vectors[numbers] = model.encode(tokens, numbers)
        return vectors

    def _tokenizer(self, side: Side) -> Tokenizer:
        if side not in self._tokenizers:
            self._tokenizers[side] = Tokenizer(self.spec, side)
        return self._tokenizers[side]

    def _model(self, side: Side) -> Model:
        checkpoint = self.spec.checkpoint(side)
        if checkpoint not in self._models:
            self._models[checkpoint] = Model(self.spec, side, self.device, self.dtype)
        return self._models[checkpoint]


def query_demand(spec: EncoderSpec, dtype: Dtype | None = None) -> Demand | None:
    """Return the memory on a GPU of an encoder of queries; None if its network is not on this machine.

    Raises:
        MissingExtraError, DownloadError, ArtifactCorrupt: see ``TransformerEncoder``.
    """
    if not spec.has_network or spec.query_checkpoint is None:
        return None
    folder = spec.folder("query")
    computed = dtype or default_dtype(folder, spec.name, on_gpu=True)
    name, width = f"the encoder '{spec.name}'", spec.max_query_tokens
    return network_demand(folder, name, n_tokens=_GPU_BATCH_TOKENS, width=width, dtype=computed)


OpenEncoder = TransformerEncoder | ServedEncoder | PluggedEncoder


def open_encoder(spec: EncoderSpec, device: str = "cpu", dtype: Dtype | None = None) -> OpenEncoder:
    """Return the encoder of a spec for queries: its network on a device, its server, which is waited for briefly, or code.

    The precision of a server, or of a plug-in's code, is its own.

    Raises:
        IdxError: see ``TransformerEncoder``, ``ServedEncoder`` and ``PluggedEncoder``.
    """
    if spec.is_served:
        return ServedEncoder(spec, timeout_s=_SERVER_TIMEOUT_S, retries=1)
    return TransformerEncoder(spec, device, dtype) if spec.has_network else PluggedEncoder(spec, device)
