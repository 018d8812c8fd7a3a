"""The corpus in a user's own file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wikidx.base.artifacts.home import check_new_name, downloads_path
from wikidx.base.artifacts.manifest import Parameters
from wikidx.base.errors import InputError
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.gathering import GatheredFile, gather, named_format
from wikidx.corpora.passage import BadRecord, LocatedPassage, OnBad
from wikidx.corpora.reading.fields import FieldNames, describe_fields
from wikidx.corpora.reading.readers import Format, find_format
from wikidx.corpora.reading.splitters import NO_SPLIT, Split, Tokenizer, split
from wikidx.corpora.unpacking import is_archive, unpack

SEVERAL = "files"
"""Format of a corpus of several files, each in its own."""
BY_KIND = "by kind"
"""Splitting of each file by the rule for its format."""
_SAMPLE_RECORDS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Format and splitting of a user's file.

    Attributes:
        file_format: a key of ``READERS``, or a plug-in's name; None detects it from the content.
        split: a splitting rule, see ``Split.parse``; None means "words" for formats of whole articles, "none" for others.
        tokenizer: what counts tokens, for the rule "tokens"; None: nothing does.
        fields: names of the fields of records that make a passage, where well-known names do not determine them.
        config: configuration of a data set of Hugging Face; None: the only one, or "default".
        split_name: split of a data set of Hugging Face, whose files alone are read; None: the only one of ``hf://``, all files of others.
    """

    file_format: str | None = None
    split: str | None = None
    tokenizer: Tokenizer | None = None
    fields: FieldNames = FieldNames()
    config: str | None = None
    split_name: str | None = None

    def __post_init__(self) -> None:
        if self.file_format is not None:
            find_format(self.file_format)
        Split.parse(self.split or NO_SPLIT)


def gathered_corpus(sources: Sequence[Path], name: str, reading: ReadOptions) -> Corpus:
    """Return the corpus ``name`` in several files: those of folders and archives, or in documents.

    Files that cannot be read are bad records of line 0.

    Raises:
        InputError: the name, or a source, cannot be used.
    """
    check_new_name(name)
    unpacked = [unpack(source, downloads_path(name)) if is_archive(source) else source for source in sources]
    gathered = gather(unpacked, reading.file_format, reading.fields)
    files = {str(file.path): file for file in gathered.files}

    def read_all(paths: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        for path in paths:
            yield from _read_whole(files[str(path)], reading, on_bad)

    split: Parameters = {"split": BY_KIND} if reading.split is None else Split.parse(reading.split, reading.tokenizer).parameters
    checksum = {} if reading.file_format is None else _checksum(find_format(reading.file_format))
    return Corpus(
        name=name,
        summary=f"{', '.join(map(str, sources)):.80} ({gathered.describe()})",
        read=read_all,
        path=sources[0],
        paths={file.name: file.path for file in gathered.files},
        origins=tuple(sources),
        reading={"format": reading.file_format or SEVERAL, **split, **reading.fields.recorded(), **checksum},
    )


def _read_whole(file: GatheredFile, reading: ReadOptions, on_bad: OnBad) -> Iterator[LocatedPassage]:
    """Yield the passages of a file; one that cannot be read is passed to ``on_bad``, as its records are."""
    raised = list[InputError]()

    def report(bad: BadRecord) -> None:
        try:
            on_bad(bad)
        except InputError as error:
            raised.append(error)
            raise

    chosen = replace(file.format, given=reading.fields)
    try:
        yield from _read(chosen, _rule(chosen, reading), file.path, report, file.name)
    except InputError as error:
        if error in raised:
            raise
        on_bad(BadRecord(str(file.path), 0, str(error)))


def _rule(chosen: Format, reading: ReadOptions) -> Split:
    return Split.parse(reading.split or ("words" if chosen.holds_articles else NO_SPLIT), reading.tokenizer)


def _read(chosen: Format, by: Split, path: Path, on_bad: OnBad, name: str) -> Iterator[LocatedPassage]:
    """Return the passages of a file, split by a rule."""
    return chosen.read(path, on_bad, name) if by.rule == NO_SPLIT else split(chosen.read_documents(path, on_bad, name), by)


def _checksum(chosen: Format) -> Parameters:
    return {} if chosen.code_sha256 is None else {"format_sha256": chosen.code_sha256}


def custom_corpus(path: Path, name: str, reading: ReadOptions) -> Corpus:
    """Return the corpus ``name`` in a local file.

    Raises:
        InputError: the name or the file cannot be used.
    """
    check_new_name(name)
    chosen = replace(find_format(reading.file_format or named_format(path, reading.fields)), given=reading.fields)
    fields = describe_fields(chosen.fields_of(path)) if chosen.fields is None or reading.fields else ""
    by = _rule(chosen, reading)

    def read_file(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        for file in files:
            yield from _read(chosen, by, file, on_bad, file.name)

    splitting = "" if by.rule == NO_SPLIT else f", split by {by}"
    return Corpus(
        name=name,
        summary=f"{path.name} ({chosen.name}{fields and f', {fields}'}{splitting})",
        read=read_file,
        path=path,
        find_unkept=lambda: [*dict.fromkeys(chosen.unkept(path, _SAMPLE_RECORDS))],
        reading={"format": chosen.name, **by.parameters, **reading.fields.recorded(), **_checksum(chosen)},
    )
