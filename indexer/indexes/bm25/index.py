"""BM25 with Lucene's results, on numba: ``similarity`` has the arithmetic, ``files`` the format, ``search`` the kernels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.artifacts.building import PIECES
from wikidx.corpora.artifacts.manifest import Manifest, Parameters
from wikidx.corpora.errors import ArtifactDamaged, ArtifactMismatch
from wikidx.corpora.store import PassageStore, Rows
from wikidx.indexer.analysis import ANALYZER, TermNumbers
from wikidx.indexer.base import Hits, Scores, check_k, no_hits
from wikidx.indexer.indexes.kinds import Cost, IndexBuild, IndexKind, OpenOptions, Size
from wikidx.indexer.machine.compiled import kernel
from wikidx.indexer.machine.threads import n_threads

from .bounds import Terms
from .dictionary import HashedTerms, find_all
from .files import BLOCK_ROWS, IndexFiles, check_byte_order
from .inversion import BYTES_PER_TEXT_BYTE, blocks_at_once, invert
from .merging import merge
from .search import MAX_FILTERED_TERMS, Space, Tables, answer, score_rows
from .similarity import denominators, idf, inverse_norms, mean_length

K1 = 0.9
B = 0.4

FORMAT_VERSION = 5
PARAMETERS: Parameters = {"analyzer": ANALYZER, "k1": K1, "b": B}

_TEXT_BYTES_PER_S = 10e6  # indexing speed on two cores (2026)
_SERIAL = 0.06  # share of that time which more cores do not shorten
_DISK_BYTES_PER_TEXT_BYTE = 0.9
_QUERIES_PER_TASK = 32
_POSTINGS_WORTH_THREADS = 4_000_000  # sum over all terms of a batch; a few milliseconds of work, about the time to start threads


class BM25Index:
    """A memory-mapped BM25 index; safe for threads and processes."""

    def __init__(self, files: IndexFiles, max_filtered_terms: int = MAX_FILTERED_TERMS) -> None:
        """Wrap the files of an index.

        Args:
            files: the mapped files.
            max_filtered_terms: maximum number of query terms for which the filter is used.
        """
        self._files = files
        self._n_filled, n_tokens = files.postings.totals.tolist()
        self._spaces = deque[Space]()  # unused ones; a deque is thread-safe
        inverse = inverse_norms(K1, B, mean_length(n_tokens, self._n_filled))
        self._tables = Tables(self._files.postings, denominators(inverse), max_filtered_terms)

    def __len__(self) -> int:
        return len(self._files.postings.lengths)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k rows with the highest scores above 0 for each query.

        Scores equal those of Lucene's BM25Similarity bit by bit; a repeated query term counts each time. They do not depend on the
        batch. Queries are spread over the CPUs if there is enough work.

        Raises:
            ValueError: k < 1.
            ArtifactDamaged: a part of the files that the queries need is corrupt.
        """
        check_k(k)
        hits = no_hits(len(queries), k)
        depth = min(k, len(self))
        if not depth:
            return hits

        def work(some: slice, terms: Terms, starts: NDArray[np.int64], space: Space) -> None:
            _answer_some(self._tables, terms, starts, space, Hits(hits.rows[some, :depth], hits.scores[some, :depth]))

        self._spread(queries, work)
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows, ascending, for each query: those of a search, bit by bit; -inf for a row with none of its terms.

        Raises:
            ArtifactDamaged: a part of the files that the queries need is corrupt.
        """
        scores = [np.empty(len(of_query), dtype=np.float32) for of_query in rows]

        def work(some: slice, terms: Terms, starts: NDArray[np.int64], space: Space) -> None:
            for of_query, out, start, end in zip(rows[some], scores[some], starts.tolist(), starts[1:].tolist(), strict=False):
                mine = Terms(terms.numbers[start:end], terms.dense[start:end], terms.weights[start:end])
                score_rows(self._tables, mine, space, of_query, out)

        self._spread(queries, work)
        return scores

    def _spread(self, queries: Sequence[str], work: Callable[[slice, Terms, NDArray[np.int64], Space], None]) -> None:
        """Run work over batches of queries on a thread pool.

        Args:
            queries: the queries.
            work: called with a range of queries, the terms of all queries, the start of each query's terms, and working memory.
        """
        if not queries:
            return
        self._files.check_tables()
        terms, starts = self._terms(queries)
        is_long = self._n_postings(terms) > _POSTINGS_WORTH_THREADS
        per_task = max(1, min(_QUERIES_PER_TASK, -(-len(queries) // n_threads()))) if is_long else len(queries)

        def task(first: int) -> None:
            mine = starts[first : first + per_task + 1]
            self._files.check(terms.numbers[mine[0] : mine[-1]], terms.dense[mine[0] : mine[-1]])
            space = self._free_space()
            work(slice(first, first + per_task), terms, mine, space)
            self._spaces.append(space)

        tasks = range(0, len(queries), per_task)
        if len(tasks) == 1:
            task(0)
        else:
            with ThreadPoolExecutor(n_threads()) as pool:
                list(pool.map(task, tasks))

    def _n_postings(self, terms: Terms) -> int:
        """Return the approximate number of postings of the terms; those of dense terms, which are read sequentially, count half."""
        starts = self._files.postings.posting_starts
        return int((starts[terms.numbers + 1] - starts[terms.numbers]).sum()) + len(self) * int((terms.dense >= 0).sum()) // 2

    def _free_space(self) -> Space:
        try:
            return self._spaces.pop()
        except IndexError:
            return Space(np.zeros(BLOCK_ROWS, np.uint16), np.full(BLOCK_ROWS, -1, np.int32))

    def _terms(self, queries: Sequence[str]) -> tuple[Terms, NDArray[np.int64]]:
        """Return the known terms of all queries, and the start of each query's terms, (len(queries) + 1)."""
        postings = self._files.postings
        analysed = TermNumbers()
        occurrences, ends = analysed.add(queries)
        table = analysed.table()
        known = find_all(HashedTerms(postings.pool, postings.ends, postings.slots), table.pool, table.ends)
        numbers, counts, starts = _distinct(occurrences, ends, known)
        dense = np.searchsorted(postings.dense_terms, numbers)
        is_dense = np.append(postings.dense_terms, -1)[dense] == numbers
        frequencies = postings.posting_starts[numbers + 1] - postings.posting_starts[numbers]
        frequencies[is_dense] = postings.dense_frequencies[dense[is_dense]]
        weights = counts.astype(np.float32) * idf(self._n_filled, frequencies)
        return Terms(numbers, np.where(is_dense, dense, -1), weights), starts


