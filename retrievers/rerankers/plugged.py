"""Rerankers by the user's own code: plug-ins, whose scores are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, running
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Scores
from wikidx.retrievers.base import Reranker


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnReranker:
    """A plug-in: a reranker by the user's own code.

    Attributes:
        name: the reranker's name.
        open: device, such as "cpu" or "cuda:0" -> the reranker.
    """

    plugin_kind: ClassVar[str] = "reranker"

    name: str
    open: Callable[[str], Reranker]


class PluggedReranker:
    """A reranker by the user's own code, whose scores are checked; its methods raise ``InputError`` if the code fails."""

    def __init__(self, plugged: PlugIn, device: str) -> None:
        self._plugged, own = plugged, plugged.instance_of(OwnReranker, "a reranker is a wikidx.OwnReranker")
        with running(plugged, f"when it is opened on {device}"):
            self._reranker = own.open(device)

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return a float32 score for each pair ``(queries[i], passages[i])``, shape (n,)."""
        place = f"at {len(queries)} pairs, from the query {queries[0]!r:.60} on" if queries else "without pairs"
        with running(self._plugged, place):
            scores = np.asarray(self._reranker.score(queries, passages), dtype=np.float32)
        if scores.shape != (len(queries),) or not np.isfinite(scores).all():
            raise InputError(
                f"{self._plugged.reference} returns an array of {scores.shape}, or numbers that are not finite, {place}: "
                "one finite score is needed for each pair"
            )
        return scores
