"""The corpus in a user's own file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wikidx.base.artifacts.home import check_new_name
from wikidx.base.errors import InputError
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, OnBad
from wikidx.corpora.reading.readers import detect_format, find_format
from wikidx.corpora.reading.splitters import NO_SPLIT, check_rule, split


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Format and splitting of a user's file.

    Attributes:
        file_format: a key of ``READERS``, or a plug-in's name; None detects it from the content.
        split: a key of ``SPLITTERS``, or "none"; None means "words" for formats of whole articles, "none" for others.
        n_words: maximum number of words per passage, if articles are split.
    """

    file_format: str | None = None
    split: str | None = None
    n_words: int = 100

    def __post_init__(self) -> None:
        if self.n_words < 1:
            raise InputError(f"--words {self.n_words}: a passage needs at least one word")
        if self.file_format is not None:
            find_format(self.file_format)
        check_rule(self.split)


def custom_corpus(path: Path, name: str, reading: ReadOptions) -> Corpus:
    """Return the corpus ``name`` in a local file.

    Raises:
        InputError: the name or the file cannot be used.
    """
    check_new_name(name)
    chosen = find_format(reading.file_format or detect_format(path))
    chosen_split = reading.split or ("words" if chosen.holds_articles else NO_SPLIT)

    def read_file(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        for file in files:
            yield from split(chosen.read(file, on_bad), chosen_split, reading.n_words)

    splitting = "" if chosen_split == NO_SPLIT else f", split by {chosen_split} at {reading.n_words} words"
    return Corpus(
        name=name,
        summary=f"{path.name} ({chosen.name}{splitting})",
        read=read_file,
        path=path,
        reading={"format": chosen.name, "split": chosen_split}
        | ({} if chosen.code_sha256 is None else {"format_sha256": chosen.code_sha256})
        | ({} if chosen_split == NO_SPLIT else {"words": reading.n_words}),
    )