@kernel
def _distinct(
    occurrences: NDArray[np.int32], ends: NDArray[np.int64], known: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct known terms of each query in order of appearance, their counts, and the start of each query's terms."""
    numbers, counts = np.empty(len(occurrences), np.int64), np.empty(len(occurrences), np.int64)
    starts, places = np.zeros(len(ends) + 1, np.int64), np.full(len(known), -1, np.int64)
    n = start = 0
    for q in range(len(ends)):
        for occurrence in occurrences[start : ends[q]]:
            if known[occurrence] < 0:
                continue
            if places[occurrence] < starts[q]:  # not yet in this query
                places[occurrence] = n
                numbers[n], counts[n] = known[occurrence], 0
                n += 1
            counts[places[occurrence]] += 1
        start = ends[q]
        starts[q + 1] = n
    return numbers[:n], counts[:n], starts


@kernel
def _answer_some(tables: Tables, terms: Terms, starts: NDArray[np.int64], space: Space, hits: Hits) -> None:
    """Answer consecutive queries."""
    for q in range(len(starts) - 1):
        start, end = starts[q], starts[q + 1]
        mine = Terms(terms.numbers[start:end], terms.dense[start:end], terms.weights[start:end])
        answer(tables, mine, space, hits.rows[q], hits.scores[q])


def write(plan: IndexBuild[PassageStore]) -> Mapping[str, int]:
    """Build the index of a store; see ``IndexKind.write``."""
    check_byte_order()
    pieces = plan.staging / PIECES
    pieces.mkdir(exist_ok=True)
    dictionary = invert(plan.source, pieces, plan.progress)
    return merge(plan.staging, pieces, dictionary, K1, B)


def open_bm25(path: Path, manifest: Manifest, options: OpenOptions) -> BM25Index:
    """Open a built index; see ``IndexKind.open``.

    Raises:
        ArtifactDamaged: a file does not match its manifest.
        ArtifactMismatch: its analyzer is unknown.
    """
    check_byte_order()
    parameters = {name: manifest.recipe.parameters.get(name) for name in PARAMETERS}
    if parameters != PARAMETERS:
        raise ArtifactMismatch(f"{path} was built with {parameters}, this version of idx has {PARAMETERS}: build it again with --force")
    files = IndexFiles(path, manifest)
    if len(files.postings.totals) != 2:
        raise ArtifactDamaged(f"{path / 'totals'} does not hold two numbers: build it again with --force")
    n_filled, n_tokens = files.postings.totals.tolist()
    found = {"terms": len(files.postings.ends), "rows": len(files.postings.lengths), "rows_with_terms": n_filled, "tokens": n_tokens}
    promised = {name: manifest.count(name) for name in found}
    if found != promised:
        raise ArtifactDamaged(f"{path} holds {found}, its manifest says {promised}: build it again with --force")
    return BM25Index(files)


def _cost(size: Size) -> Cost:
    """Return the estimate: the vocabulary is in memory; pieces and the merged index are on the disk at the same time."""
    n_bytes = size.n_rows * size.passage_bytes
    block_bytes = min(BLOCK_ROWS, size.n_rows) * size.passage_bytes
    n_blocks = max(1, min(blocks_at_once(block_bytes), -(-size.n_rows // BLOCK_ROWS)))
    memory_bytes = 0.4e9 + 0.15 * n_bytes + (n_blocks + 1) * BYTES_PER_TEXT_BYTE * block_bytes
    time_s = n_bytes / _TEXT_BYTES_PER_S * (_SERIAL + (1 - _SERIAL) * 2 / n_blocks)
    return Cost(_DISK_BYTES_PER_TEXT_BYTE * n_bytes, memory_bytes, time_s)


KIND = IndexKind(name="bm25", format_version=FORMAT_VERSION, parameters=lambda size: PARAMETERS, write=write, open=open_bm25, cost=_cost)
