from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from corpora.errors import ArtifactDamaged, ArtifactMismatch, ArtifactMissing
from corpora.passage import Passage
from corpora.store import PassageStore
from indexer.analysis import plain_english
from indexer.build import build_index, index_path, open_index
from indexer.indexes import bm25, inversion
from indexer.indexes.bm25 import BM25Index

Build = Callable[..., PassageStore]

WORDS = "river bank water flow gold silver mine deep lake fish boat sail wind storm night day sun moon star".split()


@pytest.fixture
def passages() -> list[Passage]:
    """500 passages of random words, some equal, some empty; document frequencies fall off as in language."""
    rng = np.random.default_rng(7)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(0, 30), p=weights / weights.sum())) for _ in range(450)]
    return [Passage(str(n), "The title" if n % 3 else "", text) for n, text in enumerate(texts + texts[:50])]


def slow_bm25(passages: Sequence[Passage], query: str, k1: float = 0.9, b: float = 0.4) -> list[tuple[float, int]]:
    """The formula in the module's docstring over dictionaries: (score, row) of every row above 0, best first."""
    documents = [Counter(plain_english(f"{passage.title} {passage.text}")) for passage in passages]
    lengths = [sum(document.values()) for document in documents]
    mean = sum(lengths) / len(lengths)
    scores = [0.0] * len(documents)
    for term, n in Counter(plain_english(query)).items():
        df = sum(term in document for document in documents)
        idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
        for row, document in enumerate(documents):
            tf = document[term]
            scores[row] += n * idf * tf / (tf + k1 * (1 - b + b * lengths[row] / mean))
    return sorted(((score, row) for row, score in enumerate(scores) if score > 0), key=lambda pair: (-pair[0], pair[1]))


QUERIES = [
    "river bank",
    "gold gold silver",
    "stars in the night",
    "unknownword",
    "unknownword moon",
    "",
    "the of and",
    " ".join(WORDS * 200),
    "river\0bank",
]


def built(build: Build, passages: list[Passage]) -> BM25Index:
    store = build(passages)
    build_index("made", "bm25", store)
    index = open_index("made", "bm25", store)
    assert isinstance(index, BM25Index)
    return index


@pytest.mark.parametrize("k", [1, 10, 1000])
@pytest.mark.parametrize("piece_rows", [64, 131_072], ids=["pieces", "one piece"])
def test_scores_and_ranking_are_the_formulas(
    build: Build, passages: list[Passage], k: int, piece_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "PIECE_ROWS", piece_rows)
    hits = built(build, passages).search(QUERIES, k)
    for line, query in enumerate(QUERIES):
        expected = slow_bm25(passages, query)[:k]
        n = len(expected)
        np.testing.assert_allclose(hits.scores[line, :n], [score for score, _ in expected], rtol=1e-5)
        by_row = dict((row, score) for score, row in slow_bm25(passages, query))
        np.testing.assert_allclose([by_row[row] for row in hits.rows[line, :n].tolist()], hits.scores[line, :n], rtol=1e-5)
        assert (hits.rows[line, n:] == -1).all()
        assert (hits.scores[line, n:] == -np.inf).all()


def test_equal_passages_tie_and_come_by_ascending_row(build: Build) -> None:
    passages = [Passage(str(n), "", text) for n, text in enumerate(["a red fox", "a blue fox", "a red fox", "", "a red fox"])]
    hits = built(build, passages).search(["red"], 5)
    assert hits.rows.tolist() == [[0, 2, 4, -1, -1]]
    assert hits.scores[0, 0] == hits.scores[0, 1] == hits.scores[0, 2]


def test_results_do_not_depend_on_the_batch_or_on_other_threads(build: Build, passages: list[Passage]) -> None:
    index = built(build, passages)
    batch = index.search(QUERIES * 10, 20)
    alone = [index.search([query], 20) for query in QUERIES]
    for line in range(len(QUERIES) * 10):
        assert batch.rows[line].tolist() == alone[line % len(QUERIES)].rows[0].tolist()
        assert batch.scores[line].tobytes() == alone[line % len(QUERIES)].scores[0].tobytes()
    differing: list[int] = []

    def search() -> None:
        differing.extend(1 for _ in range(20) if index.search(QUERIES, 20).scores.tobytes() != batch.scores[: len(QUERIES)].tobytes())

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing


def test_the_kernel_equals_its_python_twin(build: Build, passages: list[Passage]) -> None:
    index = built(build, passages)
    terms, weights = index._weighted_terms("river gold gold moon")
    sums, twin = np.zeros(len(passages), dtype=np.float32), np.zeros(len(passages), dtype=np.float32)
    bm25._add_scores(index._postings.arrays, index._saturation, terms, weights, sums)
    bm25._add_scores.py_func(index._postings.arrays, index._saturation, terms, weights, twin)
    assert sums.tobytes() == twin.tobytes()
    assert sums.any()


def test_a_corpus_without_any_term_finds_nothing(build: Build) -> None:
    assert built(build, [Passage("1", "", ""), Passage("2", "the", "of")]).search(["anything"], 3).rows.tolist() == [[-1, -1, -1]]


def test_a_killed_build_resumes_from_its_pieces_to_the_same_bytes(
    build: Build, passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "PIECE_ROWS", 100)
    store = build(passages)
    undisturbed = build_index("made", "bm25", store)
    inverted: list[int] = []
    invert = inversion.invert

    def interrupted(rows: object, first: int, piece: Path) -> None:
        if first == 300 and first not in inverted:
            inverted.append(first)
            raise KeyboardInterrupt
        inverted.append(first)
        invert(rows, first, piece)  # type: ignore[arg-type]

    monkeypatch.setattr(bm25, "invert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_index("made", "bm25", store, force=True)
    resumed = build_index("made", "bm25", store, force=True)
    assert inverted == [0, 100, 200, 300, 300, 400]
    assert resumed.files == undisturbed.files


def test_an_index_of_another_store_is_refused(build: Build, passages: list[Passage]) -> None:
    built(build, passages)
    other = build(passages[:-1])
    with pytest.raises(ArtifactMismatch, match=r"was built over other passages .*run 'idx build made --bm25 --force'"):
        open_index("made", "bm25", other)
    with pytest.raises(ArtifactMismatch):
        build_index("made", "bm25", other)
    build_index("made", "bm25", other, force=True)
    open_index("made", "bm25", other)


def test_a_missing_index_says_what_to_run(build: Build, passages: list[Passage]) -> None:
    with pytest.raises(ArtifactMissing, match="run 'idx build made --bm25'"):
        open_index("made", "bm25", build(passages))


def test_a_truncated_postings_file_is_refused(build: Build, passages: list[Passage]) -> None:
    store = build(passages)
    build_index("made", "bm25", store)
    file = index_path("made", "bm25") / "rows.i32"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ArtifactDamaged, match=r"rows\.i32 has .* bytes instead of"):
        open_index("made", "bm25", store)


def test_k_below_one_is_refused(build: Build, passages: list[Passage]) -> None:
    with pytest.raises(ValueError, match="k is 0"):
        built(build, passages).search(["gold"], 0)
