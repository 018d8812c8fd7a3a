"""Pooling: one vector for each text from the vectors of its tokens, by the modes of sentence-transformers' ``Pooling``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wikidx.corpora.errors import InputError
from wikidx.corpora.registry import suggest

if TYPE_CHECKING:
    import torch

    Mode = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


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
    return torch.cat([MODES[mode](hidden, is_pooled) for mode in split_modes(pooling)], dim=1)


def _first(hidden: torch.Tensor, is_pooled: torch.Tensor) -> torch.Tensor:
    return _at(hidden, is_pooled.int().argmax(dim=1))


def _last(hidden: torch.Tensor, is_pooled: torch.Tensor) -> torch.Tensor:
    return _at(hidden, is_pooled.shape[1] - 1 - is_pooled.flip(1).int().argmax(dim=1))


def _at(hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return hidden.take_along_dim(positions[:, None, None], dim=1)[:, 0].float()


def _max(hidden: torch.Tensor, is_pooled: torch.Tensor) -> torch.Tensor:
    return hidden.float().masked_fill(~is_pooled[:, :, None], float("-inf")).amax(dim=1)


def _sum(hidden: torch.Tensor, is_pooled: torch.Tensor) -> torch.Tensor:
    return hidden.float().masked_fill(~is_pooled[:, :, None], 0).sum(dim=1)


def _mean(hidden: torch.Tensor, is_pooled: torch.Tensor) -> torch.Tensor:
    return _sum(hidden, is_pooled) / is_pooled.sum(dim=1, keepdim=True)


def _mean_sqrt(hidden: torch.Tensor, is_pooled: torch.Tensor) -> torch.Tensor:
    return _sum(hidden, is_pooled) / is_pooled.sum(dim=1, keepdim=True).sqrt()


def _weighted_mean(hidden: torch.Tensor, is_pooled: torch.Tensor) -> torch.Tensor:
    """Return the mean with the positions, counted from 1, as weights."""
    import torch

    weights = is_pooled * torch.arange(1, is_pooled.shape[1] + 1, device=is_pooled.device)
    return _sum(hidden.float() * weights[:, :, None], is_pooled) / weights.sum(dim=1, keepdim=True)


MODES: dict[str, Mode] = {
    "cls": _first,
    "mean": _mean,
    "lasttoken": _last,
    "max": _max,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
}
_ALIASES = {"last": "lasttoken"}
