"""What ``indexer.build`` needs to know of a kind of index over vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from corpora.artifacts import Manifest, Parameters
from corpora.progress import Progress

from .base import VectorIndex
from .corpus_vectors import CorpusVectors


class Cost(NamedTuple):
    """What a build needs at most: bytes on disk while it runs, bytes of memory, seconds on this machine's cores."""

    disk_bytes: float
    memory_bytes: float
    time_s: float


class Plan(NamedTuple):
    """A build: vectors -> files in the directory ``staging``, where a stopped build may have left pieces."""

    vectors: CorpusVectors
    parameters: Parameters
    staging: Path
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How an index is opened.

    Attributes:
        name: the index's name, for messages.
        encoder: the name of its encoder, which exact search goes by.
        device: as ``devices.check_devices`` has it.
        vectors: those that the index was built from; None if they are not there any more.
        rows: search these alone, copied into memory; what is found is counted and scored as in the whole index. None: all, mapped.
    """

    name: str
    encoder: str
    device: str = "cpu"
    vectors: CorpusVectors | None = None
    rows: range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorIndexKind:
    """How indexes of one kind are built from vectors and opened.

    Attributes:
        name: the kind, as it stands in the manifest and behind the encoder's name.
        format_version: of the files.
        parameters: (number of vectors, dimension) -> everything besides the vectors that decides what is built, and the
            defaults of its search parameters.
        write: writes the files; raises ``InputError`` if such vectors cannot be indexed, ``PiecesDamaged`` over pieces it cannot use.
        open: (directory, manifest, opening) -> index.
        cost: (number of vectors, dimension) -> what building needs.
    """

    name: str
    format_version: int
    parameters: Callable[[int, int], Parameters]
    write: Callable[[Plan], None]
    open: Callable[[Path, Manifest, Opening], VectorIndex]
    cost: Callable[[int, int], Cost]
