"""Definition of a corpus: its files, their reader, and the expected number of passages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .passage import Located, OnBad, SourceFile

ReadCorpus = Callable[[Sequence[Path], OnBad], Iterator[Located]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Description of a corpus: how to obtain its stream of passages.

    Attributes:
        name: its name on the command line and on disk.
        summary: one line for ``idx list``.
        files: files to download, in reading order; empty for a corpus that ships with idx or is the user's own.
        read: local copies of ``files``, or ``path`` -> located passages.
        path: the file of a user's own corpus; None for the others.
        n_passages: expected number of passages; None if it is not published.
        about: estimated (passages, mean UTF-8 bytes of one) for planning; None if a sample of the file gives it.
        reading: the reading rule as named values; part of the identity of the built store.
    """

    name: str
    summary: str
    files: tuple[SourceFile, ...]
    read: ReadCorpus
    n_passages: int | None
    path: Path | None = None
    about: tuple[int, int] | None = None
    reading: Mapping[str, str | int] = field(default_factory=dict)
