"""Pooling: one vector for each text from the vectors of its tokens, by the modes of sentence-transformers' ``Pooling``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wikidx.base.errors import InputError
from wikidx.base.registry import suggest

if TYPE_CHECKING:
    import torch

MODES = ("cls", "mean", "lasttoken", "max", "mean_sqrt_len_tokens", "weightedmean")  # weights: the positions, counted from 1
_ALIASES = {"last": "lasttoken"}


def split_modes(pooling: str) -> list[str]:
    """Return the modes in a name such as "mean" or "cls+mean".

    Raises:
        InputError: a mode is unknown.
    """
    modes = [_ALIASES.get(mode, mode) for mode in pooling.split("+")]
    for mode in modes:
        if mode not in MODES:
            known = [*MODES, *_ALIASES]
            raise InputError(f"pooling '{mode}': {suggest(mode, known)}use {', '.join(known)}, or several joined by '+'")
    return modes


def pool(hidden: torch.Tensor, is_pooled: torch.Tensor | None, pooling: str) -> torch.Tensor:
    """Return one float32 vector per text, (n, modes x components).

    Args:
        hidden: vectors of the tokens, (n, tokens, components).
        is_pooled: tokens to pool, bool, (n, tokens), at least one of each text; None: all.
        pooling: see ``split_modes``.
    """
    import torch

    if is_pooled is None and pooling in ("cls", "mean"):
        return hidden[:, 0].float() if pooling == "cls" else hidden.float().mean(dim=1)
    if is_pooled is None:
        is_pooled = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
    return torch.cat([_pool(hidden, is_pooled, mode) for mode in split_modes(pooling)], dim=1)


def _pool(hidden: torch.Tensor, is_pooled: torch.Tensor, mode: str) -> torch.Tensor:
    """Return one float32 vector per text by one mode, (n, components)."""
    import torch

    n_tokens = is_pooled.shape[1]
    if mode in ("cls", "lasttoken"):
        positions = is_pooled.int().argmax(dim=1) if mode == "cls" else n_tokens - 1 - is_pooled.flip(1).int().argmax(dim=1)
        return hidden.take_along_dim(positions[:, None, None], dim=1)[:, 0].float()
    vectors, weights, is_left_out = hidden.float(), is_pooled, ~is_pooled[:, :, None]
    if mode == "max":
        return vectors.masked_fill(is_left_out, float("-inf")).amax(dim=1)
    if mode == "weightedmean":
        weights = is_pooled * torch.arange(1, n_tokens + 1, device=is_pooled.device)
        vectors = vectors * weights[:, :, None]
    total = weights.sum(dim=1, keepdim=True)
    return vectors.masked_fill(is_left_out, 0).sum(dim=1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)
