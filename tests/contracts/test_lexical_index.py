"""Every index of terms: BM25 by its definition, whatever the query, its batch, its thread and its process.

BM25Index returns Lucene's scores to the bit, and ties by ascending row. Pyserini rounds the scores of an imported index, and orders ties
by id.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.conftest import corpus_of
from tests.indexer.analyzers import REFERENCES, trigrams
from tests.lucene.jvm import require_java
from tests.lucene.oracle import index_passages
from wikidx.base.errors import ArtifactMismatch, ArtifactMissing, InputError
from wikidx.base.plugins import VARIABLE
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.analysis.english import ANALYZER, english
from wikidx.indexer.base import Hits, LexicalIndex
from wikidx.indexer.build import build_index, open_lexical_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.bm25 import BM25Index
from wikidx.indexer.indexes.bm25.files import DTYPES
from wikidx.indexer.indexes.postings.files import IndexFiles
from wikidx.indexer.published.lucene import import_lucene
from wikidx.indexer.scope import Scope

WORDS = "river bank water flow gold silver mine deep lake fish boat sail wind storm night day sun moon star".split()


def made_passages() -> list[Passage]:
    """Passages of random words, some equal, some empty, some of a single word; document frequencies fall off as in language."""
    rng = np.random.default_rng(7)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(0, 30), p=weights / weights.sum())) for _ in range(450)]
    passages = [Passage(str(n), "The title" if n % 3 else f"Rare{n % 60}", text) for n, text in enumerate(texts + texts[:50])]
    return passages + [Passage(f"repeated {n}", "", "gold " * n + "silver " * (n % 7)) for n in (1, 2, 3, 40, 2_000)]


PASSAGES = made_passages()
QUERIES = [
    "river bank",
    "gold gold silver",
    "rare9 river rare12 rare9",
    "rare30",
    "stars in the night",
    "unknownword",
    "unknownword moon",
    "",
    "the of and",
    " ".join(WORDS * 200),
    "river\0bank",
    "\ud800 moon",
]

Ranking = list[tuple[np.float32, int]]


def coded(length: int) -> int:
    """The length that Lucene's one byte keeps of a length: exact to 40, then the four highest bits of the excess over 24."""
    rest = length - 24
    if rest < 16:
        return length
    shift = rest.bit_length() - 4
    return 24 + (rest >> shift << shift)


@functools.cache
def documents(terms: Callable[[str], list[str]]) -> list[Counter[str]]:
    return [Counter(terms(f"{passage.title}\n{passage.text}")) for passage in PASSAGES]


@functools.cache
def ranking(query: str, k1_and_b: tuple[float, float], terms: Callable[[str], list[str]] = english) -> Ranking:
    """Lucene's BM25Similarity over dictionaries: (score, row) of every row above 0, best first."""
    one, (k1, b) = np.float32(1), map(np.float32, k1_and_b)
    lengths = [sum(document.values()) for document in documents(terms)]
    n_rows_with_terms = sum(length > 0 for length in lengths)
    mean = np.float32(sum(lengths) / n_rows_with_terms)
    with np.errstate(divide="ignore"):
        inverse = [one / (k1 * ((one - b) + b * np.float32(coded(length)) / mean)) for length in lengths]
    scores = [0.0] * len(lengths)
    for term, n in Counter(terms(query)).items():
        df = sum(term in document for document in documents(terms))
        weight = np.float32(n) * np.float32(math.log(1 + (n_rows_with_terms - df + 0.5) / (df + 0.5)))
        for row, document in enumerate(documents(terms)):
            if document[term]:
                scores[row] += float(weight - weight / (one + np.float32(document[term]) * inverse[row]))
    return sorted(((np.float32(score), row) for row, score in enumerate(scores) if score > 0), key=lambda pair: (-pair[0], pair[1]))


