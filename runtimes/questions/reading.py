"""Reading of question files in any format."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from wikidx.corpora.errors import InputError
from wikidx.corpora.registry import near_names

from .base import Question, gold
from .formats import FORMATS, Format
from .open_domain import of_article
from .records import Record, read_records

SAMPLE = "sample"


def read_questions(path: Path, format: str | None = None) -> list[Question]:
    """Return the questions of a file, in file order.

    Args:
        path: plain, or compressed with gzip, bzip2 or zstd.
        format: a name in ``FORMATS``; None: detected from the first record.

    Raises:
        InputError: the file cannot be read or has no questions, a record is invalid, or two have the same id.
        UnknownNameError: there is no such format.
    """
    kind, records = _opened(path, format)
    places: dict[str, str] = {}
    questions = list[Question]()
    for record in records:
        question = kind.read(record)
        if question.id in places:
            raise InputError(f"{record.where}: the id '{question.id}' is that of {places[question.id]} too: give each its own")
        places[question.id] = record.place
        questions.append(question)
    if not questions:
        raise InputError(f"{path} has no questions under '{kind.split}', which --format {kind.name} reads: name another format")
    return kind.complete(path, questions) if kind.complete else questions


def detect_format(path: Path) -> str:
    """Detect a file's format from its first record; raises as ``read_questions``."""
    return _opened(path, None)[0].name


def find_questions(named: str, format: str | None = None) -> list[Question]:
    """Return the questions of a file, or for "sample", if there is no such file, those on the sample corpus.

    Raises:
        InputError, UnknownNameError: as ``read_questions``; or a format is given for the sample.
    """
    if named != SAMPLE or Path(named).exists():
        return read_questions(Path(named), format)
    if format is not None:
        raise InputError(f"--format {format} is of a file, and there is none called '{SAMPLE}'")
    return sample_questions()


def sample_questions() -> list[Question]:
    """Return the questions on the sample corpus; ``passages`` are those with the evidence."""
    from wikidx.corpora.known import sample

    return [Question(one.id, one.question, one.answers, gold(passages=list(one.gold_ids))) for one in sample.questions()]


def _opened(path: Path, name: str | None) -> tuple[Format, Iterator[Record]]:
    """Return a file's format, and its records."""
    if name is not None and name not in FORMATS:
        raise near_names("format", name, FORMATS)
    records = itertools.chain.from_iterable(map(of_article, read_records(path)))
    first = next(records, None)
    if first is None:
        raise InputError(f"{path} has no questions")
    likely = next((one for one in FORMATS.values() if one.matches(first)), None)
    if likely is None:
        raise InputError(
            f"{first.where}: {first.value!r:.60} is no question in a known format: a table has {FORMATS['dpr-tsv'].record}, or a header"
        )
    kind = likely if name is None else FORMATS[name]
    if not kind.matches(first):
        raise InputError(f"{first.where} is not in the format {kind.name} ({kind.record}); it looks like {likely.name} ({likely.record})")
    return kind, _wanted(itertools.chain([first], records), kind, type(first.value))


def _wanted(records: Iterable[Record], kind: Format, alike: type) -> Iterator[Record]:
    for record in records:
        if kind.split and record.within and record.within[0] != kind.split:
            continue
        if not isinstance(record.value, alike):
            raise InputError(
                f"{record.where}: {record.value!r:.40} is not an object with a 'question', as the first record is: {kind.record}"
            )
        yield record
