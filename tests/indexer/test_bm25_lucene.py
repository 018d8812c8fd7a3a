"""Our BM25 against Lucene's: the same rows in the same order with bit-identical scores, for any query.

``Oracle`` returns the scores of Lucene's raw ``IndexSearcher``. Its ties go to the lower row, so rows
that tie at rank k must be the same as well: no tolerance is needed.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.indexer.real_collections import COLLECTIONS, Pair, index_both, sampled
from tests.lucene.jvm import require_java
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.analysis.english import TermNumbers
from wikidx.indexer.base import Hits
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.indexes.bm25 import BM25Index

pytestmark = pytest.mark.slow  # Java

require_java()
BLOCK_ROWS = 65_536  # our index is searched so many rows at a time
FOXES = (0, 3, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 2_999)  # rows of the same text


class QuerySet(NamedTuple):
    """Both indexes over some passages, queries that belong to these, and all their words, those that most passages have first."""

    pair: Pair
    queries: list[str]
    words: list[str]


def ask(passages: Sequence[Passage], queries: Mapping[str, str], home: Path) -> QuerySet:
    n_passages_with = Counter(word for passage in passages for word in dict.fromkeys(passage.text.split()))
    return QuerySet(index_both(passages, home), list(queries.values()), [word for word, _ in n_passages_with.most_common()])


@pytest.fixture(
    scope="module", params=["dpr_union", "cacm", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("nfcorpus", "wiki_intro"))]
)
def query_set(request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> QuerySet:
    """All of each collection."""
    collection = COLLECTIONS[request.param](shared_data)
    return ask(collection.passages, collection.queries, tmp_path_factory.mktemp("both"))


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.exhaustive)], ids=lambda n: f"{n} blocks")
def scraps(request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> QuerySet:
    """Ten words each, so that most tie with others; and foxes at the borders of blocks. The last block is not full."""
    collection = COLLECTIONS["dpr_union"](shared_data)
    words = itertools.chain.from_iterable(passage.text.split() for passage in collection.passages)
    texts = [" ".join(itertools.islice(words, 10)) for _ in range((request.param - 1) * BLOCK_ROWS + 3_000)]
    for row in FOXES:
        texts[row] = "qxqx fox"
    texts[40_000], texts[BLOCK_ROWS + 7] = "qxqx qxqx fox", "fox qxqx hound"
    passages = [Passage(str(row), "", text) for row, text in enumerate(texts)]
    return ask(passages, collection.queries, tmp_path_factory.mktemp("scraps"))


def assert_equal(pair: Pair, queries: Sequence[str], k: int) -> Hits:
    """Assert that both indexes return the same bits, and return them."""
    ours, lucenes = pair.bm25.search(queries, k), pair.lucene.search(queries, k)
    assert ours.rows.shape == ours.scores.shape == (len(queries), k)
    is_other = (ours.rows != lucenes.rows) | (ours.scores != lucenes.scores)
    differing = [(queries[line][:80], place) for line, place in zip(*np.nonzero(is_other), strict=True)]
    assert not differing, f"{len(differing)} of {is_other.size} hits differ, the first at these places: {differing[:3]}"
    return ours


def n_found(hits: Hits) -> int:
    return int((hits.rows >= 0).sum())


def mixed_queries(words: Sequence[str], n: int) -> list[str]:
    """Return queries of one to sixty words, common ones and rare ones, some of them repeated."""
    chooses = random.Random(n)

    def some_words() -> Iterator[str]:
        for _ in range(chooses.choice([1, 2, 3, 5, 8, 13, 30, 60])):
            word = words[int(len(words) ** chooses.random()) - 1]
            yield from [word] * chooses.choice([1, 1, 1, 1, 2, 7])

    return [" ".join(some_words()) for _ in range(n)]


def distinct_terms(words: Sequence[str], n: int) -> str:
    """Return a query of ``n`` distinct terms, or of all if they are fewer."""
    terms, ends = TermNumbers().add(words)
    are_single = np.diff(ends, prepend=0) == 1
    _, positions = np.unique(terms[ends[are_single] - 1], return_index=True)
    chosen = np.random.default_rng(n).choice(np.flatnonzero(are_single)[positions], size=min(n, len(positions)), replace=False)
    return " ".join(words[position] for position in chosen)


# Those of all numbers are held by the definition in contracts/test_lexical_index.
@pytest.mark.parametrize(
    "numbers", ["1.2-0.75", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("2-1", "0.7-0", "0-0.4", "1000-0.5"))]
)
def test_any_k1_and_b(query_set: QuerySet, numbers: str) -> None:
    pair, (k1, b) = query_set.pair, map(float, numbers.split("-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(pair.home))
        store = open_store("made")
        build_index("made", f"bm25-{numbers}", store)
        index = open_index("made", f"bm25-{numbers}", store)
    assert isinstance(index, BM25Index)
    pair.lucene.set_similarity(k1, b)
    try:
        texts = [passage.text for passage in sampled(pair.passages, 20)]
        for k in (10, 1000):
            assert_equal(pair._replace(bm25=index), [*query_set.queries[::7], *mixed_queries(query_set.words, 100), *texts], k)
    finally:
        pair.lucene.set_similarity(0.9, 0.4)


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_own_queries_and_mixtures_of_words(query_set: QuerySet, k: int) -> None:
    queries, words = query_set.queries[:: 10 if k == 1000 else 1], query_set.words
    repeated = [" ".join(word for n, word in enumerate(query.split()) for _ in range(n % 5 + 1)) for query in query_set.queries[::50]]
    assert n_found(assert_equal(query_set.pair, queries, k)) > 0.2 * k * len(queries)
    assert_equal(query_set.pair, [*mixed_queries(words, 200), *words[:200], *repeated], k)


@pytest.mark.parametrize(("n", "k"), [(100, 1000), (500, 10), pytest.param(5_000, 100, marks=pytest.mark.exhaustive)])
def test_whole_passages_as_queries(query_set: QuerySet, n: int, k: int) -> None:
    passages = sampled(query_set.pair.passages, n)
    hits = assert_equal(query_set.pair, [f"{passage.title}\n{passage.text}" for passage in passages], k)
    itself = [query_set.pair.passages[row].text == passage.text for row, passage in zip(hits.rows[:, 0], passages, strict=True)]
    assert sum(itself) > 0.9 * len(passages)


@pytest.mark.parametrize("k", [1, 10, 5000])
def test_terms_that_weigh_next_to_nothing(query_set: QuerySet, k: int) -> None:
    """However often a term is repeated, rows with only the other terms follow, in their own order, those that have it."""
    for trio in ((40, 400, -1), (60, 90, -7), (70, 1500, 3000)):
        queries = [
            " ".join(itertools.chain.from_iterable([query_set.words[position]] * n for position, n in zip(trio, counts, strict=True)))
            for counts in itertools.permutations([70_000, 20, 1])
        ]
        assert_equal(query_set.pair, queries, k)


@pytest.mark.parametrize("n_terms", [256, 1000, 1001, 1025, 30_000])
def test_thousands_of_distinct_terms(query_set: QuerySet, n_terms: int) -> None:
    query = distinct_terms(query_set.words, n_terms)
    for k in (10, 1000):
        assert n_found(assert_equal(query_set.pair, [query, query_set.queries[0]], k)) > k


def test_a_query_of_a_megabyte(query_set: QuerySet) -> None:
    texts = itertools.cycle(passage.text for passage in query_set.pair.passages)
    query = "\n".join(itertools.islice(texts, 5_000))[: 1 << 20]
    assert len(query) == 1 << 20
    for k in (10, 1000):
        assert n_found(assert_equal(query_set.pair, [query], k)) == k


def test_unknown_terms_and_controls_change_nothing(query_set: QuerySet) -> None:
    nothing = ["", " \t\n", "the of and", "\0", "\0\0 \0", "!?", "qqxzzq", "qqxzzq zqzqz", "\ud800", "😀\u200d"]
    assert n_found(assert_equal(query_set.pair, nothing, 10)) == 0
    for query in query_set.queries[::100]:
        words = query.split()
        variants = [query, f"qqxzzq {query} zqzqz", "\0".join(words), "\0 \0".join(words), "\ud800".join(words), f"\0{query}\0"]
        hits = assert_equal(query_set.pair, variants, 10)
        assert hits.rows[0].tolist() == hits.rows[1].tolist()
        assert hits.scores[0].tobytes() == hits.scores[1].tobytes()


def test_k_beyond_the_corpus_finds_all_that_match(query_set: QuerySet) -> None:
    n = len(query_set.pair.passages)
    hits = assert_equal(query_set.pair, [*query_set.queries[:20], distinct_terms(query_set.words, 4000)], n + 1000)
    assert n_found(hits) > n
    assert (hits.rows[:, n:] == -1).all()


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_ties_over_many_blocks(scraps: QuerySet, k: int) -> None:
    pair, queries = scraps.pair, [*scraps.queries[::20], *mixed_queries(scraps.words, 100)]
    hits = assert_equal(pair, queries, k)
    assert np.unique(hits.rows[hits.rows >= 0] // BLOCK_ROWS).tolist() == list(range(len(pair.passages) // BLOCK_ROWS + 1))
    beyond = pair.bm25.search(queries, k + 1)
    n_tied = np.count_nonzero((beyond.scores[:, k - 1] == beyond.scores[:, k]) & (beyond.rows[:, k] >= 0))
    assert n_tied > len(queries) / 10


@pytest.mark.parametrize("k", [1, 5, 6, 10])
def test_equal_passages_of_several_blocks(scraps: QuerySet, k: int) -> None:
    hits = assert_equal(scraps.pair, ["qxqx", "fox qxqx", "qxqx year"], k)
    assert hits.rows[0].tolist() == [40_000, *FOXES, BLOCK_ROWS + 7, -1, -1, -1][:k]
