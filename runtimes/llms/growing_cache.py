"""Keys and values in memory with room for the tokens to come, so that a step writes only those of the newest token.

transformers' own cache copies all keys and values at each step.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicLayer


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """Keys and values of a layer.

    Args:
        layer: the keys and values so far, which are copied.
        n_tokens: number of tokens there is room for.
    """

    def __init__(self, layer: DynamicLayer, n_tokens: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = layer.dtype, layer.device, True
        self._n_tokens = n_tokens
        self._fill(layer.keys, layer.values)

    def _fill(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._rooms = [each.new_empty(*each.shape[:-2], self._n_tokens, each.shape[-1]) for each in (keys, values)]
        self._write(0, keys, values)

    def _write(self, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        stop = start + keys.shape[-2]
        for room, new in zip(self._rooms, (keys, values), strict=True):
            room[..., start:stop, :] = new
        self.keys, self.values = (room[..., :stop, :] for room in self._rooms)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
        """Append keys and values of tokens; return those of all tokens."""
        self._write(self.keys.shape[-2], key_states, value_states)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows."""
        self._fill(self.keys[indices], self.values[indices])


def make_room(cache: Any, n_tokens: int) -> None:  # noqa: ANN401 - a cache of transformers, or None
    """Give the layers of a cache room for ``n_tokens`` tokens, one after the other. Only layers that would be copied are replaced."""
    layers: list[Any] = getattr(cache, "layers", [])
    for number, layer in enumerate(layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            layers[number] = GrowingLayer(layer, n_tokens)
