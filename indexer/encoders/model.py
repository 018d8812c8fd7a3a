"""Computation of vectors from token ids: forward pass, pooling, dense layers, truncation and normalisation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import ArtifactMismatch, MissingExtraError
from wikidx.base.machine.devices import resolve_device
from wikidx.base.machine.failures import device_errors
from wikidx.indexer.base import Vectors
from wikidx.indexer.networks.checkpoints import CONFIG, WEIGHTS, checksum, read_json_object, weights_bytes
from wikidx.indexer.networks.dense import apply_dense, load_dense
from wikidx.indexer.networks.loading import encoder_class, load_network, strip_heads
from wikidx.indexer.networks.network_size import Dtype
from wikidx.indexer.networks.pooling import pool, split_modes

from .spec import EncoderSpec, Side, Tokens

if TYPE_CHECKING:
    import torch


LARGE = 0.5e9  # number of weights from which a GPU computes with 16 bits by default
_ALIGNED = 8  # alignment of the mask's rows, in elements
# oneDNN, torch's matrix library on CPUs, caches a primitive of about 1 MB for each shape of a batch. Its default of up to 1,024
# primitives fills a server's memory over hours. Encoding is as fast with this small cache.
_ONEDNN_CACHE = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")


class Batch(NamedTuple):
    """Tokens of several texts in host memory, padded to the longest or slightly more. The memory is pinned if the model is on a GPU.

    Attributes:
        ids: int32, (n, tokens).
        types: int32, (n, tokens); None: all 0.
        lengths: int64, (n,); None: all equal, so that no mask is needed.
        n_unpooled: tokens at the beginning of each text that pooling leaves out.
    """

    ids: torch.Tensor
    types: torch.Tensor | None
    lengths: torch.Tensor | None
    n_unpooled: int = 0


class Model:
    """The weights of one side of an encoder on a device.

    Args:
        spec: the encoder.
        side: query or passage.
        device: "auto" (the first GPU, else the CPU) or a device that torch knows.
        dtype: precision of the forward pass, independent of the checkpoint's; pooling and later steps are in float32. None: float32, or
            bfloat16 for more than half a billion weights on a GPU.

    Attributes:
        dim: components of a vector.
        device: torch's device.
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
        try:
            import torch
            import transformers  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"the encoder '{spec.name}'", "dense") from error
        os.environ.setdefault(*_ONEDNN_CACHE)  # torch reads this at its first matrix product
        self._spec, folder = spec, spec.folder(side)
        sides: tuple[Side, ...] = ("query", "passage")  # sides with the same checkpoint share a model
        self._max_tokens = max(spec.max_tokens(other) for other in sides if spec.checkpoint(other) == spec.checkpoint(side))
        self.device = torch.device(resolve_device(device))
        _check_checksum(spec, folder)
        self.dtype: Dtype = dtype or default_dtype(folder, spec.name, on_gpu=self.device.type == "cuda")
        model_class = spec.model_class(side) or encoder_class(read_json_object(folder / CONFIG, spec.name))
        network = strip_heads(load_network(model_class, folder, spec.name, self.dtype, trusts_code=spec.trusts_code), folder)
        hidden, self._padding = int(network.config.hidden_size), int(network.config.pad_token_id or 0)
        layers, dim = load_dense([folder / name for name in spec.dense], hidden * len(split_modes(spec.pooling)), spec.name)
        self.dim = min(dim, spec.truncate_dim or dim)
        with device_errors(str(self.device), f"the weights of '{spec.name}'", "name another one with --device, or end what else uses it"):
            self._network = network.to(self.device)
            self._layers = layers.to(self.device)

    def encode(self, tokens: Tokens, numbers: NDArray[np.int64] | None = None) -> Vectors:
        """Return float32 vectors, shape (n, dim), of the texts numbered ``numbers`` (None: all), as one batch."""
        if not (len(tokens.ends) if numbers is None else len(numbers)):
            return np.empty((0, self.dim), dtype=np.float32)
        vectors: Vectors = self.forward(self.pad(tokens, numbers)).cpu().numpy()
        return vectors

    def pad(self, tokens: Tokens, numbers: NDArray[np.int64] | None = None) -> Batch:
        """Return the texts numbered ``numbers`` (None: all), at least one, as a batch. Another thread may run ``forward`` meanwhile."""
        import torch

        all_lengths = tokens.lengths()
        ends, lengths = (tokens.ends, all_lengths) if numbers is None else (tokens.ends[numbers], all_lengths[numbers])
        column = np.arange(self._width(lengths))
        is_token = column < lengths[:, None]
        positions = ((ends - lengths)[:, None] + column)[is_token]

        def fill(flat: NDArray[np.int32] | NDArray[np.uint8], padding: int = 0) -> torch.Tensor:
            rows = np.full(is_token.shape, padding, dtype=np.int32)
            rows[is_token] = flat[positions]
            return self._pin(torch.from_numpy(rows))

        types = None if tokens.types is None else fill(tokens.types)
        padded = None if is_token.all() else self._pin(torch.from_numpy(lengths))
        return Batch(fill(tokens.ids, self._padding), types, padded, tokens.n_unpooled)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return float32 vectors, shape (n, dim), on the device; on a GPU asynchronously."""
        import torch
        from torch.nn import functional

        with torch.inference_mode():
            ids = batch.ids.to(self.device, non_blocking=True)
            types, lengths = (None if tensor is None else tensor.to(self.device, non_blocking=True) for tensor in batch[1:3])
            column = torch.arange(ids.shape[1], device=self.device)
            mask = None if lengths is None else column < lengths[:, None]
            hidden = self._hidden_states(ids, types, self._positions(column, lengths, ids), mask)  # (n, tokens, hidden)
            is_pooled = mask
            if batch.n_unpooled:
                first = column.new_tensor(batch.n_unpooled).clamp(max=(ids.shape[1] if lengths is None else lengths[:, None]) - 1)
                is_pooled = (column >= first) & (column >= 0 if mask is None else mask)
            vectors = apply_dense(self._layers, self._pool(hidden, is_pooled))[:, : self.dim]
            return functional.normalize(vectors, dim=1) if self._spec.normalize else vectors

    def _hidden_states(
        self, ids: torch.Tensor, types: torch.Tensor | None, positions: torch.Tensor | None, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the last hidden states; None means the network's default types and positions, and no mask."""
        optional = {"token_type_ids": types, "position_ids": positions, "attention_mask": mask}
        arguments: dict[str, Any] = {name: tensor for name, tensor in optional.items() if tensor is not None}
        hidden: torch.Tensor = self._network(input_ids=ids, **arguments).last_hidden_state
        return hidden

    def _width(self, lengths: NDArray[np.int64]) -> int:
        """Return the width of a batch in tokens. On a GPU, a batch with a mask is wider: attention needs aligned rows of the mask."""
        longest = int(lengths.max())
        if self.device.type != "cuda" or lengths.min() == longest:
            return longest
        return max(longest, min(-(-longest // _ALIGNED) * _ALIGNED, self._max_tokens))

    def _pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def _positions(self, column: torch.Tensor, lengths: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor | None:
        """Return the tokens' positions, (n, tokens), or None if they are consecutive."""
        import torch

        last = self._spec.extra_sep_position
        if last is None:
            return None
        end = ids.shape[1] if lengths is None else lengths[:, None]
        return torch.where(column == end - 1, last, column).expand(ids.shape)

    def _pool(self, hidden: torch.Tensor, is_pooled: torch.Tensor | None) -> torch.Tensor:
        """Return one float32 vector per text; see ``pool``."""
        return pool(hidden, is_pooled, self._spec.pooling)


def default_dtype(folder: Path, name: str, *, on_gpu: bool) -> Dtype:
    """Return the precision in which a checkpoint encodes queries by default, by the size of its files."""
    config = read_json_object(folder / CONFIG, name)
    weight_bytes = 2 if str(config.get("dtype") or config.get("torch_dtype")).endswith("float16") else 4
    return "bfloat16" if on_gpu and weights_bytes(folder, name) / weight_bytes > LARGE else "float32"


def _check_checksum(spec: EncoderSpec, folder: Path) -> None:
    path = folder / WEIGHTS[0]
    if spec.weights_sha256 is not None and (actual := checksum(path)) != spec.weights_sha256:
        raise ArtifactMismatch(f"{path} is not the checkpoint of '{spec.name}': sha256 {actual}, expected {spec.weights_sha256}")
