"""One contract for every way to search, in this process, over HTTP, awaited, by Search-R1's calls: the same answers and refusals."""

from __future__ import annotations

import asyncio
import copy
import itertools
import math
import pickle
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import numpy as np
import pytest

from tests.conftest import read_rows
from tests.retrievers.conftest import some_passages
from tests.retrievers.retrieving import at_home, build_corpus
from tests.retrievers.server.serving import ask, serving
from wikidx import AsyncRemoteSearcher, RemoteSearcher
from wikidx.base.errors import ArgumentError, IdxError, InputError
from wikidx.indexer.scope import Scope
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Ranking, Rankings, ScoredPassage, Searcher
from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import DedupRule, MergeRule
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

N = 160  # enough for four inverted lists
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
RETRIEVERS = ("bm25", "bm25+minilm", "bm25-1.2-0.75", "minilm", "minilm-ivf", "{bm25:2, minilm%30}minmax%20")
Searchers = dict[tuple[str, str], Any]


class Awaited:
    """An ``AsyncRemoteSearcher`` that is called as the others are; each call runs an event loop of its own."""

    def __init__(self, url: str, retriever: str) -> None:
        self.url, self.retriever = url, retriever

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: object, **values: object) -> object:
            async with AsyncRemoteSearcher(self.url, corpus="made", retriever=self.retriever) as searcher:
                return await getattr(searcher, name)(*arguments, **values)

        return lambda *arguments, **values: asyncio.run(call(*arguments, **values))


@pytest.fixture(scope="module")
def searchers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searchers]:
    """All kinds, by kind and retriever, over one corpus."""
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    with at_home(tmp_path_factory.mktemp("searched")):
        build_corpus("made", some_passages(N), "bm25", "bm25-1.2-0.75", "minilm", "minilm-ivf")
        with serving(Settings(corpora=("made",), retrievers=RETRIEVERS, port=0, limits=Limits(drain_s=0.0))) as url:
            yield all_kinds(url, RETRIEVERS)


def all_kinds(url: str, retrievers: tuple[str, ...]) -> Searchers:
    kinds: dict[str, Callable[[str], Any]] = {
        "local": lambda name: open_searcher("made", name),
        "remote": lambda name: RemoteSearcher(url, corpus="made", retriever=name),
        "async": lambda name: Awaited(url, name),
    }
    return {(kind, name): opened(name) for kind, opened in kinds.items() for name in retrievers}


