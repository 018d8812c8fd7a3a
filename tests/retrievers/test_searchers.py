"""One suite for every Searcher: local and remote ones answer alike."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.conftest import corpus_of
from tests.retrievers.server.conftest import some_passages
from tests.retrievers.server.serving import serving
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.indexer.build import build_index
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Ranking, Rankings, Searcher
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import DedupRule, MergeRule
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

GROUPS = [
    ["river whale", "ocean"],
    ["fox"],
    ["king café", "king café", "naïve", "ship number 7"],
    ["", "metal"],
    ["nothing like it: zebra"],
]
OPTIONS = [
    SearchOptions(),
    SearchOptions(k=3, depth=3),
    SearchOptions(k=1000, depth=1000),
    *(SearchOptions(merge=merge, dedup=dedup) for merge, dedup in itertools.product(get_args(MergeRule)[1:], get_args(DedupRule))),
    SearchOptions(rerank="primary", rerank_depth=20),
]
FUSED = [
    SearchOptions(k=5),
    SearchOptions(k=5, fuse="weighted", weights={"bm25": 0.3}, normalize=True),
    SearchOptions(k=5, rerank="primary"),
]


@pytest.fixture(scope="module")
def searchers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Searcher]]:
    """Both kinds, by kind and retriever, over one corpus."""
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(tmp_path_factory.mktemp("searched")))
        build_store(corpus_of(some_passages(60)), StoreOptions())
        for name in ("bm25", "bm25-1.2-0.75", "minilm", "minilm-ivf"):
            build_index("made", name, open_store("made"))
        retrievers = ("bm25", "bm25+minilm", "bm25-1.2-0.75", "minilm", "minilm-ivf")
        found: dict[tuple[str, str], Searcher] = {("local", name): open_searcher("made", name) for name in retrievers}
        settings = Settings(corpora=("made",), retrievers=retrievers, port=0, limits=Limits(drain_s=0.0))
        with serving(settings) as url:
            remotes = {("remote", name): RemoteSearcher(url, corpus="made", retriever=name) for name in retrievers}
            yield {**found, **remotes}
            for remote in remotes.values():
                remote.close()


@pytest.fixture(params=["local", "remote"])
def searcher(searchers: dict[tuple[str, str], Searcher], request: pytest.FixtureRequest) -> Searcher:
    return searchers[request.param, "bm25"]


def bits(rankings: list[Ranking]) -> list[list[tuple[object, ...]]]:
    """Everything in the rankings; numbers as their bits and with their types."""

    def exact(score: float) -> tuple[type, bytes]:
        return type(score), struct.pack("<d", score)

    return [
        [
            (
                tuple(hit.passage),
                hit.row,
                type(hit.row),
                exact(hit.score),
                [(match.query, match.retriever, match.rank, exact(match.score)) for match in hit.provenance],
            )
            for hit in ranking
        ]
        for ranking in rankings
    ]


def clearly_in(ranking: Ranking) -> set[int]:
    """Return the rows that rounding cannot put out of a ranking."""
    return {hit.row for hit in ranking if hit.score > ranking[-1].score + 1e-3 * abs(ranking[-1].score)}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_bm25_is_the_same_to_the_bit(searchers: dict[tuple[str, str], Searcher], options: SearchOptions) -> None:
    local, remote = searchers["local", "bm25"], searchers["remote", "bm25"]
    expected = local.search_groups(GROUPS, options)
    assert [bool(ranking) for ranking in expected] == [True, True, True, True, False]
    assert bits(remote.search_groups(GROUPS, options)) == bits(expected)
    queries = [query for group in GROUPS for query in group]
    assert bits(remote.search(queries, options)) == bits(local.search(queries, options))


def test_bm25_of_another_k1_and_b_is_the_same_to_the_bit(searchers: dict[tuple[str, str], Searcher]) -> None:
    local, remote = (searchers[where, "bm25-1.2-0.75"].search(["river whale"]) for where in ("local", "remote"))
    assert bits(local) == bits(remote) != bits(searchers["local", "bm25"].search(["river whale"]))


@pytest.mark.parametrize("retriever", ["minilm", "bm25+minilm", "minilm-ivf"])
def test_dense_searches_are_the_same_up_to_rounding(searchers: dict[tuple[str, str], Searcher], retriever: str) -> None:
    local, remote = searchers["local", retriever], searchers["remote", retriever]
    for options in FUSED if "+" in retriever else FUSED[::2]:
        for here, there in zip(local.search_groups(GROUPS, options), remote.search_groups(GROUPS, options), strict=True):
            assert [hit.score for hit in there] == pytest.approx([hit.score for hit in here], rel=1e-4)
            assert clearly_in(here) <= {hit.row for hit in there}
            assert clearly_in(there) <= {hit.row for hit in here}
            assert [{match.retriever for match in hit.provenance} for hit in there] == [
                {match.retriever for match in hit.provenance} for hit in here
            ]


def test_parameters_are_each_requests_own(searchers: dict[tuple[str, str], Searcher]) -> None:
    local, remote = searchers["local", "minilm-ivf"], searchers["remote", "minilm-ivf"]
    options = SearchOptions(k=60, depth=60, nprobe=1)
    assert [hit.row for hit in remote.search(["river"], options)[0]] == [hit.row for hit in local.search(["river"], options)[0]]
    for searcher in (local, remote):
        with pytest.raises(InputError, match="nprobe 1,000,000,000: for 'minilm-ivf' it can be at most"):
            searcher.search(["river"], SearchOptions(nprobe=10**9))


def test_threads_get_their_own_answers(searcher: Searcher) -> None:
    queries = [f"{word} number {n}" for n, word in enumerate(["river", "fox", "ship", "king"] * 15)]
    alone = [searcher.search([query], SearchOptions(k=5)) for query in queries]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda query: searcher.search([query], SearchOptions(k=5)), queries))
    assert list(map(bits, together)) == list(map(bits, alone))


def test_nothing_asked_and_nothing_found(searcher: Searcher) -> None:
    assert searcher.search([]) == []
    assert searcher.search_groups([]) == []
    assert searcher.search(["", "zebra"]) == [[], []]


Call = Callable[[Searcher], object]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda it: it.search("fox"), TypeError, "queries is one string"),
        (lambda it: it.search_groups(group for group in [["fox"]]), TypeError, "groups is a generator: give a list of groups"),
        (lambda it: it.search_groups([{"fox"}]), TypeError, "a group is a list of queries, not {'fox'}"),
        (lambda it: it.search_groups(["fox", "whale"]), TypeError, "a group is a list of queries, not 'fox'"),
        (lambda it: it.search([["fox"]]), TypeError, r"a query is a text, or a vector of finite numbers, not \['fox'\]"),
        (lambda it: it.search([None]), TypeError, "a query is a text, or a vector of finite numbers, not None"),
        (lambda it: it.search_groups([[]]), ValueError, "a group is empty"),
        (lambda it: it.search(["fox \ud800", 3]), ValueError, r"a query contains a lone surrogate, half a character: 'fox \\ud800'"),
        (
            lambda it: it.search(["fox"], SearchOptions(fuse="weighted", weights={"bm52": 1})),
            UnknownNameError,
            "unknown retriever 'bm52': did you mean 'bm25'",
        ),
        (lambda it: it.search(["fox"], SearchOptions(rerank="cross-encoder")), InputError, "rerank is 'cross-encoder'"),
    ],
)
def test_what_cannot_be_searched_raises_the_same(searcher: Searcher, call: Call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(searcher)


NO_TEXT = "a query is a text, or a vector of finite numbers, not "
HALF = r"a query contains a lone surrogate, half a character: '\ud800'"


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (["fox", "\ud800"], HALF),
        (["fox", None], NO_TEXT + "None"),
        ([math.nan], NO_TEXT + "nan"),
        ([[1.0, math.nan]], NO_TEXT + "[1.0, nan]"),
        ([], "a group is empty: it needs at least its primary query"),
        ("fox", "a group is a list of queries, not 'fox'"),
    ],
)
def test_a_group_that_cannot_be_searched_costs_only_itself(searcher: Searcher, group: Any, reason: str) -> None:  # noqa: ANN401
    good = searcher.search_groups([["river"], ["fox", "whale"]])
    found = Rankings(searcher.search_groups([["river"], group, ["fox", "whale"], group]))
    assert found == [good[0], [], good[1], []]
    assert (found.errors, found[1:3].errors, found[:1].errors) == ({1: reason, 3: reason}, {0: reason}, {})
    assert "not searched: a " in repr(found[1])
    assert [ranking.queries for ranking in found[::2]] == [("river",), ("fox", "whale")]
    if len(group) == 1:
        assert searcher.search(["river", *group]).errors == {1: reason}


def test_passages_come_back_as_they_are(searcher: Searcher, searchers: dict[tuple[str, str], Searcher], tmp_path: Path) -> None:
    passages = some_passages(60)
    for hit in searcher.search(["café number 10"], SearchOptions(k=60))[0]:
        assert hit.passage == passages[hit.row]
