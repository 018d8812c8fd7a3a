"""Runs (rankings with scores) and qrels (relevance judgements) in files of trec_eval, BEIR, MS MARCO, ir_measures and ranx.

    run         question  Q0  passage  rank  score  tag        the rank is ignored: scores decide
    MS MARCO's  question  passage  rank                        tabs; the score is the negative rank; with a fraction it is Tevatron's score
    qrels       question  0   passage  relevance               a whole number; above 0 is relevant
    BEIR's      question  passage  relevance                   tabs, or a header such as ``query-id corpus-id score``
    rows        {query-id, corpus-id, score}                   JSON Lines, of runs and of qrels
    ranx's      {question: {passage: number}}                  JSON, of runs and of qrels; MTEB's, within subset and split
    Pyserini's  {question: {contexts: [{docid, score}]}}       JSON; a record for each question too, as DPR's retriever and rank_llm have

Columns are separated by tabs, which leaves ids and tags their blanks, or by any white space. A line that begins with ``#`` and is none of
these is a comment. trec_eval sorts by descending float32 score, breaks ties by descending id as text, and ignores the ranks in the file.
``trec_order`` returns this order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from wikidx.base.artifacts.durable import atomic_write
from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import open_decompressed, read_lines
from wikidx.corpora.reading.json_text import JsonText
from wikidx.corpora.reading.records import QUESTION_IDS, find_field, plain_name
from wikidx.corpora.reading.tables import table_format
from wikidx.retrievers.trec_lines import trec_lines, trec_separator
from wikidx.runtimes.llms.text import replace_surrogates
from wikidx.runtimes.questions.fields import given_id, id_from, objects_of
from wikidx.runtimes.questions.records import Record, detect_records, read_records

Run = Mapping[str, Mapping[str, float]]  # question -> passage -> score
Qrels = Mapping[str, Mapping[str, int]]  # question -> passage -> relevance
Value = TypeVar("Value", int, float)

MAX_RELEVANCE = 9_999  # trec_eval's nDCG takes time that grows with the square of the largest relevance

_RUN, _QRELS, _SHORT = 6, 4, 3  # numbers of columns; the last: MS MARCO's runs, BEIR's qrels
_PLACES = {_RUN: (0, 2, 4), _QRELS: (0, 2, 3), _SHORT: (0, 1, 2)}  # of question, passage and value
_FIELDS = QUESTION_IDS, ("corpus-id", "doc_id", "docno", "docid", "pid", "passage_id"), ("score", "relevance", "label", "rel")
_NUMBER = re.compile(rb"[+-]?(\d|\.\d|inf|nan)", re.IGNORECASE)  # its beginning
_FRACTION = re.compile(r"[+-]?\d*\.(?!0*$)\d+(e[+-]?\d+)?")
_BEGINS_JSON = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*("|\}|$)')
_BEGINS_RECORDS = re.compile(rb'(\xef\xbb\xbf)?\s*(\[\s*(\{|$)|\{\s*"[\w-]+"\s*:\s*(["\d]|\{\s*"(text|qid)"\s*:))')
_OF_MTEB = "mteb_model_meta"  # beside the subsets
_LISTS = ("ctxs", "contexts", "candidates", "hits")  # DPR's retriever, Pyserini's conversion for it, rank_llm


_Entry = tuple[str, str, str, str]  # location, question, passage, and the score or relevance as text


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Read a run, plain or compressed.

    Raises:
        InputError: the file cannot be read or is empty, a line has the wrong number of columns, a score is not a finite number, or a
            question has the same passage twice.
    """
    return _read(path, _RUN, _score)


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read qrels, plain or compressed.

    Raises:
        InputError: the file cannot be read or is empty, a line has the wrong number of columns, a relevance is not a whole number or above
            ``MAX_RELEVANCE``, or a question has the same passage twice.
    """
    return _read(path, _QRELS, _whole_number)


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run. The ranks of a question's passages are their positions in the mapping.

    Raises:
        InputError: a name cannot be written; see ``trec_separator``.
        OSError: the file cannot be written.
    """
    _write(path, trec_lines(run, tag))


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Write qrels; raises as ``write_run`` does."""
    separator = trec_separator(name for question, judged in qrels.items() for name in (question, *judged))
    rows = ((question, "0", passage, f"{relevance}\n") for question, judged in qrels.items() for passage, relevance in judged.items())
    _write(path, map(separator.join, rows))


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Return the passage ids of a question in trec_eval's order; ``scores`` is passage -> score."""
    by_id = sorted(scores, reverse=True)
    with np.errstate(over="ignore"):  # beyond float32 all are equal
        return sorted(by_id, key=lambda passage: -np.float32(scores[passage]))


def _read(path: Path, n_columns: int, convert: Callable[[str, str], Value]) -> dict[str, dict[str, Value]]:
    table: dict[str, dict[str, Value]] = {}
    for location, question, passage, value in _entries(path, n_columns):
        values = table.setdefault(question, {})
        if passage in values:
            raise InputError(
                f"{location}: the passage '{passage:.80}' is listed before for the question '{question:.80}': trec_eval accepts it once"
            )
        values[passage] = convert(value, location)
    if not table:
        raise InputError(f"{path} has no lines")
    return table


def _entries(path: Path, n_columns: int) -> Iterator[_Entry]:
    """Yield the entries of a file of JSON, of a binary table, or of ``n_columns`` or three columns."""
    if table_format(path):
        yield from _record_entries(read_records(path))
        return
    with open_decompressed(path) as file:
        start = file.readline(64)  # which tells JSON
        if _BEGINS_RECORDS.match(start):
            yield from _record_entries(detect_records(file, str(path), start))
        elif _BEGINS_JSON.match(start):
            yield from _json_entries(JsonText(file.read, str(path), start), path)
        else:
            yield from _line_entries(read_lines(file, str(path), start), path, n_columns)


