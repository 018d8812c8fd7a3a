"""BM25 with Lucene's scores. ``similarity`` has the arithmetic, ``files`` the file format, and ``search`` the kernels."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.artifacts.manifest import Manifest, Parameters
from wikidx.base.compiled import interpreted, kernel
from wikidx.base.machine.threads import n_threads
from wikidx.corpora.passage import Rows
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis import Analyzer, recorded_analyzer
from wikidx.indexer.analysis.dictionary import HashedTerms, find_all
from wikidx.indexer.base import Hits, Scores, check_k, empty_hits
from wikidx.indexer.indexes.kinds import Estimate, IndexBuild, IndexKind, Number, OpenOptions, Size
from wikidx.indexer.indexes.postings.cursors import Terms
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS, IndexFiles
from wikidx.indexer.indexes.postings.inversion import BYTES_PER_TEXT_BYTE, invert, max_parallel_blocks, text_bytes
from wikidx.indexer.indexes.postings.while_storing import FollowingInverter
from wikidx.indexer.scope import NO_WORDS, Scope

from .files import DTYPES, Documents
from .impacts import write_index
from .scoring import POSTINGS_PER_LOOKUP, ScoringTables
from .search import MAX_FILTERED_TERMS, Allowed, SearchTables, WorkingMemory, score_rows, search_query
from .similarity import denominators, idf, inverse_norms, mean_length

FORMAT_VERSION = 6

_DISK_BYTES_PER_TEXT_BYTE = 0.9
_QUERIES_PER_TASK = 32
_ALL_ROWS = Allowed(NO_WORDS, np.empty(0, dtype=np.int64))
_POSTINGS_WORTH_THREADS = 4_000_000  # number of postings that takes a few milliseconds, about the time to start threads


class BM25Index:
    """A memory-mapped BM25 index. Threads and processes may share it."""

    def __init__(self, files: IndexFiles, analyzer: Analyzer, k1: float, b: float, max_filtered_terms: int = MAX_FILTERED_TERMS) -> None:
        """Wrap the files of an index.

        Args:
            files: the mapped files.
            analyzer: the analyzer of the build.
            k1: BM25's k1, the same as in the build.
            b: BM25's b, the same as in the build.
            max_filtered_terms: see ``search.SearchTables``.
        """
        self._files, self._analyzer = files, analyzer
        documents = Documents(**files.further)
        self._n_rows_with_terms, n_tokens = documents.totals.tolist()
        self._free_memory = deque[WorkingMemory]()  # a deque is thread-safe
        inverse = inverse_norms(k1, b, mean_length(n_tokens, self._n_rows_with_terms))
        self._tables = SearchTables(ScoringTables(files.postings, documents, denominators(inverse)), max_filtered_terms)

    def __len__(self) -> int:
        return self._files.postings.n_rows

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> Hits:
        """Return the k rows with the highest scores above 0 for each query, of all rows or of a scope.

        Scores equal those of Lucene's BM25Similarity bit by bit. They depend neither on the batch nor on the scope. A repeated query term
        counts each time. A large batch is distributed over the CPUs.

        Raises:
            ValueError: k < 1.
            InputError: the analyzer fails for a query.
            ArtifactCorrupt: the data of a query's terms is corrupt.
        """
        check_k(k)
        hits = empty_hits(len(queries), k)
        n_allowed = len(self if scope is None else scope)
        depth = min(k, n_allowed)
        if not depth:
            return hits
        allowed = _ALL_ROWS
        if scope is not None:
            allowed = Allowed(scope.words, scope.rows() if n_allowed * POSTINGS_PER_LOOKUP < len(self) else _ALL_ROWS.rows)

        found = hits if depth == k else empty_hits(len(queries), depth)  # for parts of rows all kernels would be compiled once more

        def work(batch: slice, terms: Terms, starts: NDArray[np.int64], memory: WorkingMemory) -> None:
            _search_queries(self._tables, terms, starts, allowed, memory, Hits(found.rows[batch], found.scores[batch]))

        self._map_queries(queries, work)
        if found is not hits:
            hits.rows[:, :depth], hits.scores[:, :depth] = found
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return each query's scores for its rows, which must ascend; -inf for a row without a term of the query.

        The scores equal those of ``search`` bit by bit.

        Raises:
            InputError: the analyzer fails for a query.
            ArtifactCorrupt: the data of a query's terms is corrupt.
        """
        scores = [np.empty(len(query_rows), dtype=np.float32) for query_rows in rows]

        def work(batch: slice, terms: Terms, starts: NDArray[np.int64], memory: WorkingMemory) -> None:
            for query_rows, out, start, end in zip(rows[batch], scores[batch], starts.tolist(), starts[1:].tolist(), strict=False):
                query_terms = Terms(terms.numbers[start:end], terms.frequent[start:end], terms.weights[start:end])
                score_rows(self._tables, query_terms, memory, query_rows, out)

        self._map_queries(queries, work)
        return scores

    def _map_queries(self, queries: Sequence[str], work: Callable[[slice, Terms, NDArray[np.int64], WorkingMemory], None]) -> None:
        """Run ``work`` over batches of queries, in several threads if the terms have many postings.

        Args:
            queries: the queries.
            work: called with a slice of the queries, the terms of all queries, the start of the terms of each query in the slice, and
                working memory.
        """
        if not queries:
            return
        self._files.check_tables()
        with interpreted(sum(map(len, queries))):
            terms, starts = self._terms(queries)
        n_postings = self._n_postings(terms)
        n_steps = n_postings + 4 * len(queries) * len(self)  # rows are read for scores, maxima, threshold and candidates
        is_long = n_postings > _POSTINGS_WORTH_THREADS
        queries_per_task = max(1, min(_QUERIES_PER_TASK, -(-len(queries) // n_threads()))) if is_long else len(queries)

        def task(first: int) -> None:
            batch_starts = starts[first : first + queries_per_task + 1]
            self._files.check(terms.numbers[batch_starts[0] : batch_starts[-1]], terms.frequent[batch_starts[0] : batch_starts[-1]])
            memory = self._take_memory()
            with interpreted(n_steps):
                work(slice(first, first + queries_per_task), terms, batch_starts, memory)
            self._free_memory.append(memory)

        tasks = range(0, len(queries), queries_per_task)
        if len(tasks) == 1:
            task(0)
        else:
            list(_thread_pool(os.getpid(), n_threads()).map(task, tasks))  # raises a thread's exception

    def _n_postings(self, terms: Terms) -> int:
        """Return the approximate number of postings of terms. Those of frequent terms count half, because they are read sequentially."""
        starts = self._files.postings.posting_starts
        return int((starts[terms.numbers + 1] - starts[terms.numbers]).sum()) + len(self) * int((terms.frequent >= 0).sum()) // 2

    def _take_memory(self) -> WorkingMemory:
        try:
            return self._free_memory.pop()
        except IndexError:
            return WorkingMemory(np.zeros(BLOCK_ROWS, np.uint16), np.full(BLOCK_ROWS, -1, np.int32))

    def _terms(self, queries: Sequence[str]) -> tuple[Terms, NDArray[np.int64]]:
        """Return the queries' terms that are in the index, and the start of each query's terms, shape (len(queries) + 1,)."""
        postings = self._files.postings
        analysed = self._analyzer.new_numbering()
        occurrences, ends = analysed.add(queries)
        table = analysed.table()
        known = find_all(HashedTerms(postings.pool, postings.ends, postings.slots), table.pool, table.ends)
        numbers, counts, starts = _distinct(occurrences, ends, known)
        frequent = np.searchsorted(postings.frequent_terms, numbers)
        is_frequent = np.append(postings.frequent_terms, -1)[frequent] == numbers
        frequencies = postings.posting_starts[numbers + 1] - postings.posting_starts[numbers]
        frequencies[is_frequent] = postings.frequent_term_dfs[frequent[is_frequent]]
        weights = counts.astype(np.float32) * idf(self._n_rows_with_terms, frequencies)
        return Terms(numbers, np.where(is_frequent, frequent, -1), weights), starts


@functools.cache
def _thread_pool(process: int, n: int) -> ThreadPoolExecutor:
    """Return the n threads of a process, which a fork does not inherit; in a busy server, starting threads takes longer than a search."""
    return ThreadPoolExecutor(n, f"bm25-{process}")


@kernel
def _distinct(
    occurrences: NDArray[np.int32], ends: NDArray[np.int64], known: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct terms of each query in order of appearance, their counts, and the start of each query's terms.

    ``known`` maps the numbers in ``occurrences`` to the numbers of terms in the index. Terms with -1 are left out.
    """
    numbers, counts = np.empty(len(occurrences), np.int64), np.empty(len(occurrences), np.int64)
    starts, positions = np.zeros(len(ends) + 1, np.int64), np.full(len(known), -1, np.int64)
    n = start = 0
    for q in range(len(ends)):
        for occurrence in occurrences[start : ends[q]]:
            if known[occurrence] < 0:
                continue
            if positions[occurrence] < starts[q]:  # not yet in this query
                positions[occurrence] = n
                numbers[n], counts[n] = known[occurrence], 0
                n += 1
            counts[positions[occurrence]] += 1
        start = ends[q]
        starts[q + 1] = n
    return numbers[:n], counts[:n], starts


@kernel
def _search_queries(  # noqa: PLR0913
    tables: SearchTables, terms: Terms, starts: NDArray[np.int64], allowed: Allowed, memory: WorkingMemory, hits: Hits
) -> None:
    """Write the hits of consecutive queries."""
    for q in range(len(starts) - 1):
        start, end = starts[q], starts[q + 1]
        query_terms = Terms(terms.numbers[start:end], terms.frequent[start:end], terms.weights[start:end])
        search_query(tables, query_terms, allowed, memory, hits.rows[q], hits.scores[q])


def write(build: IndexBuild[PassageStore]) -> Mapping[str, int]:
    """Build the index of a store; see ``IndexKind.write``."""
    blocks, analyzer = build.staging / INTERMEDIATE, recorded_analyzer(build.parameters, build.staging)
    with interpreted(text_bytes(build.source)):
        dictionary = invert(build.source, analyzer, blocks, build.progress)
        return write_index(build.staging, blocks, dictionary, *_k1_and_b(build.parameters))


def open_bm25(path: Path, manifest: Manifest, options: OpenOptions) -> BM25Index:
    """Open a built index; see ``IndexKind.open``.

    Raises:
        ArtifactCorrupt: a file does not match its manifest.
        ArtifactMismatch: see ``recorded_analyzer``.
    """
    analyzer = recorded_analyzer(manifest.recipe.parameters, path)
    return BM25Index(IndexFiles(path, manifest, DTYPES), analyzer, *_k1_and_b(manifest.recipe.parameters))


def _k1_and_b(parameters: Parameters) -> tuple[float, float]:
    return float(parameters["k1"] or 0), float(parameters["b"] or 0)


def _estimate(size: Size) -> Estimate:
    """Return the estimate of a build. The vocabulary is in memory; blocks and the merged index are on disk together."""
    n_bytes = size.n_rows * size.passage_bytes
    block_bytes = min(BLOCK_ROWS, size.n_rows) * size.passage_bytes
    n_blocks = max(1, min(max_parallel_blocks(block_bytes), -(-size.n_rows // BLOCK_ROWS)))
    memory_bytes = 0.2e9 + 0.08 * n_bytes + (n_blocks + 1) * BYTES_PER_TEXT_BYTE * block_bytes
    return Estimate(_DISK_BYTES_PER_TEXT_BYTE * n_bytes, memory_bytes)


KIND = IndexKind(
    name="bm25",
    source="passages",
    format_version=FORMAT_VERSION,
    parameters=lambda size: {},
    write=write,
    open=open_bm25,
    estimate=_estimate,
    takes_analyzer=True,
    follow=lambda staging, parameters: FollowingInverter(staging / INTERMEDIATE, recorded_analyzer(parameters, staging)),
    numbers={"k1": Number(0.9, 1000), "b": Number(0.4, 1)},  # Pyserini's defaults; far above 1000, float32 scores become imprecise
)
