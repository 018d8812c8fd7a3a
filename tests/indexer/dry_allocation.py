"""Peak memory of torch's operations by their allocations: each storage counts from the operation that makes it until it is released."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class DryAllocation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count of the bytes that operations inside the ``with`` block allocate, beyond those of ``existing`` tensors.

    Attributes:
        peak: largest number of bytes at a time.
    """

    def __init__(self, existing: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held = {tensor.untyped_storage()._cdata: 0 for tensor in existing}
        self._now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor) and (storage := tensor.untyped_storage())._cdata not in self._held:
                self._held[storage._cdata] = storage.nbytes()
                self._now += storage.nbytes()
                weakref.finalize(storage, self._release, storage._cdata)
        self.peak = max(self.peak, self._now)
        return result

    def _release(self, storage: int) -> None:
        self._now -= self._held.pop(storage)
