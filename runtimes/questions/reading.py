"""Reading of question files, with detection of their format."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from wikidx.base.errors import InputError, UnknownNameError
from wikidx.base.plugins import check_free
from wikidx.base.registry import suggest
from wikidx.corpora.reading.compression import STANDARD_INPUT
from wikidx.runtimes.llms.text import replace_surrogates

from .base import Question, gold
from .formats import FORMATS, Format, find_format
from .given_passages import given_passages
from .kilt import parse_kilt
from .open_domain import count_nulls, parse_beir, parse_plain, split_article, unread_fields
from .own_formats import KIND, read_own_format
from .records import Record, read_records
from .sets import converted_path, find_set, own_set, published_sets
from .topics import TOPIC_FORMS

SAMPLE = "sample"

logger = logging.getLogger(__name__)


def read_questions(path: Path, format: str | None = None, *, with_passages: bool = False) -> list[Question]:
    """Return the questions of a file, in file order.

    Args:
        path: a file, plain or compressed with gzip, bzip2 or zstd.
        format: a name in ``FORMATS``, or of a plug-in; None: the format is detected from the first record.
        with_passages: whether to keep the passages that records give with their questions, which may take gigabytes.

    Raises:
        InputError: the file cannot be read or has no questions, a record is invalid, or two questions have the same id.
        UnknownNameError: the format is unknown.
    """
    if format is not None and format not in FORMATS:
        return read_own_format(path, format, with_passages=with_passages)
    positions: dict[str, str] = {}
    questions, n_nulls = list[Question](), 0
    with contextlib.closing(read_records(path)) as records:
        chosen, selected = _choose_format(path, records, format)
        for record in selected:
            question = chosen.read(record)
            if question.id in positions:
                raise record.error(f"the id '{question.id}' is that of {positions[question.id]} too: give each its own")
            positions[question.id] = record.position
            if not questions and chosen.read in (parse_beir, parse_kilt, parse_plain) and (unread := unread_fields(record, question)):
                names = replace_surrogates(", ".join(unread))
                logger.warning("%s: the first record has no known answer; its other fields: %.200s", path, names)
            n_nulls += count_nulls(record)
            questions.append(question._replace(passages=given_passages(record, question.id)) if with_passages else question)
    if not questions:
        raise InputError(f"{path} has no questions under '{chosen.split}', which the format {chosen.name} reads: name another format")
    if n_nulls:
        logger.warning("%s: %s of the answers are null, and left out", path, f"{n_nulls:,}")
    return chosen.complete(path, questions) if chosen.complete else questions


def detect_format(path: Path) -> str:
    """Return the name of a file's format, detected from the first record.

    Raises:
        InputError: the file cannot be read, has no questions, or is in no known format.
    """
    with contextlib.closing(read_records(path)) as records:
        return _choose_format(path, records, None)[0].name


def find_questions(name: str, format: str | None = None, *, with_passages: bool = False) -> list[Question]:
    """Return the questions of a file, else of the published set ``name``, or of the sample corpus if ``name`` is "sample".

    ``with_passages`` is passed to ``read_questions``.

    Raises:
        InputError: see ``question_file`` and ``read_questions``; or a format is given for the sample corpus.
        UnknownNameError: the format or the split of a set is unknown.
    """
    if name != SAMPLE or Path(name).exists():
        return read_questions(question_file(name), format, with_passages=with_passages)
    if format is not None:
        raise InputError(f"the format {format} is of a file, and there is none called '{SAMPLE}'")
    return sample_questions()


def question_file(name: str) -> Path:
    """Return the path of a file of questions, or ``-`` for standard input, else of the published set ``NAME`` or ``NAME:SPLIT``.

    Raises:
        InputError: there is neither, or the set has not been fetched.
        UnknownNameError: the set has no such split.
    """
    if Path(name) == STANDARD_INPUT or Path(name).exists():
        return Path(name)
    entry = find_set(name)
    if entry is None and (path := own_set(name)) is not None:
        return path
    if entry is None:
        near = suggest(name, {one.name for one in published_sets()})
        raise InputError(f"there is no file {name}" + (f", and no set of questions of this name: {near.strip()}" if near else ""))
    path = converted_path(entry)
    if not path.is_file():
        raise InputError(f"the questions '{entry.key}' have not been fetched: run 'idx questions {name}'")
    return path


def has_questions(name: str) -> bool:
    """Return whether a file, a fetched set, or the sample corpus has this name."""
    with contextlib.suppress(InputError, UnknownNameError):
        return name == SAMPLE or question_file(name).is_file()
    return False


def sample_questions() -> list[Question]:
    """Return the questions of the sample corpus. The gold ``passages`` are the ids of the evidence."""
    from wikidx.corpora.known import sample

    return [
        Question(item.id, item.question, item.answers, gold(passages=list(item.gold_ids), hops=item.hops)) for item in sample.questions()
    ]


def _choose_format(path: Path, unsplit: Iterable[Record], name: str | None) -> tuple[Format, Iterator[Record]]:
    """Return a file's format, and its records: those of the split that the format names, or all."""
    if name is not None:
        check_free(KIND, name)
    records = itertools.chain.from_iterable(map(split_article, unsplit))
    first = next(records, None)
    if first is None:
        raise InputError(f"{path} has no questions in a known form: {TOPIC_FORMS}")
    detected = find_format(first)
    chosen = detected if name is None else FORMATS[name]
    if not chosen.matches(first):
        raise InputError(
            f"{first.location} is not in the format {chosen.name} ({chosen.record}); it looks like {detected.name} ({detected.record})"
        )
    return chosen, _select_records(itertools.chain([first], records), chosen, type(first.value))


def _select_records(records: Iterable[Record], chosen: Format, value_type: type) -> Iterator[Record]:
    for record in records:
        if not chosen.selects(record):
            continue
        if not isinstance(record.value, value_type):
            raise record.error(f"{record.value!r:.40} is not an object with a 'question', as the first record is: {chosen.record}")
        yield record
