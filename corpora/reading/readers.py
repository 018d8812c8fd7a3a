"""Formats of dump files, each a container and the fields of its records, and detection of the format from the content.

Reading yields every valid record with its file and line, and passes every bad record to ``on_bad``, which may raise an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, find, running
from wikidx.corpora.passage import BadRecord, LocatedPassage, OnBad, Passage
from wikidx.corpora.plugged import checked

from .containers import Container, Records, json_lines, read_lines, tsv, unescape, wikiextractor
from .document import Document, LocatedDocument
from .records import BEIR, CONTENTS, PLAIN, FieldMap, explain_json_error


def fail(bad: BadRecord) -> None:
    """Raise ``InputError`` for a bad record; the default ``on_bad``."""
    raise InputError(f"{bad.file}, line {bad.line}: {bad.reason}; correct the file, or skip unusable records with --on-error skip")


ReadDocuments = Callable[[Path], Iterator[Document]]
"""Function that yields the documents of a file; it raises ``InputError`` for a file that it cannot read."""


def no_records(path: Path, on_bad: OnBad) -> Records:
    """Return the records of a file that holds documents: none."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of files, also that of a plug-in.

    >>> def read_cards(path, on_bad):  # such as "1 | Lima | It is the capital of Peru."
    ...     for number, line in enumerate(path.open(encoding="utf-8"), 1):
    ...         yield number, dict(zip(("id", "title", "text"), map(str.strip, line.split("|"))))
    >>> CARDS = Format(name="cards", records=read_cards)

    Attributes:
        name: name on the command line and in manifests.
        documents: function that takes a path and yields the documents of the file, each with its pages and headings; None: the file holds
            records.
        records: function that takes a path and yields ``(number, record)`` for each record of the file, from 1. The number is that of its
            line, or of the record itself where a format has no lines; the record is a mapping of names to values. Its second argument takes
            a ``BadRecord``, which the user may want to skip; a record without an id or a text becomes one by itself.
        fields: fields of the records that make a passage.
        holds_articles: whether records are whole articles, which are split unless the user says otherwise.
        matches: function that takes the first line of a file that is not blank, and the record in it if it is a JSON object, and returns
            whether the file is in this format; not asked of plug-ins, which are used if they are named.
        code_sha256: checksum of a plug-in's file; None for the formats of idx.
    """

    plugin_kind: ClassVar[str] = "format"
    name: str
    records: Container = no_records
    documents: ReadDocuments | None = None
    fields: FieldMap = FieldMap()
    holds_articles: bool = False
    matches: Callable[[str, Mapping[str, Any]], bool] = lambda line, record: False
    code_sha256: str | None = None

    def read(self, path: Path, on_bad: OnBad = fail) -> Iterator[LocatedPassage]:
        """Yield the passages of a file.

        Raises:
            InputError: the file cannot be read, or ``on_bad`` raised it.
        """
        file = str(path)
        if self.documents is not None:
            for document, _, number in self.read_documents(path, on_bad):
                passage = Passage(document.id, document.title, document.text)
                yield LocatedPassage(passage, file, number, document.span(0, len(document.text)))
            return
        for number, record in self.records(path, on_bad):
            try:
                passage = self.fields.passage(record)
            except ValueError as error:
                on_bad(BadRecord(file, number, str(error)))
            else:
                yield LocatedPassage(passage, file, number)

    def read_documents(self, path: Path, on_bad: OnBad = fail) -> Iterator[LocatedDocument]:
        """Yield the documents of a file, to be split: those of ``documents``, or the passages of its records; raises as ``read`` does."""
        if self.documents is not None:
            yield from (LocatedDocument(document, str(path), number) for number, document in enumerate(self.documents(path), 1))
            return
        for record in self.read(path, on_bad):
            yield LocatedDocument(Document(*record.passage), record.file, record.line)


def _json_format(name: str, fields: FieldMap) -> Format:
    return Format(name=name, records=json_lines, fields=fields, matches=lambda line, record: fields.fits(record))


def _is_article(line: str, record: Mapping[str, Any]) -> bool:
    return {"id", "title", "text"} <= record.keys() and ("revid" in record or "curid=" in str(record.get("url")))


ESCAPED = replace(PLAIN, decode=unescape)
# In the order of detection, from the last one: the later, the more a file must have.
_FORMATS = (
    Format(name="tsv", records=tsv, matches=lambda line, record: "\t" in line and not line.startswith("{")),
    _json_format("jsonl", PLAIN),
    _json_format("contents", CONTENTS),
    _json_format("beir", BEIR),
    Format(name="wikiextractor", records=wikiextractor, holds_articles=True, matches=lambda line, record: line.startswith("<doc ")),
    Format(name="wikiextractor-json", records=json_lines, fields=ESCAPED, holds_articles=True, matches=_is_article),
)
READERS = {each.name: each for each in _FORMATS}


def read(path: Path, file_format: str, on_bad: OnBad = fail) -> Iterator[LocatedPassage]:
    """Yield the passages of a file in a named format.

    Raises:
        InputError: the file cannot be read, or ``on_bad`` raised it.
        UnknownNameError: the format is unknown.
    """
    return find_format(file_format).read(path, on_bad)


def find_format(name: str) -> Format:
    """Return the format of a name; the functions of a plug-in then raise ``InputError`` if their code fails.

    Raises:
        UnknownNameError: the name is unknown.
        InputError: see ``plug``; or a plug-in has the name of a format of idx.
    """
    found: Format = find("format", name, READERS, _plugged_format)
    return found


def _plugged_format(plugged: PlugIn) -> Format:
    own = plugged.instance_of(Format, "a format is a wikidx.Format")

    def records(path: Path, on_bad: OnBad) -> Records:
        return checked(plugged, lambda: own.records(path, on_bad), str(path), (_is_record, _RECORD))

    def documents(path: Path) -> Iterator[Document]:
        return checked(plugged, lambda: own.documents(path) if own.documents else (), str(path), (_is_document, _DOCUMENT))

    decode = own.fields.decode and running(plugged, "when it decodes a text")(own.fields.decode)
    fields, ways = replace(own.fields, decode=decode), (records, own.documents and documents)
    return replace(own, name=plugged.name, records=ways[0], documents=ways[1], fields=fields, code_sha256=plugged.sha256)


_DOCUMENT = "Document(id, title, text, pages, headings)"
_RECORD = "(number, {'id': …, 'title': …, 'text': …})"


def _is_record(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], int) and isinstance(item[1], Mapping)


def _is_document(item: object) -> bool:
    return isinstance(item, Document) and all(isinstance(value, str) for value in item[:3])


def unkept_fields(path: Path, file_format: str, n_records: int) -> list[str]:
    """Return the non-empty fields, in the first records of a file, that passages do not keep; unreadable records are ignored."""
    found = find_format(file_format)
    records = islice(found.records(path, lambda bad: None), n_records)
    return list(dict.fromkeys(name for _, record in records for name in found.fields.unkept(record)))


def detect_format(path: Path) -> str:
    """Return the name of a file's format, detected from its first non-blank line.

    Raises:
        InputError: the file cannot be read, or its format is none of ``READERS``.
    """
    number, first = next(((number, line.strip()) for number, line in read_lines(path, _fail_detection) if line.strip()), (0, ""))
    if not first:
        raise InputError(f"{path} holds only blank lines")
    try:
        record: dict[str, Any] = json.loads(first) if first.startswith("{") else {}
    except (ValueError, RecursionError) as error:
        _fail_detection(BadRecord(str(path), number, f"{explain_json_error(error)} (one record a line is needed)"))
    for name, each in reversed(READERS.items()):
        if each.matches(first, record):
            return name
    if first.startswith("{"):
        raise InputError(
            f"{path}, line {number}: has the fields {', '.join(record) or 'none':.200}; "
            "needed are id, title, text (or _id, title, text; or id, contents)"
        )
    raise InputError(
        f"{path} begins with {first[:40]!r}, which is none of the formats {', '.join(READERS)}; "
        'one record a line is needed, such as {"id": …, "title": …, "text": …}, or name the format with --format'
    )


def _fail_detection(bad: BadRecord) -> NoReturn:
    raise InputError(f"{bad.file}, line {bad.line}: {bad.reason}; correct the file, or name its --format and add --on-error skip")
