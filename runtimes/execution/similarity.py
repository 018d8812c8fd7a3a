"""Comparison of texts by the encoders of ``indexer``, opened when a method first asks for one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from wikidx.indexer.base import EncodesTexts

_KEPT = 8  # lists of texts whose vectors are kept: a method compares many texts with one list, or two texts once


class EncoderSimilarity:
    """A service of ``Compare``.

    Args:
        device: device of the encoders.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._open = functools.cache(self._open_encoder)
        self._vectors = functools.lru_cache(_KEPT)(self._encode)

    def __call__(self, text: str, others: Sequence[str], encoder: str) -> tuple[float, ...]:
        """Return the cosine of a text and each other one, all encoded as queries; 0 for a vector of zeros.

        Raises:
            IdxError: there is no such encoder, or it cannot be opened.
        """
        (vector,) = self._encode((text,), encoder)
        return tuple((self._vectors(tuple(others), encoder) @ vector).tolist()) if others else ()

    def _encode(self, texts: tuple[str, ...], encoder: str) -> NDArray[np.float64]:
        """Return vectors of length 1, shape (len(texts), dim)."""
        vectors: NDArray[np.float64] = self._open(encoder).encode_queries(texts).astype(np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return vectors

    def _open_encoder(self, name: str) -> EncodesTexts:
        from wikidx.base.machine.devices import encoder_device
        from wikidx.indexer.encoders.transformer import open_encoder
        from wikidx.indexer.naming import encoder_spec

        return open_encoder(encoder_spec(name), encoder_device(self._device))
