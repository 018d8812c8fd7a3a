"""The types that every index and encoder speaks: arrays, ``Hits`` and three protocols."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from corpora.artifacts import Manifest
from corpora.errors import InputError
from corpora.passage import Passage
from corpora.progress import Progress
from corpora.store import PassageStore, Rows

Scores = NDArray[np.float32]
Vectors = NDArray[np.float32]

Index_co = TypeVar("Index_co", covariant=True)

NO_ROW = -1


class Hits(NamedTuple):
    """What a search found for Q queries: rows int64 and scores float32, both of shape (Q, k).

    In each line scores descend and equal scores go by ascending row; places that nothing was found for have row -1 and score -inf.
    """

    rows: Rows
    scores: Scores


class Encoder(Protocol):
    """Turns texts into float32 vectors of ``dim`` components whose inner product is the similarity."""

    dim: int

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim)."""
        ...

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim)."""
        ...


class VectorIndex(Protocol):
    """Finds the rows whose vectors have the largest inner product with a query vector."""

    def search(self, vectors: Vectors, k: int) -> Hits:
        """Return the k best rows for each of the (Q, dim) query vectors."""
        ...


class LexicalIndex(Protocol):
    """Finds rows by the terms of a query."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best rows for each query."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind(Generic[Index_co]):
    """How indexes of one kind are built and opened; what ``indexer.build`` needs to know of them.

    Attributes:
        name: the kind, as it stands in the manifest.
        format_version: of the files.
        parameters: everything besides the passages that decides what is built.
        write: (store, staging directory, progress) -> counts; goes on from finished pieces in the directory.
        open: (directory, manifest) -> index.
    """

    name: str
    format_version: int
    parameters: Mapping[str, str | int | float | None]
    write: Callable[[PassageStore, Path, Progress], Mapping[str, int]]
    open: Callable[[Path, Manifest], Index_co]


def check_device(device: str) -> None:
    """Raise ``InputError`` unless ``device`` is the name of a device that encoders can run on: auto, cpu, cuda, cuda:<n>, mps."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device):
        raise InputError(f"the device '{device}' is none of auto, cpu, cuda, cuda:<number>, mps")


def n_threads() -> int:
    """Return how many threads may run at once: the processors that this process is allowed."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_k(k: int) -> None:
    """Raise ``ValueError`` unless ``k`` results can be asked for."""
    if k < 1:
        raise ValueError(f"k is {k}: ask for at least one result")
