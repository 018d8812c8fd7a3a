"""Contract of a kind of index, over passages or over vectors: parameters, build estimate, writing and opening."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from wikidx.corpora.artifacts.manifest import Manifest, Parameters
from wikidx.corpora.progress import Progress
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

Source = TypeVar("Source")  # PassageStore or CorpusVectors
Index_co = TypeVar("Index_co", covariant=True)


class Size(NamedTuple):
    """Size of the indexed data: rows, components of a vector (0 for passages), and mean bytes of text per passage."""

    n_rows: int
    dim: int = 0
    passage_bytes: float = 0.0


class Cost(NamedTuple):
    """Estimate of a build: peak bytes on disk, peak bytes of memory, seconds on this machine's cores."""

    disk_bytes: float
    memory_bytes: float
    time_s: float


class IndexBuild(NamedTuple, Generic[Source]):
    """A build: passages or vectors -> files in the directory ``staging``, which may contain pieces of an interrupted build."""

    source: Source
    parameters: Parameters
    staging: Path
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """Options of opening an index.

    Attributes:
        name: the index's name, for messages.
        encoder: name of its encoder, the key of exact search; "" for an index over passages.
        device: see ``devices.check_devices``.
        vectors: those that the index was built from; None if they no longer exist.
        rows: search only these, copied into memory; row numbers and scores are those of the whole index. None: all, mapped.
    """

    name: str
    encoder: str = ""
    device: str = "cpu"
    vectors: CorpusVectors | None = None
    rows: range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind(Generic[Source, Index_co]):
    """A kind of index over a ``Source``: the passages of a corpus, or an encoder's vectors of them.

    Attributes:
        name: the kind, as in the manifest; for a vector index also the suffix of its name after the encoder's.
        format_version: of the files.
        parameters: size -> everything besides the source that determines the index, and the defaults of search parameters.
        write: writes the files and returns the counts of the manifest; resumes from finished pieces in the directory. Raises ``InputError``
            if such a source cannot be indexed, ``PiecesDamaged`` over pieces it cannot use.
        open: (directory, manifest, options) -> index.
        cost: size -> estimate of the build; raises ``MissingExtraError`` if a package that it needs is not installed.
    """

    name: str
    format_version: int
    parameters: Callable[[Size], Parameters]
    write: Callable[[IndexBuild[Source]], Mapping[str, int]]
    open: Callable[[Path, Manifest, OpenOptions], Index_co]
    cost: Callable[[Size], Cost]
