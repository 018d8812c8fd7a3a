"""Computation of vectors from token ids: forward pass, pooling, dense layers, truncation and normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import ArtifactMismatch, require_packages
from wikidx.base.machine.devices import resolve_device
from wikidx.indexer.base import Vectors
from wikidx.indexer.networks.checkpoints import CONFIG, WEIGHTS, checksum, read_json_object, weights_bytes
from wikidx.indexer.networks.dense import apply_dense, load_dense
from wikidx.indexer.networks.loading import encoder_class, load_network, strip_heads
from wikidx.indexer.networks.network import Batch, Network
from wikidx.indexer.networks.network_size import Dtype
from wikidx.indexer.networks.pooling import pool, split_modes

from .spec import EncoderSpec, Side, Tokens

if TYPE_CHECKING:
    import torch


LARGE = 0.5e9  # number of weights from which a GPU computes with 16 bits by default


class Model(Network):
    """The network of one side of an encoder on a device.

    Args:
        spec: the encoder.
        side: query or passage.
        device: "auto" (the first GPU, else the CPU) or a device that torch knows.
        dtype: precision of the forward pass, independent of the checkpoint's; pooling and later steps are in float32. None: float32, or
            bfloat16 for more than half a billion weights on a GPU.

    Attributes:
        dim: components of a vector.
        dtype: precision of the forward pass.

    Raises:
        MissingExtraError: torch is not installed.
        InputError: the device does not exist.
        IdxError: the device has too little memory, or fails.
        ArtifactMismatch: the checkpoint's weights do not match its network or the encoder.
        ArtifactCorrupt: the checkpoint's files cannot be read.
        DownloadError: see ``checkpoints.locate``.
    """

    dim: int

    def __init__(self, spec: EncoderSpec, side: Side, device: str = "cpu", dtype: Dtype | None = "float32") -> None:
        require_packages(f"the encoder '{spec.name}'", "dense", "torch", "transformers")
        device, folder = resolve_device(device), spec.folder(side)
        _check_checksum(spec, folder)
        self.dtype: Dtype = dtype or default_dtype(folder, spec.name, on_gpu=device.startswith("cuda"))
        named = spec.query_class if side == "query" else spec.passage_class
        model_class = named or encoder_class(read_json_object(folder / CONFIG, spec.name))
        module = strip_heads(load_network(model_class, folder, spec.name, self.dtype, trusts_code=spec.trusts_code), folder)
        hidden = int(module.config.hidden_size)
        layers, dim = load_dense([folder / name for name in spec.dense], hidden * len(split_modes(spec.pooling)), spec.name)
        sides: tuple[Side, ...] = ("query", "passage")  # sides with the same checkpoint share a model
        max_tokens = max(spec.max_tokens(other) for other in sides if spec.checkpoint(other) == spec.checkpoint(side))
        super().__init__(module, device, f"the encoder '{spec.name}'", max_tokens)
        self._spec, self._layers = spec, self.place(layers)
        self.dim = min(dim, spec.truncate_dim or dim)

    def encode(self, tokens: Tokens, numbers: NDArray[np.int64] | None = None) -> Vectors:
        """Return float32 vectors, shape (n, dim), of the texts numbered ``numbers`` (None: all), as one batch."""
        if not (len(tokens.ends) if numbers is None else len(numbers)):
            return np.empty((0, self.dim), dtype=np.float32)
        vectors: Vectors = self.forward(self.pad_tokens(tokens, numbers)).cpu().numpy()
        return vectors

    def pad_tokens(self, tokens: Tokens, numbers: NDArray[np.int64] | None = None) -> Batch:
        """Return the texts numbered ``numbers`` (None: all), at least one, as a batch. Another thread may run ``forward`` meanwhile."""
        return self.pad(*tokens.split(numbers))._replace(n_unpooled=tokens.n_unpooled)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return float32 vectors, shape (n, dim), on the device; on a GPU asynchronously."""
        import torch
        from torch.nn import functional

        with torch.inference_mode():
            inputs = self.inputs(batch)
            mask = inputs.get("attention_mask")
            column = torch.arange(batch.ids.shape[1], device=self.device)
            last = column[-1:] if mask is None else mask.sum(dim=1, keepdim=True) - 1  # column of each text's last token
            if self._spec.extra_sep_position is not None:
                positions = torch.where(column == last, self._spec.extra_sep_position, column)
                inputs["position_ids"] = positions.expand(batch.ids.shape)
            hidden: torch.Tensor = self.module(**inputs).last_hidden_state  # (n, tokens, hidden)
            if batch.n_unpooled:
                is_after = column >= last.clamp(max=batch.n_unpooled)
                mask = is_after.expand(batch.ids.shape) if mask is None else is_after & mask
            vectors = apply_dense(self._layers, pool(hidden, mask, self._spec.pooling))[:, : self.dim]
            return functional.normalize(vectors, dim=1) if self._spec.normalize else vectors


def default_dtype(folder: Path, name: str, *, on_gpu: bool) -> Dtype:
    """Return the precision in which a checkpoint encodes queries by default, by the size of its files."""
    config = read_json_object(folder / CONFIG, name)
    weight_bytes = 2 if str(config.get("dtype") or config.get("torch_dtype")).endswith("float16") else 4
    return "bfloat16" if on_gpu and weights_bytes(folder, name) / weight_bytes > LARGE else "float32"


def _check_checksum(spec: EncoderSpec, folder: Path) -> None:
    path = folder / WEIGHTS[0]
    if spec.weights_sha256 is not None and (actual := checksum(path)) != spec.weights_sha256:
        raise ArtifactMismatch(f"{path} is not the checkpoint of '{spec.name}': sha256 {actual}, expected {spec.weights_sha256}")
