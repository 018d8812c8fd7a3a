"""SQLite's FTS5 through Python's ``sqlite3``, given the terms of this project's analysis, in passages and questions.

Its ``bm25`` has fixed parameters, k1 1.2 and b 0.75, and computes the score of every row with a term of the question. The table has no
stored text. Its time includes the parsing of the ready query, and the row and the score of every hit.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import local
from typing import Any

from benchmarks.engines.kinds import Engine, Kind, pad_hits
from benchmarks.engines.terms import analysed, letters_and_digits
from wikidx.indexer.analysis.english import english
from wikidx.indexer.base import Hits

_FOLDER, _FILE = "sqlite", "passages.sqlite"
_CREATE = "CREATE VIRTUAL TABLE passages USING fts5(terms, content='', tokenize='ascii')"
_SEARCH = "SELECT rowid, -rank FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?"
_CACHE_KB = 1_000_000

RawHits = tuple[list[int], list[float]]  # rows and scores


class SqliteEngine(Engine):
    """An open database, with a connection for each thread."""

    is_exhaustive = True

    def __init__(self, folder: Path, threads: int) -> None:
        self._path, self._opened = folder / _FOLDER / _FILE, local()
        self._pool = ThreadPoolExecutor(threads)
        self._map = self._pool.map if threads > 1 else map
        self._connection()

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions as queries; a term that comes twice counts twice."""
        self.questions = [" OR ".join(f'"{letters_and_digits(term)}"' for term in english(question)) for question in questions]

    def batch(self, span: slice, k: int) -> list[RawHits]:
        """Search for several questions, one after the other on each thread."""
        return list(self._map(partial(self._search, k=k), self.questions[span]))

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - rows and scores
        """Return them as arrays."""
        return pad_hits(found, k)

    def _search(self, query: str, k: int) -> RawHits:
        if not query:
            return [], []
        found = self._connection().execute(_SEARCH, (query, k)).fetchall()
        return [row for row, _ in found], [score for _, score in found]

    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._opened, "connection"):
            connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
            connection.execute(f"PRAGMA mmap_size = {os.path.getsize(self._path)}")
            self._opened.connection = connection
        opened: sqlite3.Connection = self._opened.connection
        return opened


def _build(folder: Path, _threads: int) -> Path:
    """Insert all passages in one transaction, on one thread, and merge what the table consists of."""
    path = folder / _FOLDER / _FILE
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    for command in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", f"PRAGMA cache_size = -{_CACHE_KB}", _CREATE, "BEGIN"):
        connection.execute(command)
    texts = analysed(letters_and_digits)
    connection.executemany("INSERT INTO passages(rowid, terms) VALUES (?, ?)", enumerate(texts))
    connection.execute("COMMIT")
    connection.execute("INSERT INTO passages(passages) VALUES ('optimize')")
    connection.close()
    return path.parent


SQLITE = Kind(build=_build, open=SqliteEngine)
