"""Definition of a corpus: its files, their reader, and the expected number of passages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .passage import Located, OnBad, SourceFile

ReadCorpus = Callable[[Sequence[Path], OnBad], Iterator[Located]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A recipe for a stream of passages.

    Attributes:
        name: its name on the command line and on disk.
        summary: one line for ``idx list``.
        files: what is downloaded, in reading order; empty for a corpus that ships with idx or is the user's own.
        read: local copies of ``files``, or ``path`` -> located passages.
        path: where the file of a user's own corpus is; None for the others.
        n_passages: how many there must be; None if nobody has published it.
        about: (passages, mean UTF-8 bytes of one) to plan with before anything is read; None where a sample of the file tells.
        reading: the reading rule as named values; part of what identifies the built store.
    """

    name: str
    summary: str
    files: tuple[SourceFile, ...]
    read: ReadCorpus
    n_passages: int | None
    path: Path | None = None
    about: tuple[int, int] | None = None
    reading: Mapping[str, str | int] = field(default_factory=dict)
