"""Comparison of texts by the encoders of ``indexer``, opened when a method first asks for one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain
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
        self._kept: dict[tuple[str, tuple[str, ...]], NDArray[np.float64]] = {}  # the most recently used last

    def __call__(self, pairs: Sequence[tuple[str, tuple[str, ...]]], encoder: str) -> list[tuple[float, ...]]:
        """Return for each text with others its cosine with each of them, all encoded as queries; 0 for a vector of zeros.

        Raises:
            IdxError: there is no such encoder, or it cannot be opened.
        """
        lists = dict.fromkeys(others for _, others in pairs if others)
        new = [others for others in lists if (encoder, others) not in self._kept]
        texts = list(dict.fromkeys(chain((text for text, _ in pairs), *new)))
        vectors = dict(zip(texts, self._encode(texts, encoder), strict=True))
        matrices = {others: np.stack([vectors[text] for text in others]) for others in new}
        matrices |= {others: self._kept.pop((encoder, others)) for others in lists if others not in matrices}
        self._kept.update(((encoder, others), matrix) for others, matrix in matrices.items())
        for oldest in list(self._kept)[:-_KEPT]:
            del self._kept[oldest]
        return [tuple((matrices[others] @ vectors[text]).tolist()) if others else () for text, others in pairs]

    def _encode(self, texts: list[str], encoder: str) -> NDArray[np.float64]:
        """Return vectors of length 1, shape (len(texts), dim)."""
        vectors: NDArray[np.float64] = self._open(encoder).encode_queries(texts).astype(np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return vectors

    def _open_encoder(self, name: str) -> EncodesTexts:
        from wikidx.base.machine.devices import encoder_device
        from wikidx.indexer.encoders.transformer import open_encoder
        from wikidx.indexer.naming import encoder_spec

        return open_encoder(encoder_spec(name), encoder_device(self._device))
