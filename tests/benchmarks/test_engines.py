"""Peers of BM25: each finds what its own formula, computed here from the terms, ranks first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.engines.kinds import find_kind, pad_hits
from benchmarks.engines.quality import share_of_equal_scores
from benchmarks.engines.terms import analysed, letters_and_digits
from benchmarks.processes import NAME
from wikidx.base.errors import IdxError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis import english
from wikidx.indexer.base import Hits

N, K = 400, 10
PEERS = ("pisa", "pisa-quantized", "tantivy", "sqlite")

Score = Callable[[int, int, int, float], float]  # frequency, documents with the term, length, mean length


@pytest.fixture
def corpus(build: Callable[..., PassageStore], tmp_path: Path) -> tuple[Path, list[list[str]], list[str]]:
    """Return the folder of a corpus of unequally frequent words, some of them not ASCII, its terms and some questions."""
    rng = np.random.default_rng(0)
    words = np.array([f"{'née' if n % 7 == 0 else 'word'}{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500)])

    def text(n_words: int) -> str:
        return " ".join(words[np.minimum(rng.zipf(1.3, n_words), 500) - 1])

    passages = [Passage(str(n), text(2), text(int(rng.integers(5, 37)))) for n in range(N)]
    build(passages, name=NAME)
    terms = [english(f"{passage.title}\n{passage.text}") for passage in passages]
    return tmp_path, terms, ["the", *(text(6) for _ in range(40)), "absent"]


def pisa(frequency: int, n_with: int, length: int, mean: float) -> float:
    idf = max(1e-6, math.log((N - n_with + 0.5) / (n_with + 0.5)))
    return idf * frequency * 1.9 / (frequency + 0.9 * (0.6 + 0.4 * length / mean))


def sqlite(frequency: int, n_with: int, length: int, mean: float) -> float:
    idf = max(1e-6, math.log((N - n_with + 0.5) / (n_with + 0.5)))
    return idf * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length / mean))


def best_hits(score: Score, terms: Sequence[Sequence[str]], questions: Sequence[str]) -> Hits:
    """Return the k best of every question, by a formula."""
    counts, mean = [Counter(of) for of in terms], float(np.mean([len(of) for of in terms]))
    n_with = Counter(term for count in counts for term in count)
    found = []
    for question in questions:
        asked = [term for term in english(question) if n_with[term]]
        scores = {
            row: sum(score(count[term], n_with[term], len(terms[row]), mean) for term in asked if count[term])
            for row, count in enumerate(counts)
            if any(count[term] for term in asked)
        }
        rows = sorted(scores, key=lambda row: -scores[row])[:K]
        found.append((rows, [scores[row] for row in rows]))
    return pad_hits(found, K)


def tantivy(frequency: int, n_with: int, length: int, mean: float) -> float:
    """Return a term's score; Tantivy's lengths are exact up to 40."""
    idf = math.log(1 + (N - n_with + 0.5) / (n_with + 0.5))
    return idf * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length / mean))


def opened(name: str, folder: Path, questions: Sequence[str]) -> Any:  # noqa: ANN401 - engines' own types
    kind = find_kind(name)
    try:
        kind.check()
    except IdxError as error:
        pytest.skip(str(error))
    assert any(kind.build(folder, 1).iterdir())
    engine = kind.open(folder, 1)
    engine.set_questions(questions)
    return engine


@pytest.mark.parametrize(("name", "score"), [("pisa", pisa), ("tantivy", tantivy), ("sqlite", sqlite)])
def test_scores_are_those_of_the_formula(corpus: tuple[Path, list[list[str]], list[str]], name: str, score: Score) -> None:
    folder, terms, questions = corpus
    engine, expected = opened(name, folder, questions), best_hits(score, terms, questions)
    found = engine.hits(len(questions), K)
    assert np.isneginf(found.scores[[0, -1]]).all()  # a stop word, and a term that no passage has
    assert share_of_equal_scores(found, expected) == 1
    assert (
        np.where(found.rows >= 0, found.rows, 0)[:, 0] == np.where(expected.rows >= 0, expected.rows, 0)[:, 0]
    ).mean() > 0.9  # but for ties


@pytest.mark.parametrize("name", PEERS)
def test_nothing_that_belongs_to_the_best_is_left_out(corpus: tuple[Path, list[list[str]], list[str]], name: str) -> None:
    folder, _, questions = corpus
    engine = opened(name, folder, questions)
    found, whole = engine.hits(len(questions), K), engine.exhaustive(len(questions), K)
    assert (found.rows >= 0).sum() > 10 * len(questions) / 2
    assert share_of_equal_scores(found, whole) == 1
    assert engine.single(3, K) is not None


def test_terms_come_in_the_order_of_the_passages(corpus: tuple[Path, list[list[str]], list[str]]) -> None:
    _, terms, _ = corpus
    assert [text.split() for text in analysed()] == terms
    coded = [text.split() for text in analysed(letters_and_digits)]
    assert coded == [[letters_and_digits(term) for term in of] for of in terms]


def test_coded_terms_are_words_of_any_tokenizer_and_differ() -> None:
    terms = ["plain", "née", "16,368", "n't", "u.", "0x6e", "0x", "6e", "n", "х", "x"]
    coded = [letters_and_digits(term) for term in terms]
    assert len(set(coded)) == len(terms)
    assert all(term.isascii() and term.isalnum() for term in coded)
    assert coded[0] == "plain"
