"""Peers of BM25: each finds what its own formula, computed here from the terms, ranks first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.engines.kinds import find_kind, pad_hits
from benchmarks.engines.quality import share_of_equal_scores
from benchmarks.engines.terms import analysed, letters_and_digits
from benchmarks.processes import NAME
from wikidx.base.errors import IdxError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis.english import english
from wikidx.indexer.base import Hits

N, K = 400, 10

Formula = tuple[float, float, bool]  # k1, b, and whether the idf is Lucene's


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


def best_hits(formula: Formula, terms: Sequence[Sequence[str]], questions: Sequence[str]) -> Hits:
    """Return the k best of every question by BM25, with another idf if ``is_plus_one``; Tantivy's lengths are exact up to 40."""
    k1, b, is_plus_one = formula
    counts, mean = [Counter(of) for of in terms], float(np.mean([len(of) for of in terms]))
    n_with = Counter(term for count in counts for term in count)

    def score(row: int, term: str) -> float:
        odds, frequency = (N - n_with[term] + 0.5) / (n_with[term] + 0.5), counts[row][term]
        idf = math.log(1 + odds) if is_plus_one else max(1e-6, math.log(odds))
        return idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * len(terms[row]) / mean))

    found = []
    for question in questions:
        asked = [term for term in english(question) if n_with[term]]
        scores = {row: sum(score(row, term) for term in asked) for row in range(N) if any(counts[row][term] for term in asked)}
        best = sorted(scores.items(), key=lambda item: -item[1])[:K]
        found.append(([row for row, _ in best], [value for _, value in best]))
    return pad_hits(found, K)


@pytest.mark.parametrize(
    ("name", "formula"),
    [("pisa", (0.9, 0.4, False)), ("pisa-quantized", None), ("tantivy", (1.2, 0.75, True)), ("sqlite", (1.2, 0.75, False))],
)
def test_the_best_by_the_formula_are_found(corpus: tuple[Path, list[list[str]], list[str]], name: str, formula: Formula | None) -> None:
    (folder, terms, questions), kind = corpus, find_kind(name)
    try:
        kind.check()
    except IdxError as error:
        pytest.skip(str(error))
    kind.build(folder, 1)
    engine = kind.open(folder, 1)
    engine.set_questions(questions)
    found, whole = engine.hits(len(questions), K), engine.exhaustive(len(questions), K)
    assert np.isneginf(found.scores[[0, -1]]).all()  # a stop word, and a term that no passage has
    assert (found.rows >= 0).sum() > 10 * len(questions) / 2
    assert whole is not None
    assert share_of_equal_scores(found, whole) == 1
    if formula:
        expected = best_hits(formula, terms, questions)
        assert share_of_equal_scores(found, expected) == 1
        assert (found.rows[:, 0].clip(0) == expected.rows[:, 0].clip(0)).mean() > 0.9  # but for ties


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
