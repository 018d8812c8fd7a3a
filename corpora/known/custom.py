"""The corpus in a user's own file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wikidx.base.artifacts.home import check_new_name
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, OnBad
from wikidx.corpora.reading.fields import FieldNames, describe_fields
from wikidx.corpora.reading.readers import detect_format, find_format
from wikidx.corpora.reading.splitters import NO_SPLIT, Split, Tokenizer, split

_SAMPLE_RECORDS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Format and splitting of a user's file.

    Attributes:
        file_format: a key of ``READERS``, or a plug-in's name; None detects it from the content.
        split: a splitting rule, see ``Split.parse``; None means "words" for formats of whole articles, "none" for others.
        tokenizer: what counts tokens, for the rule "tokens"; None: nothing does.
        fields: names of the fields of records that make a passage, where well-known names do not determine them.
    """

    file_format: str | None = None
    split: str | None = None
    tokenizer: Tokenizer | None = None
    fields: FieldNames = FieldNames()

    def __post_init__(self) -> None:
        if self.file_format is not None:
            find_format(self.file_format)
        Split.parse(self.split or NO_SPLIT)


def custom_corpus(path: Path, name: str, reading: ReadOptions) -> Corpus:
    """Return the corpus ``name`` in a local file.

    Raises:
        InputError: the name or the file cannot be used.
    """
    check_new_name(name)
    chosen = replace(find_format(reading.file_format or detect_format(path, reading.fields)), given=reading.fields)
    fields = describe_fields(chosen.fields_of(path)) if chosen.fields is None or reading.fields else ""
    by = Split.parse(reading.split or ("words" if chosen.holds_articles else NO_SPLIT), reading.tokenizer)

    def read_file(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        for file in files:
            yield from chosen.read(file, on_bad) if by.rule == NO_SPLIT else split(chosen.read_documents(file, on_bad), by)

    splitting = "" if by.rule == NO_SPLIT else f", split by {by}"
    return Corpus(
        name=name,
        summary=f"{path.name} ({chosen.name}{fields and f', {fields}'}{splitting})",
        read=read_file,
        path=path,
        find_unkept=lambda: [*dict.fromkeys(chosen.unkept(path, _SAMPLE_RECORDS))],
        reading={"format": chosen.name, **by.parameters}
        | reading.fields.recorded()
        | ({} if chosen.code_sha256 is None else {"format_sha256": chosen.code_sha256}),
    )