@pytest.fixture(params=["local", "remote", "async"])
def searcher(searchers: Searchers, request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - what is called as a Searcher
    return searchers[request.param, "bm25"]


def bits(rankings: list[Ranking]) -> list[list[tuple[object, ...]]]:
    """Everything in the rankings; numbers as their bits and with their types."""

    def exact(score: float) -> tuple[type, bytes]:
        return type(score), struct.pack("<d", score)

    def everything(hit: ScoredPassage) -> tuple[object, ...]:
        provenance = [(match.query, match.retriever, match.rank, exact(match.score)) for match in hit.provenance]
        return tuple(hit.passage), hit.row, type(hit.row), exact(hit.score), provenance

    return [[everything(hit) for hit in ranking] for ranking in rankings]


def clearly_in(ranking: Ranking) -> set[int]:
    """Return the rows that rounding cannot put out of a ranking."""
    return {hit.row for hit in ranking if hit.score > ranking[-1].score + 1e-3 * abs(ranking[-1].score)}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_bm25_is_the_same_to_the_bit(searchers: Searchers, options: SearchOptions) -> None:
    local, remote = searchers["local", "bm25"], searchers["remote", "bm25"]
    expected, found = local.search_groups(GROUPS, options), remote.search_groups(GROUPS, options)
    assert [bool(ranking) for ranking in expected] == [True, True, True, True, False]
    assert bits(found) == bits(expected)
    assert [ranking.queries for ranking in found] == [ranking.queries for ranking in expected]
    queries = [query for group in GROUPS for query in group]
    assert bits(remote.search(queries, options)) == bits(local.search(queries, options))


@pytest.mark.parametrize("retriever", RETRIEVERS)
@pytest.mark.parametrize("kind", ["local", "remote"])
def test_rows_are_those_of_a_corpus_without_the_others(searchers: Searchers, kind: str, retriever: str) -> None:
    searcher, mask = searchers[kind, retriever], np.arange(N) % 3 == 1
    forms = [np.flatnonzero(mask).tolist(), mask, Scope.of(mask, N), np.flatnonzero(mask)[::-1].astype(np.int32)]
    found = [searcher.search_groups(GROUPS, k=7, rows=rows) for rows in forms]
    found.append(searcher.search_groups(GROUPS, k=7, rows=forms[0]))
    assert {hit.row % 3 for rankings in found for ranking in rankings for hit in ranking} == {1}
    for rankings in found:
        assert [len(ranking) for ranking in rankings] == [len(ranking) for ranking in found[0]]
    if "+" not in retriever and "{" not in retriever:  # fused ranks are those among the rows
        everything = (
            searcher.search_groups(GROUPS, k=N, depth=N, nprobe=4) if "ivf" in retriever else searcher.search_groups(GROUPS, k=N, depth=N)
        )
        for whole, ranking in zip(everything, found[0], strict=True):
            expected = [hit.score for hit in whole if mask[hit.row]][:7]
            assert [hit.score for hit in ranking] == pytest.approx(expected, rel=1e-4)
    assert searcher.search(["river whale"], k=7, rows=[]) == [[]]
    assert [hit.row for hit in searcher.search(["river whale"], rows=[4])[0]] == [4]


@pytest.mark.parametrize("kind", ["local", "remote", "async"])
@pytest.mark.parametrize(
    ("rows", "reason"),
    read_rows("contracts/refused_rows.jsonl"),
)
def test_rows_that_there_are_not_are_refused(searchers: Searchers, kind: str, rows: Any, reason: str) -> None:  # noqa: ANN401
    with pytest.raises((ArgumentError, InvalidRequest), match=reason):
        searchers[kind, "bm25"].search(["river"], rows=rows)


@pytest.mark.parametrize("retriever", RETRIEVERS[1:])
def test_searches_by_others_are_the_same_up_to_rounding(searchers: Searchers, retriever: str) -> None:
    local, remote = searchers["local", retriever], searchers["remote", retriever]
    for options in {"bm25+minilm": FUSED, RETRIEVERS[-1]: FUSED[:1]}.get(retriever, FUSED[::2]):
        for here, there in zip(local.search_groups(GROUPS, options), remote.search_groups(GROUPS, options), strict=True):
            assert [hit.score for hit in there] == pytest.approx([hit.score for hit in here], rel=1e-4)
            assert clearly_in(here) <= {hit.row for hit in there}
            assert clearly_in(there) <= {hit.row for hit in here}
            retrievers = [[{match.retriever for match in hit.provenance} for hit in ranking] for ranking in (here, there)]
            assert retrievers[0] == retrievers[1]


@pytest.mark.parametrize("path", ["/retrieve", "/retrieve/"])
@pytest.mark.parametrize("n_queries", [1, 2, 3])
def test_search_r1_s_calls_are_answered_in_the_form_of_its_server(searchers: Searchers, path: str, n_queries: int) -> None:
    """Its clients take the first line of a document's contents as the title; two lines of a title become one."""
    queries = ["whale ocean", "fox", "planet metal book"][:n_queries]
    url, asked = searchers["remote", "bm25"].url, {"queries": queries, "topk": 5}
    with_scores = [
        [
            {"document": {"id": hit.id, "contents": f'"{" ".join(hit.title.splitlines())}"\n{hit.text}'}, "score": hit.score}
            for hit in ranking
        ]
        for ranking in searchers["local", "bm25"].search(queries, k=5)
    ]
    assert ask(url, path, {**asked, "return_scores": True}).json == {"result": with_scores}
    assert ask(url, path, asked).json == {"result": [[found["document"] for found in documents] for documents in with_scores]}


def test_options_may_be_given_by_their_names(searcher: Any) -> None:  # noqa: ANN401
    options = SearchOptions(k=1, dedup="text")
    assert [len(ranking) for ranking in searcher.search(["fox", "ship"], options, k=2)] == [2, 2]
    (merged,) = searcher.search_groups([["fox", "ship"]], k=2, merge="sum")
    assert bits([merged]) == bits(searcher.search_groups([["fox", "ship"]], SearchOptions(k=2, merge="sum")))


def test_parameters_are_each_requests_own(searchers: Searchers) -> None:
    options = SearchOptions(k=N, depth=N, nprobe=1)
    of_kinds = [searchers[kind, "minilm-ivf"] for kind in ("local", "remote", "async")]
    few, *others = [[hit.row for hit in searcher.search(["river"], options)[0]] for searcher in of_kinds]
    assert others == [few, few]
    assert 0 < len(few) < N
    for searcher in of_kinds:
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


NO_TEXT = "a query is a text, or a vector of finite numbers, not "
HALF = r"a query contains a lone surrogate, half a character: "
NO_OPTIONS = "the options are 10, no SearchOptions: give single ones by name, such as k=10"


NO_LISTS: list[list[Any]] = [
    ["search_groups", [iter([["fox"]])], {}, "ArgumentError", "groups is a list_iterator: give a list of groups"],
    ["search_groups", [[{"fox"}]], {}, "ArgumentError", "a group is a list of queries, not {'fox'}"],
]


@pytest.mark.parametrize(("name", "arguments", "options", "error", "message"), [*read_rows("contracts/refused_searches.jsonl"), *NO_LISTS])
def test_what_cannot_be_searched_raises_the_same(
    searcher: Searcher, name: str, arguments: list[Any], options: dict[str, Any], error: str, message: str
) -> None:
    with pytest.raises(IdxError, match=message) as raised:
        getattr(searcher, name)(*arguments, **options)
    assert error in [kind.__name__ for kind in type(raised.value).__mro__]
    assert error != "ArgumentError" or isinstance(raised.value, TypeError)


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (["fox", "\ud800"], HALF + r"'\ud800'"),
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


def test_passages_come_back_as_they_are_found_or_by_their_ids(searcher: Any) -> None:  # noqa: ANN401
    passages = some_passages(N)
    (ranking,) = searcher.search(["café number 10"], SearchOptions(k=N))
    assert [hit.passage for hit in ranking] == [passages[hit.row] for hit in ranking] != []
    assert searcher.passages(["p159", "p2", "p2"]) == [passages[159], passages[2], passages[2]]
    assert (searcher.passages([]), searcher.passage("p2")) == ([], passages[2])


@pytest.mark.parametrize("kind", [RemoteSearcher, AsyncRemoteSearcher])
def test_a_remote_searcher_goes_to_other_processes_with_its_key(kind: type[RemoteSearcher]) -> None:
    remote = kind("http://127.0.0.1:9", corpus="made", retriever="bm25", api_key="key", timeout=3)
    for again in (pickle.loads(pickle.dumps(remote)), copy.deepcopy(remote)):
        assert repr(again) == repr(remote) == f"<{kind.__name__} of http://127.0.0.1:9: made, bm25>"
        assert again.reopen.keywords == remote.reopen.keywords  # type: ignore[union-attr]
    assert repr(kind("http://127.0.0.1:9")) == f"<{kind.__name__} of http://127.0.0.1:9: the first corpus, the first retriever>"
