"""Formats of dump files, each a container and the fields of its records, and detection of the format from the content.

Reading yields every valid record with its file and line, and passes every bad record to ``on_bad``, which may raise an error.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, find, running
from wikidx.corpora.passage import BadRecord, LocatedPassage, OnBad, Passage
from wikidx.corpora.plugged import checked

from .containers import Container, Records, json_lines, read_lines, tsv, unescape, wikiextractor
from .document import Document, Heading, LocatedDocument
from .fields import FieldNames, choose_fields, has_text
from .records import BEIR, CONTENTS, PLAIN, FieldMap, explain_json_error, header_columns
from .tables import (
    arrow_columns,
    arrow_rows,
    csv_rows,
    holds_records,
    is_header,
    json_values,
    long_json,
    parquet_columns,
    parquet_rows,
    split_header,
    table_format,
    two_columns,
)


def fail(bad: BadRecord) -> None:
    """Raise ``InputError`` for a bad record, or a whole file (line 0); the default ``on_bad``."""
    if bad.line == 0:
        raise InputError(f"{bad.reason}; or leave out what cannot be read, with --on-error skip")
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
        fields: fields of the records that make a passage; None: they are chosen by the names in the first record that has a text.
        given: names of the user's for these fields.
        columns: function that returns the names of a table's columns; ``records`` then takes those that are needed as a third argument.
        holds_articles: whether records are whole articles, which are split unless the user says otherwise.
        matches: function that takes the first line of a file that is not blank, and the record in it if it is a JSON object, and returns
            whether the file is in this format; not asked of plug-ins, which are used if they are named.
        code_sha256: checksum of a plug-in's file; None for the formats of idx.
    """

    plugin_kind: ClassVar[str] = "format"
    name: str
    records: Container = no_records
    documents: ReadDocuments | None = None
    fields: FieldMap | None = FieldMap()
    given: FieldNames = FieldNames()
    columns: Callable[[Path], Sequence[str]] | None = None
    holds_articles: bool = False
    matches: Callable[[str, Mapping[str, Any]], bool] = lambda line, record: False
    code_sha256: str | None = None

    def read(self, path: Path, on_bad: OnBad = fail, name: str = "") -> Iterator[LocatedPassage]:
        """Yield the passages of a file; ``name`` is the file's in the ids of records that have none, ``<name>:<number>``.

        Raises:
            InputError: the file cannot be read, its fields cannot be chosen, or ``on_bad`` raised it.
        """
        file, name = str(path), name or path.name
        if self.documents is not None:
            for document, _, number in self.read_documents(path, on_bad, name):
                passage = Passage(document.id, document.title, document.text)
                yield LocatedPassage(passage, file, number, document.span(0, len(document.text)))
            return
        fields = self.fields_of(path)
        for number, record in self._records(path, on_bad, fields):
            try:
                passage = fields.passage({PLAIN.id: f"{name}:{number}", **record} if fields.is_numbered else record)
            except ValueError as error:
                on_bad(BadRecord(file, number, str(error)))
            else:
                yield LocatedPassage(passage, file, number)

    def read_documents(self, path: Path, on_bad: OnBad = fail, name: str = "") -> Iterator[LocatedDocument]:
        """Yield the documents of a file, to be split: those of ``documents``, or the passages of its records; raises as ``read`` does."""
        if self.documents is not None:
            for number, document in enumerate(self.documents(path), 1):
                yield LocatedDocument(document if document.id else document._replace(id=name or path.name), str(path), number)
            return
        for record in self.read(path, on_bad, name):
            yield LocatedDocument(Document(*record.passage), record.file, record.line)

    def fields_of(self, path: Path) -> FieldMap:
        """Return the fields that make a passage, in a file whose first record with a text determines them unless the format does.

        Raises:
            InputError: the file cannot be read, no record has a text, or two fields may hold the same.
        """
        if self.fields is not None and not self.given:
            return self.fields
        records: Records = self.records(path, lambda bad: None) if self.columns is None else [(1, dict.fromkeys(self.columns(path)))]
        problem = ""
        for number, record in records:
            try:
                return choose_fields(record, self.given)
            except ValueError as error:
                problem = problem or f"{path}, line {number}: {error}"
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
        if problem:
            raise InputError(problem)
        return PLAIN

    def unkept(self, path: Path, n_records: int) -> Iterator[str]:
        """Yield the non-empty fields, in the first records of a file, that passages do not keep; unreadable records are ignored."""
        fields = self.fields_of(path)
        if self.columns is not None:
            yield from fields.unkept(dict.fromkeys(self.columns(path), "any"))
            return
        for _, record in islice(self.records(path, lambda bad: None), n_records):
            yield from fields.unkept(record)

    def _records(self, path: Path, on_bad: OnBad, fields: FieldMap) -> Records:
        return self.records(path, on_bad) if self.columns is None else self.records(path, on_bad, fields.used)


def _json_format(name: str, fields: FieldMap) -> Format:
    return Format(name=name, records=json_lines, fields=fields, matches=lambda line, record: fields.fits(record))


def _is_article(line: str, record: Mapping[str, Any]) -> bool:
    return {"id", "title", "text"} <= record.keys() and ("revid" in record or "curid=" in str(record.get("url")))