class Opened(NamedTuple):
    """An open index over the passages; ``builds`` is the command that builds or imports it."""

    name: str
    engine: LexicalIndex
    k1_and_b: tuple[float, float] = (0.9, 0.4)
    builds: str = "idx build made --bm25"
    terms: Callable[[str], list[str]] = english

    def ranking(self, query: str) -> Ranking:
        """Return every row above 0 by the definition, best first."""
        return ranking(query, self.k1_and_b, self.terms)

    def check(self, found: Hits, line: int, query: str) -> None:
        """Check the hits of a query against the definition."""
        k, expected = found.rows.shape[1], self.ranking(query)
        rows, scores = [row for _, row in expected[:k]], np.array([score for score, _ in expected[:k]], dtype=np.float32)
        n = len(rows)
        assert (found.rows[line, n:] == -1).all()
        assert np.isneginf(found.scores[line, n:]).all()
        if self.name == "lucene":
            np.testing.assert_allclose(found.scores[line, :n], scores, atol=1e-4 + 1e-6 * k)
            assert (
                {row for score, row in expected[:k] if score > scores[-1]}
                <= {*found.rows[line, :n].tolist()}
                <= {row for _, row in expected}
            )
            assert len({*found.rows[line, :n].tolist()}) == n
        else:
            assert found.rows[line, :n].tolist() == rows
            assert found.scores[line, :n].tobytes() == scores.tobytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with the passages, to which the indexes are added."""
    home = tmp_path_factory.mktemp("whole") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        patch.setenv(VARIABLE, REFERENCES)
        build_store(corpus_of(PASSAGES), StoreOptions())
        yield home


def built(name: str) -> LexicalIndex:
    build_index("made", name, open_store("made"))
    return open_lexical_index("made", name, open_store("made"))


@functools.cache
def open_of_kind(kind: str, home: Path) -> Opened:
    """Build and open an index, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        if kind == "lucene":
            require_java()
            import_lucene("made", index_passages(PASSAGES, home.parent / "lucene", own_ids=True), open_store("made"))
            return Opened(kind, open_lexical_index("made", kind, open_store("made")), builds="idx import lucene PATH --corpus made")
        if kind == "bm25":
            return Opened(kind, built(kind))
        if kind == "bm25, all rows scored":
            built("bm25")
            ref = index_ref("made", "bm25")
            return Opened("bm25", BM25Index(IndexFiles(ref.path, ref.manifest(None), DTYPES), ANALYZER, 0.9, 0.4, max_filtered_terms=0))
        analyzer = next((name for name in ANALYZERS if kind.startswith(name)), "")
        k1, b = map(float, kind.removeprefix(analyzer).strip("-").split("-")) if analyzer != kind else (0.9, 0.4)
        terms = ANALYZERS.get(analyzer, english)
        return Opened(f"bm25-{kind}", built(f"bm25-{kind}"), (k1, b), f"idx build made --index bm25-{kind}", terms)


ANALYZERS: dict[str, Callable[[str], list[str]]] = {"tri-grams": trigrams, "as-english": english}
OF_ANALYZERS = ["tri-grams", "tri-grams-1.2-0.75", "as-english"]


LUCENE = pytest.param("lucene", marks=pytest.mark.slow)  # Java, and Pyserini's import
RANDOM = random.Random(12)
NUMBERS = ["1.2-0.75", "1.2-0", "0-0.75", "0.00001-1", "254-1", "1000-0.5"]
NUMBERS += [f"{round(RANDOM.uniform(0, 4), 3) or 0:g}-{RANDOM.choice([0, 1, round(RANDOM.random(), 3)]):g}" for _ in range(4)]


@pytest.fixture(scope="module", params=["bm25", "bm25, all rows scored", *NUMBERS, *OF_ANALYZERS, LUCENE])
def of_any_numbers(request: pytest.FixtureRequest, whole: Path) -> Opened:
    return open_of_kind(request.param, whole)


@pytest.fixture(scope="module", params=["bm25", "bm25, all rows scored", "1.2-0.75", "tri-grams", LUCENE])
def opened(request: pytest.FixtureRequest, whole: Path) -> Opened:
    return open_of_kind(request.param, whole)


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_rows_and_scores_are_those_of_the_definition(of_any_numbers: Opened, k: int) -> None:
    hits = of_any_numbers.engine.search(QUERIES, k)
    assert hits.rows.shape == hits.scores.shape == (len(QUERIES), k)
    assert (hits.rows.dtype.name, hits.scores.dtype.name) == ("int64", "float32")
    for line, query in enumerate(QUERIES):
        of_any_numbers.check(hits, line, query)


