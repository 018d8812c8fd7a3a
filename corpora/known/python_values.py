"""The corpus of passages that are given as Python values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from wikidx.base.artifacts.home import check_name
from wikidx.base.errors import InputError
from wikidx.base.plugins import plug_in_names
from wikidx.base.validation import check_iterable
from wikidx.corpora import CORPORA
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, OnBad, Passage
from wikidx.corpora.reading.document import Document, LocatedDocument
from wikidx.corpora.reading.fields import FieldNames, choose_fields
from wikidx.corpora.reading.records import FieldMap
from wikidx.corpora.reading.splitters import NO_SPLIT, Split, Tokenizer
from wikidx.corpora.reading.splitters import split as split_documents
from wikidx.corpora.reading.tables import table_records

FORMAT = "python"
GivenPassage = str | Mapping[str, object] | Passage

_PLACE = "the given passages"
_DIGITS = 16  # number of digits of the checksum that identifies the passages


def given_corpus(
    passages: Iterable[GivenPassage],
    name: str,
    split: str | None = None,
    tokenizer: Tokenizer | None = None,
    fields: FieldNames = FieldNames(),  # noqa: B008 - immutable
) -> Corpus:
    """Return the corpus ``name`` of the given passages.

    Args:
        passages: texts, records with the fields of a JSON Lines corpus, ``Passage`` objects, or a table of pandas, polars or Arrow. The id
            of a text, or of a record without a field for it, is its position, from "0".
        name: name of the corpus.
        split: rule that splits texts into passages, such as "words:100"; see ``Split.parse``. None: texts are not split.
        tokenizer: what counts tokens, for the rule "tokens".
        fields: names of the fields of records that make a passage, where well-known names do not determine them.

    Raises:
        InputError: the name, the rule or a passage is invalid, or there are no passages.
        UnknownNameError: the rule is unknown.
    """
    by = Split.parse(split or NO_SPLIT, tokenizer)
    if name in CORPORA or name in plug_in_names("corpus"):
        raise InputError(f"'{name}' is the name of a corpus that idx knows: choose another one")
    passages = table_records(passages)
    check_iterable(passages, "passages", "a list of texts or records", "its records, frame.to_dict('records')", "its path, or its texts")
    given, unkept = list[Passage](), dict[str, None]()
    maps = dict[tuple[object, ...], FieldMap]()  # by the names of a record
    for number, passage in enumerate(passages):
        if isinstance(passage, Mapping):
            found, record_map = _of_record(passage, number, fields, maps)
            unkept |= dict.fromkeys(record_map.unkept(passage))
            given.append(found)
        else:
            given.append(_to_passage(passage, number))
    if not given:
        raise InputError("there are no passages: give at least one")
    _check_ids(given)
    located = [LocatedPassage(passage, _PLACE, number) for number, passage in enumerate(given, 1)]
    if by.rule != NO_SPLIT:
        located = [*split_documents((LocatedDocument(Document(*passage), file, number) for passage, file, number, _ in located), by)]
    reading = {"sha256": _digest(given), **by.parameters, "split": str(by)}
    reading.pop("words", None)
    return described_corpus(check_name(name), reading, located, unkept=tuple(unkept))


def described_corpus(
    name: str, reading: Mapping[str, str | int], passages: Sequence[LocatedPassage] | None = None, *, unkept: Sequence[str] = ()
) -> Corpus:
    """Return a corpus of passages given in Python; without ``passages``, its store can be opened, but not built.

    Args:
        name: name of the corpus.
        reading: checksum and splitting rule of the passages; see ``Corpus.reading``.
        passages: the passages; None: they are not available any more.
        unkept: fields of the given records that passages do not keep.
    """

    def read(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        if passages is None:
            raise InputError(f"'{name}' was built from passages given in Python: build it there again")
        return iter(passages)

    return Corpus(
        name=name,
        summary="passages given in Python",
        read=read,
        n_passages=None if passages is None else len(passages),
        find_unkept=lambda: unkept,
        reading={"format": FORMAT, **reading},
    )


def _to_passage(given: GivenPassage, number: int) -> Passage:
    if isinstance(given, Passage):
        return given
    if isinstance(given, str):
        return Passage(str(number), "", given)
    raise InputError(f"passage {number} is a {type(given).__name__}: give a text, or a record with id, title and text")


def _of_record(
    record: Mapping[str, object], number: int, names: FieldNames, maps: dict[tuple[object, ...], FieldMap]
) -> tuple[Passage, FieldMap]:
    """Return the passage in a record, and the map of its fields, which those with the same names share."""
    try:
        fields = maps.get(tuple(record)) or maps.setdefault(tuple(record), choose_fields(record, names))
        return fields.passage({"id": str(number), **record} if fields.is_numbered else record), fields
    except (ValueError, InputError) as error:
        raise InputError(f"passage {number}: {error}") from None


def _check_ids(passages: Iterable[Passage]) -> None:
    numbers = dict[str, int]()
    for number, passage in enumerate(passages):
        first = numbers.setdefault(passage.id, number)
        if first != number:
            raise InputError(f"passage {number} has the id {passage.id!r:.80}, which is already that of passage {first}")


def _digest(passages: Iterable[Passage]) -> str:
    sha256 = hashlib.sha256()
    for passage in passages:
        for field in passage:
            content = field.encode(errors="surrogatepass")
            sha256.update(len(content).to_bytes(8, "little") + content)
    return sha256.hexdigest()[:_DIGITS]
