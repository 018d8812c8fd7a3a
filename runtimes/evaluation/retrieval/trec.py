"""TREC files: runs (rankings with scores) and qrels (relevance judgements), as in trec_eval, ir_measures and ranx.

    run      question  Q0  passage  rank  score  tag        the rank is ignored: scores decide
    qrels    question  0   passage  relevance               a whole number; above 0 is relevant

BEIR's qrels have no second column, and begin with a header: ``query-id corpus-id score``. Columns are separated by spaces or tabs.
trec_eval sorts by descending float32 score, breaks ties by descending id as text, and ignores the ranks in the file. ``trec_order``
returns this order.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.corpora.artifacts.durable import atomic_write
from wikidx.corpora.errors import InputError
from wikidx.corpora.reading.compression import open_decompressed, read_lines
from wikidx.retrievers.rendering import check_trec_name, trec_lines

Run = Mapping[str, Mapping[str, float]]  # question -> passage -> score
Qrels = Mapping[str, Mapping[str, int]]  # question -> passage -> relevance

_RUN_COLUMNS, _QRELS_COLUMNS = 6, 4
_BEIR_HEADER = ["query-id", "corpus-id", "score"]


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Read a run, plain or compressed.

    Raises:
        InputError: the file cannot be read or is empty, a line does not have six columns, a score is not a finite number, or a
            question has the same passage twice.
    """
    run: dict[str, dict[str, float]] = {}
    for line, (question, _, passage, _, score, _) in _lines(path, _RUN_COLUMNS):
        _add(run, question, passage, _score(score, line), line)
    return run


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read TREC's or BEIR's qrels, plain or compressed.

    Raises:
        InputError: the file cannot be read or is empty, a line has the wrong number of columns, a relevance is not a whole number, or a
            question has the same passage twice.
    """
    qrels: dict[str, dict[str, int]] = {}
    for line, (question, *_, passage, relevance) in _lines(path, _QRELS_COLUMNS, _BEIR_HEADER):
        if not re.fullmatch(r"[+-]?\d{1,9}", relevance, re.ASCII):
            raise InputError(f"{line}: the relevance is '{relevance:.40}', not a whole number")
        _add(qrels, question, passage, int(relevance), line)
    return qrels


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run. The ranks of a question's passages are their positions in the mapping.

    Raises:
        InputError: a question id, a passage id or the tag is empty or contains white space, which TREC's format does not allow.
        OSError: the file cannot be written.
    """
    _write(path, trec_lines(run, tag))


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Write qrels; raises as ``write_run`` does."""
    _write(
        path,
        (
            f"{check_trec_name(question)} 0 {check_trec_name(passage)} {relevance}\n"
            for question, judged in qrels.items()
            for passage, relevance in judged.items()
        ),
    )


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Return the passage ids of a question in trec_eval's order; ``scores`` is passage -> score."""
    by_id = sorted(scores, reverse=True)
    return sorted(by_id, key=lambda passage: -np.float32(scores[passage]))


def _lines(path: Path, n_columns: int, header: Sequence[str] = ()) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the location and columns of each non-blank line. A line equal to ``header`` at the beginning sets the number of columns."""
    n_lines, needed = 0, f"{n_columns} are needed" + (f", or 3 after the header '{' '.join(header)}'" if header else "")
    with open_decompressed(path) as file:
        for number, line in enumerate(read_lines(file, str(path)), 1):
            location = f"{path}, line {number}"
            try:
                columns = [column.decode() for column in line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").split()]
            except UnicodeDecodeError as error:
                raise InputError(f"{location}: not UTF-8 ({error})") from error
            if not columns:
                continue
            if columns == header and not n_lines:
                n_columns, needed, header = len(header), f"the header has {len(header)}", ()
                continue
            if len(columns) != n_columns:
                raise InputError(f"{location}: {len(columns)} columns, {needed}: {' '.join(columns):.80}")
            n_lines += 1
            yield location, columns
    if not n_lines:
        raise InputError(f"{path} has no lines")


def _score(text: str, line: str) -> float:
    try:
        score = float(text)
    except ValueError as error:
        raise InputError(f"{line}: the score is '{text:.40}', not a number") from error
    if not math.isfinite(score):
        raise InputError(f"{line}: the score is {text:.40}, which cannot be ordered")
    return score


def _add(table: dict[str, dict[str, Any]], question: str, passage: str, value: float, line: str) -> None:
    values = table.setdefault(question, {})
    if passage in values:
        raise InputError(
            f"{line}: the passage '{passage:.80}' is listed before for the question '{question:.80}': trec_eval accepts it once"
        )
    values[passage] = value


def _write(path: Path, lines: Iterator[str]) -> None:
    with atomic_write(path) as file:
        for line in lines:
            file.write(line.encode())
