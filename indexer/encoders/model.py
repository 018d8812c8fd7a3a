"""Token ids -> vectors: one forward pass, pooling, projection, normalisation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpora.errors import InputError, MissingExtraError
from indexer.base import Vectors, check_device

from .failures import device_errors, first_line
from .spec import Dtype, EncoderSpec, Side, Tokens

if TYPE_CHECKING:
    import torch


_ALIGNED = 8  # numbers of a row of the mask
# oneDNN, which multiplies for torch on a CPU, keeps what it made for each shape of a batch, about a MB a piece: by default 1,024 pieces,
# which fill the memory of a server for hours. With these few, or none, encoding is as fast.
_KEPT_PIECES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")


class Batch(NamedTuple):
    """Some texts' tokens padded to the longest of them or a little more, in the host's memory, pinned if the model is on a GPU.

    Attributes:
        ids: int32, (n, tokens).
        types: int32, (n, tokens); None: all 0.
        lengths: int64, (n,); None: all are equally long, so that nothing has to be masked.
    """

    ids: torch.Tensor
    types: torch.Tensor | None
    lengths: torch.Tensor | None


class Model:
    """The weights of one side of an encoder on a device.

    Args:
        spec: the encoder.
        side: which side.
        device: "auto" (the first GPU, else the CPU) or a device that torch knows.
        dtype: of the forward pass, whatever the checkpoint is stored in; pooling and what follows are in float32.

    Attributes:
        dim: components of a vector.

    Raises:
        MissingExtraError: torch is not installed.
        InputError: the device is not there.
        IdxError: it has too little memory, or fails.
        ArtifactMismatch, ArtifactDamaged, DownloadError: see ``weights.load_network``.
    """

    dim: int

    def __init__(self, spec: EncoderSpec, side: Side, device: str = "cpu", dtype: Dtype = "float32") -> None:
        try:
            import torch

            from .weights import load_network, load_projection
        except ImportError as error:
            raise MissingExtraError(f"the encoder '{spec.name}'", "dense") from error
        os.environ.setdefault(*_KEPT_PIECES)  # read when torch multiplies for the first time
        self._spec, self._max_tokens = spec, spec.max_tokens(side)
        self._device = torch.device(chosen_device(device))
        network, projection = load_network(spec, side), load_projection(spec, side)
        self.dim = network.tokens.embedding_dim if projection is None else projection.shape[0]
        with device_errors(device, f"the weights of '{spec.name}'", "name another one with --device, or end what else uses it"):
            self._network = network.to(self._device, getattr(torch, dtype)).eval()
            self._projection = None if projection is None else projection.to(self._device)

    def encode(self, tokens: Tokens, which: NDArray[np.int64] | None = None) -> Vectors:
        """Return float32 vectors, shape (n, dim), of the texts numbered ``which`` (None: all), as one batch."""
        if not (len(tokens.ends) if which is None else len(which)):
            return np.empty((0, self.dim), dtype=np.float32)
        vectors: Vectors = self.forward(self.pad(tokens, which)).cpu().numpy()
        return vectors

    def pad(self, tokens: Tokens, which: NDArray[np.int64] | None = None) -> Batch:
        """Return the texts numbered ``which`` (None: all), at least one, as a batch. Touches no device: can run beside ``forward``."""
        import torch

        all_lengths = tokens.lengths()
        ends, lengths = (tokens.ends, all_lengths) if which is None else (tokens.ends[which], all_lengths[which])
        column = np.arange(self._width(lengths))
        inside = column < lengths[:, None]
        places = ((ends - lengths)[:, None] + column)[inside]

        def padded(flat: NDArray[np.int32] | NDArray[np.uint8]) -> torch.Tensor:
            rows = np.zeros(inside.shape, dtype=np.int32)
            rows[inside] = flat[places]
            return self._pinned(torch.from_numpy(rows))

        types = None if tokens.types is None else padded(tokens.types)
        return Batch(padded(tokens.ids), types, None if inside.all() else self._pinned(torch.from_numpy(lengths)))

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return float32 vectors, shape (n, dim), on the device; on a GPU without waiting until they are computed."""
        import torch
        from torch.nn import functional

        with torch.inference_mode():
            ids = batch.ids.to(self._device, non_blocking=True)
            types, lengths = (None if part is None else part.to(self._device, non_blocking=True) for part in batch[1:])
            column = torch.arange(ids.shape[1], device=self._device)
            mask = None if lengths is None else column < lengths[:, None]
            hidden = self._network(ids, types, self._positions(column, lengths, ids), mask)  # (n, tokens, hidden)
            vectors = self._pooled(hidden, lengths, mask)
            if self._projection is not None:
                vectors = functional.linear(vectors, self._projection)
            return functional.normalize(vectors, dim=1) if self._spec.normalize else vectors

    def _width(self, lengths: NDArray[np.int64]) -> int:
        """Return how many tokens wide a batch is; a mask on a GPU is aligned for its attention, as far as the positions go."""
        longest = int(lengths.max())
        if self._device.type != "cuda" or lengths.min() == longest:
            return longest
        return max(longest, min(-(-longest // _ALIGNED) * _ALIGNED, self._max_tokens))

    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if self._device.type == "cuda" else tensor

    def _positions(self, column: torch.Tensor, lengths: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor | None:
        """Return the tokens' positions, (n, tokens), where they are not simply counted."""
        import torch

        last = self._spec.last_position
        if last is None:
            return None
        end = ids.shape[1] if lengths is None else lengths[:, None]
        return torch.where(column == end - 1, last, column).expand(ids.shape)

    def _pooled(self, hidden: torch.Tensor, lengths: torch.Tensor | None, mask: torch.Tensor | None) -> torch.Tensor:
        """Return one float32 vector a text, (n, hidden)."""
        if self._spec.pooling == "cls":
            return hidden[:, 0].float()
        if lengths is None or mask is None:
            return hidden.float().mean(dim=1)
        return hidden.float().masked_fill(~mask[:, :, None], 0).sum(dim=1) / lengths[:, None]


def chosen_device(device: str) -> str:
    """Return a device torch knows; "auto" is the first GPU, else the CPU.

    Raises:
        InputError: torch does not know the device, or it is not there.
    """
    import torch

    check_device(device)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device '{device}' cannot be used: {first_line(error)}") from error
    return device
