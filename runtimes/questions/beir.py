"""The questions of a folder of BEIR: queries.jsonl, and qrels for each split, as a set of questions that is known by its corpus's name."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.home import home
from wikidx.base.errors import InputError
from wikidx.corpora.reading.containers import json_lines, read_lines
from wikidx.corpora.reading.readers import fail

from .base import Question, gold
from .sets import find_set

QUERIES = "queries.jsonl"


def beir_questions(folder: Path) -> Iterator[tuple[str, list[Question]]]:
    """Yield each split of a folder of BEIR with its questions, whose gold passages have their relevance; none if it has no queries.

    Raises:
        InputError: a file cannot be read.
    """
    if not (folder / QUERIES).is_file():
        return
    records = [record for _, record in json_lines(folder / QUERIES, fail)]
    for split in sorted((folder / "qrels").glob("*.tsv")):
        levels = _read_qrels(split)
        asked = [(str(record.get("_id")), record) for record in records if str(record.get("_id")) in levels]
        yield split.stem, [Question(name, str(record.get("text", "")), (), _gold(levels[name])) for name, record in asked]


def _gold(levels: Mapping[str, int]) -> Mapping[str, Any]:
    return gold(passages=[passage for passage, level in levels.items() if level > 0], relevance=levels)


def _read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Return question -> passage -> relevance."""
    levels = dict[str, dict[str, int]]()
    for number, row in enumerate(csv.reader((line for _, line in read_lines(path, fail)), delimiter="\t"), 1):
        try:
            question, passage, level = row
            levels.setdefault(question, {})[passage] = int(level)
        except ValueError:
            if number > 1:  # which is a header
                raise InputError(f"{path}, line {number}: not a question, a passage and a whole number, divided by tabs") from None
    return levels


def store_questions(folder: Path, corpus: str) -> list[str]:
    """Write the questions of a folder of BEIR to the data home, and return their names; none for a name of a published set.

    Raises:
        InputError: see ``beir_questions``.
    """
    from .fetching import write_questions

    if find_set(corpus) is not None:
        return []
    names = list[str]()
    for split, questions in beir_questions(folder):
        path = home() / "questions" / corpus / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_questions(path, questions)
        names.append(f"{corpus}:{split}")
    return names
