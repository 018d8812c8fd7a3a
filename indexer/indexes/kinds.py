"""Contract of a kind of index, over passages or over vectors: parameters, build estimate, writing and opening."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from wikidx.base.artifacts.manifest import Manifest, Parameters
from wikidx.base.progress import Progress
from wikidx.corpora.store import Follower
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

Source = TypeVar("Source")  # PassageStore or CorpusVectors
Index_co = TypeVar("Index_co", covariant=True)


class Size(NamedTuple):
    """Size of the indexed data: rows, components of a vector (0 for passages), and mean bytes of text per passage."""

    n_rows: int
    dim: int = 0
    passage_bytes: float = 0.0


class Estimate(NamedTuple):
    """Upper estimate of a build: peak bytes on disk, and of memory."""

    disk_bytes: float
    memory_bytes: float


class Number(NamedTuple):
    """A parameter in index names: its default and its largest value. The smallest value is 0."""

    default: float
    largest: float


class IndexBuild(NamedTuple, Generic[Source]):
    """Inputs of a build. The directory ``staging`` receives the files; it may contain partial files of an interrupted build."""

    source: Source
    parameters: Parameters
    staging: Path
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """Options of opening an index.

    Attributes:
        name: the index's name, for messages.
        encoder: name of the encoder, which is also the name of its exact search; "" for an index over passages.
        device: see ``devices.check_devices``.
        vectors: the source vectors of the index; None if they no longer exist.
        rows: search only these rows, copied into memory, with the row numbers and scores of the whole index; None: search all rows,
            memory-mapped.
    """

    name: str
    encoder: str = ""
    device: str = "cpu"
    vectors: CorpusVectors | None = None
    rows: range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind(Generic[Source, Index_co]):
    """A kind of index over a ``Source``: the passages of a corpus, or their vectors.

    Attributes:
        name: name of the kind in the manifest; an index over vectors is named ``<encoder>-<kind>``.
        source: what it indexes: the passages themselves, or the vectors of an encoder.
        format_version: version of the file format.
        parameters: size -> build parameters and default search parameters. Together with the source and ``numbers`` they determine the
            index.
        write: writes the files, or resumes an interrupted build, and returns the counts for the manifest. It raises ``InputError`` if the
            source cannot be indexed, and ``StagingCorrupt`` for unusable partial files.
        open: (directory, manifest, options) -> index.
        estimate: size -> estimate of the build; raises ``MissingExtraError`` if a required package is not installed.
        numbers: build parameters in the index's name, in this order; the name omits them if all have their defaults. Only for indexes
            over passages.
        takes_analyzer: whether the index is one of terms, whose name may have an analyzer; its parameters then record the analyzer, see
            ``analysis.recorded_analyzer``. Only for indexes over passages.
        follow: (directory, parameters without numbers) -> follower that prepares a build there while the passages are stored; None: the
            kind has none. Only for indexes over passages.
    """

    plugin_kind: ClassVar[str] = "index"

    name: str
    source: Literal["passages", "vectors"]
    format_version: int
    parameters: Callable[[Size], Parameters]
    write: Callable[[IndexBuild[Source]], Mapping[str, int]]
    open: Callable[[Path, Manifest, OpenOptions], Index_co]
    estimate: Callable[[Size], Estimate]
    numbers: Mapping[str, Number] = field(default_factory=dict)
    takes_analyzer: bool = False
    follow: Callable[[Path, Parameters], Follower] | None = None
