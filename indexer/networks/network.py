"""A network on a device: weights, batches that are padded for it, and messages for a device that fails."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wikidx.base.machine.failures import device_errors

if TYPE_CHECKING:
    import torch

    Module = TypeVar("Module", bound=torch.nn.Module)

_ALIGNED = 8  # alignment of the mask's rows, in elements
_ADVICE = "end what else uses it, or name another one with --device"

Ids = Sequence[int] | NDArray[np.int32] | NDArray[np.uint8]


class Batch(NamedTuple):
    """Tokens of several texts in host memory, padded to the longest or slightly more. The memory is pinned if the network is on a GPU.

    Attributes:
        ids: int32, (n, tokens).
        types: int32, (n, tokens); None: all 0.
        mask: bool, (n, tokens): the tokens that others attend to; None: all, so that no mask is needed.
        n_unpooled: tokens at the beginning of each text that pooling leaves out.
    """

    ids: torch.Tensor
    types: torch.Tensor | None
    mask: torch.Tensor | None
    n_unpooled: int = 0


class Network:
    """A network on a device, ready for inference; thread-safe.

    Args:
        module: network from ``load_network``.
        device: the name of an existing torch device.
        name: the encoder or reranker, for messages.
        max_tokens: tokens of the longest text that the network takes; None: unlimited.
        pads_left: put padding before the tokens, so that all texts end in the last column; positions count tokens only.

    Attributes:
        module: the network.
        device: torch's device.
        max_tokens: tokens of the longest text.

    Raises:
        IdxError: the device has too little memory, or fails.
    """

    def __init__(self, module: Any, device: str, name: str, max_tokens: int | None, *, pads_left: bool = False) -> None:  # noqa: ANN401
        import torch

        self.device, self.max_tokens = torch.device(device), max_tokens
        self._name, self._pads_left, self._padding = name, pads_left, module.config.pad_token_id or 0
        # only networks with embeddings of types: GPT-2 takes types, and adds the embeddings of the tokens with these numbers
        takes_types = "token_type_ids" in inspect.signature(module.forward).parameters
        self._has_types = takes_types and getattr(module.config, "type_vocab_size", 0) > 1
        self.module: Any = self.place(module)

    def place(self, module: Module) -> Module:
        """Return the network, or layers after it, on the device; raises as ``Network`` does."""
        with device_errors(str(self.device), self._name, _ADVICE):
            return module.to(self.device)

    def pad(self, texts: Sequence[Ids], types: Sequence[Ids] | None = None, n_attended: NDArray[np.int64] | None = None) -> Batch:
        """Return texts, at least one, as a batch. Another thread may compute meanwhile.

        Args:
            texts: token ids of each text.
            types: token types of each text, for networks that know types; None: all 0.
            n_attended: first tokens of each text that others attend to; None: all.
        """
        lengths = np.array([len(ids) for ids in texts])
        column = np.arange(self._width(lengths))
        is_token = (column[::-1] if self._pads_left else column) < lengths[:, None]
        mask = is_token if n_attended is None else column < n_attended[:, None]
        filled_types = self._fill(types, is_token) if types is not None and self._has_types else None
        return Batch(self._fill(texts, is_token, self._padding), filled_types, None if mask.all() else self._to_tensor(mask))

    def inputs(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the network's arguments for a batch, by name, on the device; on a GPU asynchronously."""
        tensors = {"input_ids": batch.ids, "token_type_ids": batch.types, "attention_mask": batch.mask}
        placed = {name: tensor.to(self.device, non_blocking=True) for name, tensor in tensors.items() if tensor is not None}
        if self._pads_left and batch.mask is not None:
            placed["position_ids"] = (placed["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        return placed

    @contextlib.contextmanager
    def computing(self, task: str) -> Iterator[None]:
        """Compute without gradients inside the ``with`` block, and translate errors of the device; the task is for their message."""
        import torch

        with device_errors(str(self.device), f"{task} for {self._name}", _ADVICE), torch.inference_mode():
            yield

    def _width(self, lengths: NDArray[np.int64]) -> int:
        """Return the width of a batch in tokens. On a GPU, a batch with a mask is wider: attention needs aligned rows of the mask."""
        longest = int(lengths.max())
        if self.device.type != "cuda" or lengths.min() == longest:
            return longest
        aligned = -(-longest // _ALIGNED) * _ALIGNED
        return max(longest, min(aligned, self.max_tokens or aligned))

    def _fill(self, texts: Sequence[Ids], is_token: NDArray[np.bool_], padding: int = 0) -> torch.Tensor:
        rows = np.full(is_token.shape, padding, dtype=np.int32)
        rows[is_token] = np.concatenate(texts)
        return self._to_tensor(rows)

    def _to_tensor(self, array: NDArray[Any]) -> torch.Tensor:
        import torch

        tensor = torch.from_numpy(array)
        return tensor.pin_memory() if self.device.type == "cuda" else tensor
