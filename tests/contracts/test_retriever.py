"""One contract for every retriever: it finds the best of all rows scored one by one, also in a batch, cached, by threads, by a server."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.retrievers.conftest import some_passages
from tests.retrievers.retrieving import at_home, build_corpus
from tests.retrievers.server.serving import serving
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Hits, SearchParams, empty_hits
from wikidx.indexer.scope import Scope
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.cache import CachedRetriever
from wikidx.retrievers.opening import open_retriever
from wikidx.retrievers.pipelines.remote import RemoteRetriever
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

pytest.importorskip("faiss", reason="needs the extra 'dense'")

N = 162  # the last two have the texts of the first two, so that there are ties; enough for four inverted lists
QUERIES = ["river whale", "fox", "", "king café number 7", "  ", "naïve ocean", "zebra", "fox"]
EVERY_ROW = [np.arange(N)] * len(QUERIES)
KINDS = {  # the retriever that scores rows for it
    "bm25": "bm25",
    "bm25-1.2-0.75": "bm25-1.2-0.75",
    "minilm": "minilm",
    "minilm-ivf": "minilm",
    "cached bm25": "bm25",
    "cached minilm": "minilm",
    "tiny cache": "bm25",
    "remote": "bm25",
}
ALL_LISTS = SearchParams(nprobe=4)


@pytest.fixture(scope="module")
def retrievers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Retriever]]:
    """All kinds over one corpus."""
    passages = [*some_passages(N - 2), *(Passage(f"again{n}", each.title, each.text) for n, each in enumerate(some_passages(2)))]
    with at_home(tmp_path_factory.mktemp("retrieved")):
        store = build_corpus("made", passages, "bm25", "bm25-1.2-0.75", "minilm", "minilm-ivf")
        found: dict[str, Retriever] = {
            name: open_retriever("made", name, store) for name in ("bm25", "bm25-1.2-0.75", "minilm", "minilm-ivf")
        }
        found |= {f"cached {name}": CachedRetriever(found[name], 1 << 20) for name in ("bm25", "minilm")}
        found["tiny cache"] = CachedRetriever(found["bm25"], 5_000)  # entries come and go
        with serving(Settings(corpora=("made",), port=0, limits=Limits(drain_s=0.0))) as url:
            yield found | {"remote": RemoteRetriever(f"remote:{url}", store)}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def retriever(kind: str, retrievers: dict[str, Retriever]) -> Retriever:
    return retrievers[kind]


@pytest.fixture
def scored(kind: str, retrievers: dict[str, Retriever]) -> list[np.ndarray]:
    """The score of every row for each query."""
    return retrievers[KINDS[kind]].rescore(QUERIES, EVERY_ROW)


def lines(hits: Hits, chosen: Any, n: int | None = None) -> Hits:  # noqa: ANN401 - what indexes an array
    """Return some lines of results, the first n places of each."""
    return Hits(hits.rows[chosen, :n], hits.scores[chosen, :n])


def check_same(found: Hits, expected: Hits, kind: str) -> None:
    """Scores of vectors may differ in their last bits from batch to batch; then equally good rows may change places."""
    assert found.rows.shape == expected.rows.shape
    if "minilm" not in kind:
        np.testing.assert_array_equal(found.rows, expected.rows)
        np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=5e-4)


@pytest.mark.parametrize("rows", [None, *(range(1, N, step) for step in (2, 7, 60, N + 1))], ids=str)
def test_the_best_of_all_rows_or_of_a_scope_are_found_equal_scores_by_row(
    retriever: Retriever, kind: str, scored: list[np.ndarray], rows: range | None
) -> None:
    scope, n = (None, 20) if rows is None else (Scope.of(rows, N), 9)
    for _ in range(2):  # from a cache, the second time
        hits = retriever.retrieve(QUERIES, n, dataclasses.replace(ALL_LISTS, scope=scope))
        for line, of_all in enumerate(scored):
            is_found = np.isfinite(of_all) & ((of_all > 0) | ("minilm" in kind)) & (True if scope is None else scope.mask())
            best = np.flatnonzero(is_found)
            best = best[np.lexsort((best, -of_all[best]))][:n]
            expected, found = empty_hits(1, n), lines(hits, [line])
            expected.rows[0, : len(best)], expected.scores[0, : len(best)] = best, of_all[best]
            check_same(found, expected, kind)
            assert {*found.rows[0].tolist()} <= {-1, *np.flatnonzero(is_found).tolist()}
            np.testing.assert_array_equal(np.lexsort((found.rows[0], -found.scores[0]))[: len(best)], range(len(best)))
            np.testing.assert_allclose(found.scores[0, : len(best)], of_all[found.rows[0, : len(best)]], rtol=5e-4)
        retriever.retrieve(QUERIES, n, ALL_LISTS)


@pytest.mark.parametrize("depth", [1, 7, N + 30])
def test_a_depth_is_that_many_places_also_beyond_all_rows(retriever: Retriever, kind: str, depth: int) -> None:
    found, whole = (retriever.retrieve(QUERIES, n, ALL_LISTS) for n in (depth, N))
    assert found.rows.shape == (len(QUERIES), depth)
    check_same(lines(found, slice(None), N), lines(whole, slice(None), depth), kind)
    assert set(found.rows[:, N:].ravel()) <= {-1}


@pytest.mark.parametrize("order", [[*range(len(QUERIES))][::-1], [3], [1, 1, 6], []], ids=["backwards", "one", "twice", "none"])
def test_a_batch_is_its_queries_one_by_one(retriever: Retriever, kind: str, order: list[int]) -> None:
    found = retriever.retrieve([QUERIES[n] for n in order], 9)
    check_same(found, lines(retriever.retrieve(QUERIES, 9), np.array(order, dtype=np.int64)), kind)


def test_rows_that_are_given_are_scored_but_by_a_server(retriever: Retriever, kind: str, scored: list[np.ndarray]) -> None:
    rows = [np.array(given) for given in ([5, 160, 5], [0], [3], [7, 6], [1], [2], [8], [9])]
    if kind == "remote":
        with pytest.raises(InputError, match="rerank is 'primary', but 'remote:http.*' cannot score given passages: leave it out"):
            retriever.rescore(QUERIES, rows)
    else:
        for found, of_all, given in zip(retriever.rescore(QUERIES, rows), scored, rows, strict=True):
            np.testing.assert_allclose(found, of_all[given], rtol=5e-4)


def test_parameters_that_it_lacks_are_passed_over(retriever: Retriever, kind: str) -> None:
    assert list(retriever.parameters) == (["nprobe"] if kind == "minilm-ivf" else [])
    check_same(retriever.retrieve(QUERIES, 9, SearchParams(ef_search=3)), retriever.retrieve(QUERIES, 9), kind)


def test_fewer_lists_are_searched_when_a_search_says_so(retrievers: dict[str, Retriever]) -> None:
    one, all_lists = (retrievers["minilm-ivf"].retrieve(["river"], N, SearchParams(nprobe=n)).rows[0] for n in (1, 4))
    assert set(one) - {-1} < set(all_lists) == {*range(N)}


def test_what_was_found_may_be_changed_by_whoever_got_it(retriever: Retriever, kind: str) -> None:
    first = retriever.retrieve(QUERIES, 5)
    kept = Hits(first.rows.copy(), first.scores.copy())
    first.rows[:], first.scores[:] = 0, 0
    check_same(retriever.retrieve(QUERIES, 5), kept, kind)


def test_threads_get_their_own_answers(retriever: Retriever, kind: str) -> None:
    draw = random.Random(0)
    batches = [draw.choices(range(len(QUERIES)), k=6) for _ in range(60)]
    whole = retriever.retrieve(QUERIES, 20)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda batch: retriever.retrieve([QUERIES[n] for n in batch], 20), batches))
    for batch, hits in zip(batches, found, strict=True):
        check_same(hits, lines(whole, batch), kind)
