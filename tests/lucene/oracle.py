"""A Lucene index over passages, by Anserini's program, and what a plain ``IndexSearcher`` finds in it.

Scores are those of Lucene's ``BM25Similarity``. As in Anserini, a query has one clause per distinct term, weighted by the term's count in
the query. Unlike Anserini's searchers, this one does not round scores, and breaks ties by row, not by id.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Hits, empty_hits

from .jvm import index_collection, java_class, java_text, read_json

K1 = 0.9
B = 0.4
_LUCENE = "org.apache.lucene"


def contents(passage: Passage) -> str:
    """Return the indexed text of a passage."""
    return f"{passage.title}\n{passage.text}"


def index_passages(
    passages: Iterable[Passage], index: Path, *options: str, threads: int = 2, own_ids: bool = False, heap_bytes: int = 1 << 30
) -> Path:
    """Index passages, with their rows as ids or with their own ids, and return the index. Threads shuffle the documents."""
    shutil.rmtree(index, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=index.parent) as source:
        with ExitStack() as opened:
            files = [opened.enter_context(Path(source, f"{number}.jsonl").open("w", encoding="ascii")) for number in range(threads)]
            for row, passage in enumerate(passages):
                record = {"id": passage.id if own_ids else str(row), "contents": contents(passage)}
                files[row % threads].write(json.dumps(record) + "\n")
        return index_collection(Path(source), index, "-threads", str(threads), *(options or ("-optimize",)), heap_bytes=heap_bytes)


class Oracle:
    """An open index. Scores are Lucene's own, float32; ties go to the lower row, whatever the order of Lucene's documents."""

    def __init__(self, path: Path) -> None:
        directory = java_class(f"{_LUCENE}.store.FSDirectory").open(java_class("java.nio.file.Paths").get(str(path)))
        reader = java_class(f"{_LUCENE}.index.DirectoryReader").open(directory)
        stored, only_id = reader.storedFields(), java_class("java.util.Collections").singleton("id")
        self._rows = np.array([int(stored.document(document, only_id).get("id")) for document in range(reader.maxDoc())], dtype=np.int64)
        searcher_class = java_class(f"{_LUCENE}.search.IndexSearcher")
        searcher_class.setMaxClauseCount(2**31 - 1)
        self._searcher = searcher_class(reader.getContext())
        self._analyzer = java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance("porter")
        self._generator = java_class("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self.set_similarity(K1, B)

    def set_similarity(self, k1: float, b: float) -> None:
        """Score by BM25 with other parameters."""
        self._searcher.setSimilarity(java_class(f"{_LUCENE}.search.similarities.BM25Similarity")(k1, b))

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k rows with the highest scores for each query. A query with ties at its k-th score is searched again, deeper."""
        hits = empty_hits(len(queries), k)
        for line, query in enumerate(queries):
            parsed = self._generator.buildQuery("contents", self._analyzer, java_text(query))
            depth = min(k + 1, len(self._rows))
            found = self._search(parsed, depth)
            while k < depth == len(found) < len(self._rows) and found[k - 1]["score"] == found[-1]["score"]:
                depth = min(2 * depth, len(self._rows))
                found = self._search(parsed, depth)
            rows = self._rows[[hit["doc"] for hit in found]]
            scores = np.array([hit["score"] for hit in found], dtype=np.float32)
            best = np.lexsort((rows, -scores))[:k]
            hits.rows[line, : len(best)], hits.scores[line, : len(best)] = rows[best], scores[best]
        return hits

    def _search(self, query: Any, depth: int) -> list[dict[str, Any]]:  # noqa: ANN401 - a Query
        found: list[dict[str, Any]] = json.loads(read_json(self._searcher.search(query, depth)))["scoreDocs"]
        return found