SCOPES = [range(0, 505, 2), range(3, 505, 10), range(100, 300), [500, 7, 3], [], range(505)]


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_within_a_scope_rows_and_scores_are_those_of_the_definition(opened: Opened, k: int) -> None:
    for rows in SCOPES:
        scope = Scope.of(rows, len(PASSAGES))
        if opened.name == "lucene":
            with pytest.raises(InputError, match="'lucene' searches all rows only: use 'bm25'"):
                opened.engine.search(QUERIES, k, scope)
            continue
        hits = opened.engine.search(QUERIES, k, scope)
        for line, query in enumerate(QUERIES):
            expected = [(score, row) for score, row in opened.ranking(query) if row in set(rows)][:k]
            n = len(expected)
            assert hits.rows[line].tolist() == [row for _, row in expected] + [-1] * (k - n)
            assert hits.scores[line, :n].tobytes() == np.array([score for score, _ in expected], dtype=np.float32).tobytes()


def test_given_rows_have_the_scores_of_a_search(opened: Opened) -> None:
    everything = np.arange(len(PASSAGES))
    if opened.name == "lucene":
        with pytest.raises(InputError, match="'lucene' cannot score given rows again: use 'bm25'"):
            opened.engine.rescore(QUERIES, [everything] * len(QUERIES))
        return
    for query, scores in zip(QUERIES, opened.engine.rescore(QUERIES, [everything] * len(QUERIES)), strict=True):
        expected = {row: score for score, row in opened.ranking(query)}
        assert scores.tolist() == [expected.get(row, -np.inf) for row in everything.tolist()]
    some = [everything[line::7].copy() for line in range(len(QUERIES))]
    for query, rows, scores in zip(QUERIES, some, opened.engine.rescore(QUERIES, some), strict=True):
        (all_scores,) = opened.engine.rescore([query], [everything])
        assert scores.tobytes() == all_scores[rows].tobytes()


def bits(hits: Hits) -> list[bytes]:
    """Return what a search found, one value for each query."""
    return [rows.tobytes() + scores.tobytes() for rows, scores in zip(*hits, strict=True)]


@pytest.mark.parametrize("uses_threads", [False, True])
def test_results_do_not_depend_on_the_batch(opened: Opened, uses_threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if uses_threads:
        monkeypatch.setattr("wikidx.indexer.indexes.bm25.index._POSTINGS_WORTH_THREADS", 0)
    alone = [found for query in QUERIES for found in bits(opened.engine.search([query], 20))]
    assert bits(opened.engine.search(QUERIES * 30, 20)) == alone * 30
    assert opened.engine.search([], 5).rows.shape == (0, 5)


def test_threads_search_at_once(opened: Opened) -> None:
    alone = bits(opened.engine.search(QUERIES, 20))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: bits(opened.engine.search(QUERIES, 20)), range(40))) == [alone] * 40


def test_forked_processes_search_after_threads_have(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    if opened.name == "lucene":
        pytest.skip("Java does not outlive a fork: test_lucene has what it says")
    monkeypatch.setattr("wikidx.indexer.indexes.bm25.index._POSTINGS_WORTH_THREADS", 0)
    alone, forks = bits(opened.engine.search(QUERIES * 3, 20)), multiprocessing.get_context("fork")
    receiver, sender = forks.Pipe(duplex=False)
    children = [forks.Process(target=lambda: sender.send(bits(opened.engine.search(QUERIES * 3, 20)))) for _ in range(2)]
    for child in children:
        child.start()
        assert receiver.poll(60)
        assert receiver.recv() == alone
        child.join()


def test_k_below_one_is_refused(opened: Opened) -> None:
    with pytest.raises(ValueError, match="k is 0: ask for at least one result"):
        opened.engine.search(["gold"], 0)


def test_a_missing_index_and_one_of_other_passages_say_what_to_run(opened: Opened, whole: Path, home: Path) -> None:
    shutil.copytree(whole, home)
    build_store(corpus_of(PASSAGES[:-1]), StoreOptions(replace=True, rebuild=True))
    with pytest.raises(ArtifactMismatch, match=f"was built over other passages .*run '{opened.builds} --force'"):
        open_lexical_index("made", opened.name, open_store("made"))
    with pytest.raises(InputError if opened.name == "lucene" else ArtifactMismatch):
        build_index("made", opened.name, open_store("made"))
    shutil.rmtree(index_ref("made", opened.name).path)
    with pytest.raises(ArtifactMissing, match=f"run '{opened.builds}'"):
        open_lexical_index("made", opened.name, open_store("made"))