def _is_dpr(line: str) -> bool:
    return sorted(header_columns(split_header(line)[1]) or []) == ["id", "text", "title"]


_TWO_COLUMNS = re.compile(r'[^\s"{\[]+\t([^\t"][^\t]*|"[^\t"]*"[^\t]*)')  # an id and a text
_CONTINUED = re.compile(r"\{(.*[{\[,])?")  # the first line of an object of several lines
ESCAPED = replace(PLAIN, decode=unescape)
# In the order of detection, from the last one: the later, the more a file must have.
_FORMATS = (
    Format(name="tsv", records=tsv, matches=lambda line, record: "\t" in line and not line.startswith("{")),
    Format(name="msmarco", records=two_columns, matches=lambda line, record: _TWO_COLUMNS.fullmatch(line) is not None),
    Format(name="csv", records=csv_rows, fields=None, matches=lambda line, record: is_header(line) and not _is_dpr(line)),
    Format(name="parquet", records=parquet_rows, fields=None, columns=parquet_columns),
    Format(name="arrow", records=arrow_rows, fields=None, columns=arrow_columns),
    Format(name="json", records=json_values, fields=None, matches=lambda line, record: holds_records(record)),
    Format(name="records", records=json_lines, fields=None, matches=lambda line, record: has_text(record)),
    _json_format("jsonl", PLAIN),
    _json_format("contents", CONTENTS),
    _json_format("beir", BEIR),
    Format(name="wikiextractor", records=wikiextractor, holds_articles=True, matches=lambda line, record: line.startswith("<doc ")),
    Format(name="wikiextractor-json", records=json_lines, fields=ESCAPED, holds_articles=True, matches=_is_article),
)


def _documents(name: str, module: str) -> Format:
    """Return a format of whole documents, whose extractor is imported when it reads."""

    def read(path: Path) -> Iterator[Document]:
        extractor = importlib.import_module(f"wikidx.corpora.extracting.{module}")
        yield from extractor.read(path)

    return Format(name=name, documents=read, holds_articles=True)


_MODULES = {"text": "plain", "markdown": "markdown", "rst": "restructured", "html": "html", "pdf": "pdf", "docx": "docx", "epub": "epub"}
READERS = {each.name: each for each in (*_FORMATS, *(_documents(name, module) for name, module in _MODULES.items()))}


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

    fields, ways = own.fields, (records, own.documents and documents)
    if fields is not None and fields.decode is not None:
        fields = replace(fields, decode=running(plugged, "when it decodes a text")(fields.decode))
    return replace(own, name=plugged.name, records=ways[0], documents=ways[1], fields=fields, code_sha256=plugged.sha256)


_DOCUMENT = "Document(id, title, text, pages, headings)"
_RECORD = "(number, {'id': …, 'title': …, 'text': …})"


def _is_record(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], int) and isinstance(item[1], Mapping)


def _is_document(item: object) -> bool:
    if not isinstance(item, Document):
        return False
    values: tuple[Any, ...] = item  # of any types: a plug-in has made them
    *texts, pages, headings = values
    are_sequences = isinstance(pages, Sequence) and isinstance(headings, Sequence)
    return are_sequences and all(isinstance(text, str) for text in texts) and all(map(_is_mark, (*pages, *headings)))


def _is_mark(mark: Any) -> bool:  # noqa: ANN401 - a page or a heading of a plug-in
    if isinstance(mark, Heading):
        return all(map(isinstance, mark, (int, int, str)))
    return isinstance(mark, int)


def detect_format(path: Path, given: FieldNames = FieldNames()) -> str:  # noqa: B008 - immutable
    """Return the name of a file's format, detected from its first bytes or its first non-blank line.

    Args:
        path: the file.
        given: names of the user's for fields, which records have in JSON Lines or a table.

    Raises:
        InputError: the file cannot be read, or its format is none of ``READERS``.
    """
    if (found := table_format(path) or long_json(path)) is not None:
        return found
    number, first = next(((number, line.strip()) for number, line in read_lines(path, _fail_detection) if line.strip()), (0, ""))
    if not first:
        raise InputError(f"{path} holds only blank lines")
    try:
        record: dict[str, Any] = json.loads(first) if first.startswith("{") else {}
    except (ValueError, RecursionError) as error:
        if _CONTINUED.fullmatch(first):
            return "json"
        _fail_detection(BadRecord(str(path), number, f"{explain_json_error(error)} (one record a line is needed)"))
    if given.text is not None and (given.text in record or given.text in split_header(first)[1]):
        return "records" if record else "csv"
    for name, each in reversed(READERS.items()):
        if each.matches(first, record):
            return name
    if first.startswith("{"):
        raise InputError(
            f"{path}, line {number}: has the fields {', '.join(record) or 'none':.200}; "
            "needed are id, title, text (or _id, title, text; or id, contents), or --text-field names that of the text"
        )
    raise InputError(
        f"{path} begins with {first[:40]!r}, which is none of the formats {', '.join(READERS)}; "
        'one record a line is needed, such as {"id": …, "title": …, "text": …}, or name the format with --format'
    )


def _fail_detection(bad: BadRecord) -> NoReturn:
    raise InputError(f"{bad.file}, line {bad.line}: {bad.reason}; correct the file, or name its --format and add --on-error skip")
