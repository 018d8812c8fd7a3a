"""Speed of the multi-query call, and its cost beyond the retrievers' own.

    python -m benchmarks.search CORPUS --gar FOLDER
    python -m benchmarks.search CORPUS --questions FILE     # the whole call for single questions

Merging: synthetic groups of 5 lists of 100 hits, with 260 distinct rows, are merged, deduplicated and cut to 10: by the kernels from a
search's arrays, and by plain Python (a dictionary and ``sorted``) from ready lists of pairs.

The call: questions of NQ with GAR's expansions (question, with answers, with titles, with a sentence, with the first title), five queries a
group, over a built corpus with BM25. "bare" is ``retrieve`` of the distinct queries, encoding included, one retriever after the other;
"beyond" is ``search_groups`` with retrievers that replay recorded results, and "fetch" its share for reading the distinct passages of all
rankings from the store. ``search_groups`` itself takes turns with "bare". The loop: the same queries one ``search`` at a time.

The whole call: ``search`` with BM25 and the text of every hit read, beside the index's own ``search`` of the same questions; processor time
of this process, the least of the rounds, which take turns.

``minilm`` here is its encoder in front of as many random vectors as the corpus has passages: exact search takes equally long whatever the
vectors hold, and no corpus has to be embedded first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.gar import gar_groups
from benchmarks.report import Figure, environment, print_table
from wikidx.base.machine.threads import n_threads
from wikidx.corpora.build import open_store
from wikidx.corpora.reading.compression import open_bytes
from wikidx.corpora.store import PassageStore, Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, LexicalIndex, Scores, SearchParam, SearchParams
from wikidx.indexer.build import open_lexical_index
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.indexes.exact.index import ExactIndex
from wikidx.indexer.naming import encoder_spec
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.fusion import make_targets, merge, to_lists
from wikidx.retrievers.opening import open_retriever
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.searcher import LocalSearcher

_QUERIES, _DEPTH, _K = 5, 100, 10
_POOL = 300  # rows that the lists of a synthetic group are drawn from: 260 of 500 hits are distinct then
_N_ROWS = 21_000_000
_PLAIN_GROUPS = 500  # plain Python is timed on these only
_N_QUESTIONS = 512

Groups = Sequence[Sequence[str]]


def synthetic_hits(n_groups: int) -> Hits:
    """Return 5 lists of 100 hits for each group."""
    rng = np.random.default_rng(0)
    rows = np.empty((n_groups * _QUERIES, _DEPTH), dtype=np.int64)
    for group in range(n_groups):
        pool = rng.integers(0, _N_ROWS, 2 * _POOL)
        for query in range(_QUERIES):
            rows[group * _QUERIES + query] = rng.permutation(np.unique(pool)[:_POOL])[:_DEPTH]
    return Hits(rows, -np.sort(-rng.gamma(2, 5, rows.shape).astype(np.float32), axis=1))


def plain_merge(lists: Sequence[Sequence[tuple[int, float]]], rule: str) -> list[tuple[int, float]]:
    """Merge, drop duplicates and cut with a dictionary."""
    values: dict[int, float] = {}
    if rule == "max":
        for found in lists:
            for row, score in found:
                if score > values.get(row, -np.inf):
                    values[row] = score
    else:
        for found in lists:
            for rank, (row, _) in enumerate(found, 61):
                values[row] = values.get(row, 0.0) + 1 / rank
    return sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))[:_K]


def measure_merging(n_groups: int, rounds: int) -> list[dict[str, Figure]]:
    """Compare the kernels with plain Python."""
    hits = synthetic_hits(n_groups)
    members = np.arange(len(hits.rows)).reshape(n_groups, _QUERIES).tolist()
    few = [
        list(zip(rows, scores, strict=True))
        for rows, scores in zip(hits.rows[: 5 * _PLAIN_GROUPS].tolist(), hits.scores.tolist(), strict=False)
    ]
    plain_groups = [few[start : start + _QUERIES] for start in range(0, len(few), _QUERIES)]
    text_key = np.arange(_N_ROWS, dtype=np.uint64)
    n_hits = hits.rows.size
    figures: list[dict[str, Figure]] = []
    processors = os.sched_getaffinity(0)
    for rule, dedup in (("max", "row"), ("rrf", "row"), ("max", "text")):
        keys = text_key if dedup == "text" else None

        def kernels() -> None:
            merge(to_lists([hits]), make_targets(members), rule, k=_K, text_key=keys)  # noqa: B023 - called immediately

        def plain() -> None:
            for group in plain_groups:
                plain_merge(group, rule)  # noqa: B023

        kernels()
        everywhere = min(_time_call(kernels) for _ in range(rounds))
        os.sched_setaffinity(0, {min(processors)})
        alone = [(_time_call(kernels), _time_call(plain)) for _ in range(rounds)]
        os.sched_setaffinity(0, processors)
        of_kernels, of_plain = (min(times) for times in zip(*alone, strict=True))
        plain_rate = len(plain_groups) * _QUERIES * _DEPTH / of_plain
        figures.append(
            {
                "merge": rule,
                "dedup": dedup,
                "hits": n_hits,
                "one core M hits/s": n_hits / of_kernels / 1e6,
                f"{n_threads()} threads M hits/s": n_hits / everywhere / 1e6,
                "plain Python M hits/s": plain_rate / 1e6,
                "x faster": n_hits / of_kernels / plain_rate,
            }
        )
    return figures


class Recorded:
    """A retriever that takes no time: it replays another one's results for the same queries."""

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self, retriever: Retriever, queries: Sequence[str]) -> None:
        self._hits = retriever.retrieve(queries, _DEPTH)

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the recorded results."""
        return self._hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Refuse: nothing is reranked here."""
        raise NotImplementedError


