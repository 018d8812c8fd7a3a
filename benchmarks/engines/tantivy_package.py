"""Tantivy through its Python package, given the terms of this project's analysis, in passages and questions.

Its BM25 has fixed parameters, k1 1.2 and b 0.75, and lengths of one byte as Lucene's. Segments are merged by its own policy. The
questions' query objects are made beforehand, in its favour; its time includes the row, from a fast field, and the score of every hit.
"""

from __future__ import annotations

import importlib
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.engines.kinds import Engine, Kind, pad_hits, require
from benchmarks.engines.terms import analysed
from wikidx.indexer.analysis.english import english
from wikidx.indexer.base import Hits

_FOLDER = "tantivy"
_TERMS, _ROW = "terms", "row"
_OPTION = "freq"  # no positions
_HEAP_BYTES = 1_000_000_000

RawHits = tuple[list[int], list[float]]  # rows and scores


class TantivyEngine(Engine):
    """An open index."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._index = _package().Index.open(str(folder / _FOLDER))
        self._searcher = self._index.searcher()
        self._pool = ThreadPoolExecutor(threads)
        self._map = self._pool.map if threads > 1 else map  # its search releases Python's lock

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions as queries."""
        self.questions = [self._query(english(question)) for question in questions]

    def batch(self, span: slice, k: int) -> list[RawHits]:
        """Search for several questions, one after the other on each thread."""
        return list(self._map(partial(self._search, k=k, count=False), self.questions[span]))

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - rows and scores
        """Return them as arrays."""
        return pad_hits(found, k)

    def exhaustive(self, n: int, k: int) -> Hits:
        """Return the k best by a search that also counts all rows with a term of the question, and so must visit them."""
        return pad_hits([self._search(query, k=k, count=True) for query in self.questions[:n]], k)

    def _search(self, query: Any, k: int, *, count: bool) -> RawHits:  # noqa: ANN401 - the package's query
        hits = self._searcher.search(query, k, count=count).hits
        return self._searcher.fast_field_values(_ROW, [address for _, address in hits]), [score for score, _ in hits]

    def _query(self, terms: Sequence[str]) -> Any:  # noqa: ANN401 - the package's query
        package = _package()
        clauses = [(package.Query.term_query(self._index.schema, _TERMS, term, _OPTION), n) for term, n in Counter(terms).items()]
        weighted = [clause if n == 1 else package.Query.boost_query(clause, float(n)) for clause, n in clauses]
        return package.Query.boolean_query([(package.Occur.Should, clause) for clause in weighted])


def _build(folder: Path, threads: int) -> Path:
    package, path = _package(), folder / _FOLDER
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    schema = package.SchemaBuilder()
    schema.add_text_field(_TERMS, stored=False, tokenizer_name="whitespace", index_option=_OPTION)
    schema.add_unsigned_field(_ROW, fast=True)
    writer = package.Index(schema.build(), path=str(path)).writer(heap_size=_HEAP_BYTES, num_threads=threads)
    for row, terms in enumerate(analysed()):
        document = package.Document()
        document.add_text(_TERMS, terms)
        document.add_unsigned(_ROW, row)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    return path


def _package() -> Any:  # noqa: ANN401 - a module without types
    return importlib.import_module("tantivy")


TANTIVY = Kind(build=_build, open=TantivyEngine, load=_package, check=partial(require, "tantivy", "bench"))