def _json_entries(text: JsonText, path: Path) -> Iterator[_Entry]:
    for question in text.keys():
        text.peek()
        position = f"line {text.line}"
        record = Record(text.parse_value(), str(path), position, 1)
        yield from () if question == _OF_MTEB else _scores(record, question)
    text.check_end()


def _record_entries(records: Iterator[Record]) -> Iterator[_Entry]:
    for record in records:
        value = record.value if isinstance(record.value, dict) else {}
        names = [name for of in _FIELDS if (name := find_field(value, of))]
        if len(names) == len(_FIELDS) and value.keys().isdisjoint(_LISTS):
            ids = [replace_surrogates(id_from(record, value[name])) for name in names[:2]]
            yield record.location, ids[0], ids[1], str(value[names[2]])
            continue
        question = given_id(value["query"] if isinstance(value.get("query"), dict) else value)
        if question is None or value.keys().isdisjoint(_LISTS):
            needed = f"the question's 'id', which DPR's retriever leaves out, and a list in {', '.join(_LISTS)}"
            raise record.error(f"of a run in JSON, each record needs {needed}; it has {', '.join(value):.200}")
        yield from _scores(record, id_from(record, question))


def _scores(record: Record, question: str) -> Iterator[_Entry]:
    """Yield the entries of a question's object of passage to number, or of a list of passages in it."""
    if not isinstance(record.value, dict):
        message = f"{record.value!r:.40} for '{question:.80}': an object of a number for each passage is needed"
        raise record.error(message)
    if record.value and all(isinstance(inner, dict) for inner in record.value.values()):  # a subset, or a split of one
        for name, inner in record.value.items():
            yield from _scores(record._replace(value=inner), name)
        return
    name = next((name for name in _LISTS if isinstance(record.value.get(name), list)), None)
    hits = [(id_from(record, hit.get("docid", given_id(hit))), hit.get("score")) for hit in objects_of(record, name)] if name else []
    for passage, score in hits if name else record.value.items():
        yield record.location, replace_surrogates(question), replace_surrogates(passage), str(score)


def _line_entries(lines: Iterator[bytes], path: Path, n_columns: int) -> Iterator[_Entry]:
    is_run, needed = n_columns == _RUN, f"{n_columns} are needed, or 3 with tabs"
    has_ranks: bool | None = None  # in a run of three columns
    for number, line in enumerate(lines, 1):
        columns, location = _split(line, n_columns), f"{path}, line {number}"
        if not is_run and len(columns) == _SHORT and _is_header(columns):
            n_columns, needed, columns = _SHORT, "the header has 3", []
        is_whole = len(columns) == n_columns or (len(columns) == _SHORT and b"\t" in line)
        places = _PLACES.get(len(columns), _PLACES[_SHORT])
        if not columns or (line.startswith(b"#") and not (is_whole and _NUMBER.match(columns[places[2]]))):
            continue
        try:
            texts = [column.decode() for column in columns]
        except UnicodeDecodeError as error:
            raise InputError(f"{location}: not UTF-8 ({error})") from error
        if not is_whole:
            raise InputError(f"{location}: {len(columns)} columns, {needed}: {' '.join(texts):.80}")
        question, passage, value = (texts[place] for place in places)
        if is_run and len(texts) == _SHORT and (has_ranks := _FRACTION.fullmatch(value) is None if has_ranks is None else has_ranks):
            value = f"-{_whole_number(value, location, 'rank', 10**9)}"
        yield location, question, passage, value


def _is_header(columns: list[bytes]) -> bool:
    names = [plain_name(column.decode(errors="replace")) for column in columns]
    return all(name in map(plain_name, of) for name, of in zip(names, _FIELDS, strict=True))


def _split(line: bytes, n_columns: int) -> list[bytes]:
    """Return the columns between tabs if they are ``n_columns`` or three, else between white space, with one for a tag of several words.

    Three that hold ``n_columns`` words end in a number, as a rank or a relevance is.
    """
    words = line.split()
    if b"\t" in line and not (len(words) == n_columns and words[1] in (b"0", b"Q0", b"q0")):
        cells = [cell.strip() for cell in line.split(b"\t")]
        ends_so = len(words) != n_columns or len(cells) == n_columns or (cells[-1] == words[-1] and _NUMBER.match(cells[-1]))
        if len(cells) in (n_columns, _SHORT) and all(cells) and ends_so:
            return cells
    has_long_tag = n_columns == _RUN < len(words) and words[3].isdigit() and not _NUMBER.match(words[5])
    return words[:_RUN] if has_long_tag else words


def _score(text: str, location: str) -> float:
    try:
        score = float(text)
    except ValueError as error:
        raise InputError(f"{location}: the score is '{text:.40}', not a number") from error
    if not math.isfinite(score):
        raise InputError(f"{location}: the score is {text:.40}, which cannot be ordered")
    return score


def _whole_number(text: str, location: str, name: str = "relevance", largest: int = MAX_RELEVANCE) -> int:
    match = re.fullmatch(r"([+-]?\d{1,18})(\.0*)?", text, re.ASCII)
    if match is None or int(match[1]) > largest:
        raise InputError(f"{location}: the {name} is '{text:.40}', not a whole number up to {largest:,}")
    return int(match[1])


def _write(path: Path, lines: Iterator[str]) -> None:
    with atomic_write(path) as file:
        for line in lines:
            file.write(line.encode())