def measure_call(store: PassageStore, retrievers: dict[str, Retriever], groups: Groups, rounds: int) -> dict[str, Figure]:
    """Compare ``search_groups`` with bare retrievers, and with a loop of single searches."""
    searcher, options = LocalSearcher(store, retrievers), SearchOptions(k=_K, depth=_DEPTH)
    queries = [query for group in groups for query in group]
    distinct = list(dict.fromkeys(queries))
    replaying = LocalSearcher(store, {name: Recorded(retriever, distinct) for name, retriever in retrievers.items()})
    rows = sorted({hit.row for ranking in replaying.search_groups(groups, options) for hit in ranking})

    def bare() -> None:
        for retriever in retrievers.values():
            retriever.retrieve(distinct, _DEPTH)

    def loop() -> None:
        for query in queries:
            searcher.search([query], options)

    searcher.search_groups(groups, options)
    pairs = [(_time_call(bare), _time_call(lambda: searcher.search_groups(groups, options))) for _ in range(rounds)]
    of_bare, of_call = (min(times) for times in zip(*pairs, strict=True))
    beyond = min(_time_call(lambda: replaying.search_groups(groups, options)) for _ in range(2 * rounds))
    of_loop = min(_time_call(loop) for _ in range(max(1, rounds // 3)))
    return {
        "retrievers": "+".join(retrievers),
        "queries": len(queries),
        "(distinct)": len(distinct),
        "bare ms": 1000 * of_bare,
        "beyond ms": 1000 * beyond,
        "(fetch ms)": 1000 * min(_time_call(lambda: store.get_many(rows)) for _ in range(2 * rounds)),
        "beyond %": 100 * beyond / of_bare,
        "search_groups ms": 1000 * of_call,
        "difference %, median": 100 * statistics.median(of_call / of_bare - 1 for of_bare, of_call in pairs),
        "loop ms": 1000 * of_loop,
        "x faster than the loop": of_loop / of_call,
    }


def measure_whole_call(searcher: LocalSearcher, index: LexicalIndex, questions: Sequence[str], rounds: int) -> Iterator[dict[str, Figure]]:
    """Compare the processor time of ``search``, the text of every hit read, with that of the index alone."""
    for k, batch in itertools.product((10, 100), (1, 32, 512)):
        batches = [questions[first : first + batch] for first in range(0, len(questions), batch)]

        def alone() -> None:
            for queries in batches:  # noqa: B023 - called immediately
                index.search(queries, k)  # noqa: B023

        def whole() -> None:
            for queries in batches:  # noqa: B023
                for ranking in searcher.search(queries, k=k):  # noqa: B023
                    for hit in ranking:
                        len(hit.text)

        alone()
        whole()
        pairs = [(_processor_time(alone), _processor_time(whole)) for _ in range(rounds)]
        of_index, of_call = (1e6 * min(times) / len(questions) for times in zip(*pairs, strict=True))
        yield {"k": k, "batch": batch, "index µs/question": of_index, "search µs/question": of_call, "×": of_call / of_index}


def _processor_time(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _time_call(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _random_vectors(n_rows: int, dim: int) -> ExactIndex:
    vectors = np.random.default_rng(0).standard_normal((n_rows, dim), dtype=np.float32)
    return ExactIndex(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search")
    parser.add_argument("corpus", help="a built corpus with BM25")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--gar", type=Path, help="the folder of GAR's expansions of NQ's test questions")
    source.add_argument("--questions", type=Path, help="JSON lines with 'question': measure the whole call with the first 512")
    parser.add_argument("--retrievers", nargs="*", default=["bm25", "minilm", "bm25+minilm"])
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--merged-groups", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    about = environment("numba", "numpy", "torch")
    if options.questions:
        with open_bytes(options.questions) as lines:
            questions = [json.loads(line)["question"] for line in itertools.islice(lines, _N_QUESTIONS)]
        store = open_store(options.corpus)
        searcher = LocalSearcher(store, {"bm25": open_retriever(options.corpus, "bm25", store)})
        rows = measure_whole_call(searcher, open_lexical_index(options.corpus, "bm25", store), questions, options.rounds)
        print_table("The whole call", rows, about, options.json)
        return
    print_table("Merging", measure_merging(options.merged_groups, options.rounds), about, None)
    store = open_store(options.corpus)
    retrievers: dict[str, Retriever] = {"bm25": open_retriever(options.corpus, "bm25", store)}
    if any("minilm" in name for name in options.retrievers):
        vectors = _random_vectors(len(store), encoder_spec("minilm").dim)
        retrievers["minilm"] = DenseRetriever(TransformerEncoder(encoder_spec("minilm")), vectors)
    groups = gar_groups(options.gar)[: options.groups]
    calls = [
        measure_call(store, {name: retrievers[name] for name in names.split("+")}, groups, options.rounds) for names in options.retrievers
    ]
    print_table("The multi-query call", calls, about | environment("numba", "numpy", "torch"), options.json)


if __name__ == "__main__":
    main()
