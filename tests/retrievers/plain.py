"""Merging and fusion over lists and dictionaries, by their definitions: the reference for the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wikidx.indexer.base import Hits
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.kernels import Lists

Pairs = list[tuple[int, float]]
"""A ranked list: rows and scores, which are float32 values."""


def hits(*lines: Pairs) -> Hits:
    """Return ranked lists as a search returns them, empty places filled."""
    depth = max(map(len, lines), default=0)
    rows = np.array([[row for row, _ in line] + [-1] * (depth - len(line)) for line in lines], dtype=np.int64)
    scores = np.array([[score for _, score in line] + [-np.inf] * (depth - len(line)) for line in lines], dtype=np.float32)
    return Hits(rows.reshape(len(lines), depth), scores.reshape(len(lines), depth))


def pairs(lists: Lists) -> list[Pairs]:
    """Return flat lists as lists of pairs."""
    bounds = zip(lists.starts.tolist(), lists.ends.tolist(), strict=True)
    return [list(zip(lists.rows[start:end].tolist(), lists.scores[start:end].tolist(), strict=True)) for start, end in bounds]


def best_first(values: dict[int, float]) -> Pairs:
    """Return rows and scores rounded to float32, best first, ties by ascending row."""
    with np.errstate(over="ignore"):
        rounded = [(row, float(np.float32(value)) + 0.0) for row, value in values.items()]
    return sorted(rounded, key=lambda pair: (-pair[1], pair[0]))


def found_by(retriever: Retriever, query: str, depth: int) -> Pairs:
    """Return what a retriever finds for one query."""
    rows, scores = (column[0].tolist() for column in retriever.retrieve([query], depth))
    return [(row, score) for row, score in zip(rows, scores, strict=True) if row >= 0]


def plain_merge(lists: Sequence[Pairs], rule: str, factors: Sequence[float] | None = None, constant: float = 60) -> Pairs:
    """Merge lists by a rule; each list's values are multiplied with its factor."""
    value_of: Callable[[int, float], float] = {
        "max": lambda rank, score: score,
        "sum": lambda rank, score: score,
        "rrf": lambda rank, score: 1 / (constant + rank),
        "interleave": lambda rank, score: 1 / rank,
    }[rule]
    values: dict[int, float] = {}
    for line, factor in zip(lists, factors or [1.0] * len(lists), strict=True):
        for rank, (row, score) in enumerate(line, 1):
            value = factor * value_of(rank, score)
            if row not in values:
                values[row] = value
            else:
                values[row] = max(values[row], value) if rule in ("max", "interleave") else values[row] + value
    return best_first(values)


def plain_scaled(lists: Sequence[Pairs], weights: Sequence[float], rule: str) -> Pairs:
    """Add up the lists' scores, scaled by a rule and weighted; a row that a list lacks has its lowest score there.

    "weighted": as they are; "normalized": to -1/2 … 1/2; "minmax": to 0 … 1; "zscore": to mean 0 and deviation 1. Equal scores of a whole
    list become 0.
    """
    values = {row: 0.0 for line in lists for row, _ in line}
    for line, weight in zip(lists, weights, strict=True):
        scores = [score for _, score in line] or ([0.0, 1.0] if rule == "normalized" else [0.0])
        lowest, highest = min(scores), max(scores)
        shift, spread = {
            "weighted": (0.0, 1.0),
            "normalized": ((lowest + highest) / 2, highest - lowest),
            "minmax": (lowest, highest - lowest),
            "zscore": (float(np.mean(scores)), float(np.std(scores))),
        }[rule]
        is_flat = rule != "weighted" and lowest == highest
        found = dict(line)
        for row in values:
            values[row] += 0.0 if is_flat else weight * ((found.get(row, lowest) - shift) / spread)
    return best_first(values)


def plain_cut(line: Pairs, k: int | None, text_key: Sequence[int] | None) -> Pairs:
    """Keep the k best; with ``text_key``, by row, only the first of rows with equal keys."""
    kept: Pairs = []
    seen: set[int] = set()
    for row, score in line:
        key = row if text_key is None else text_key[row]
        if key not in seen:
            seen.add(key)
            kept.append((row, score))
    return kept[:k]
