"""Definition of a corpus: its files, their reader, and the expected number of passages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from wikidx.base.artifacts.manifest import Parameters
from wikidx.base.net.download import SourceFile

from .passage import LocatedPassage, OnBad

ReadCorpus = Callable[[Sequence[Path], OnBad], Iterator[LocatedPassage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Description of a corpus, with the function that reads its passages.

    Attributes:
        name: name on the command line and on disk.
        summary: one line for ``idx list``.
        read: function that yields the passages of the given files and passes bad records to its second argument.
        files: files to download, in reading order; empty for a corpus that ships with idx or is the user's own.
        path: the file or the folder of a user's own corpus, or the first of several; None for all other corpora.
        paths: name -> path of each file of a user's own corpus, in reading order, if it is not the file ``path``.
        origins: what the user named for ``paths``: files, folders and archives.
        n_passages: expected number of passages; None if unknown.
        estimate: (number of passages, mean UTF-8 bytes per passage) for planning; None: estimate both from a sample.
        article_url: web address of a passage's article, in which {title} stands for its title, {article} for the title up to its last ": ",
            or for all of it if the passage's id begins with "infobox:"; None if there are no such addresses.
        find_unkept: function that returns the fields, in the first 2,000 records, that passages do not keep.
        reading: named values that identify the result of ``read``, such as the format; a store with other values is not reused.
    """

    plugin_kind: ClassVar[str] = "corpus"

    name: str
    summary: str
    read: ReadCorpus
    files: tuple[SourceFile, ...] = ()
    path: Path | None = None
    paths: Mapping[str, Path] = field(default_factory=dict)
    origins: tuple[Path, ...] = ()
    n_passages: int | None = None
    estimate: tuple[int, int] | None = None
    article_url: str | None = None
    find_unkept: Callable[[], Sequence[str]] = tuple
    reading: Parameters = field(default_factory=dict)
