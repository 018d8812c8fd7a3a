"""Published rankings over 4,937 HotpotQA paragraphs (text only), top 50 with scores: by all-MiniLM-L6-v2, and by rank_bm25's BM25Okapi."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec
from wikidx.retrievers.opening import open_retriever


class Hotpot(NamedTuple):
    texts: dict[str, str]  # title -> text
    questions: list[str]
    rankings: list[list[tuple[str, float]]]  # of each question: (title, score), best first
    okapi: list[list[str]]  # titles, best first, by BM25Okapi with k1 1.5 and b 0.75 over lower-case words


@pytest.fixture(scope="module")
def hotpot(shared_data: Path) -> Hotpot:
    folder = shared_data / "hotpot500"
    with gzip.open(folder / "pooled_corpus_validation_500_title_text.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = {item["title"]: item["text"] for item in map(json.loads, lines)}
    rankings, okapi = (_rankings(folder / f"rankings_{method}_pooled.csv.gz") for method in ("dense", "bm25"))
    questions: dict[str, str] = {}
    for name in ("hotpotqa_200.jsonl.gz", "kilt_hotpotqa_400.jsonl.gz"):
        with gzip.open(shared_data / "datasets" / name, "rt", encoding="utf-8") as lines:
            questions |= {item.get("id", item.get("_id")): item["question"] for item in map(json.loads, lines)}
    both = [id_ for id_ in rankings if id_ in questions]
    assert (len(texts), len(rankings), len(both)) == (4937, 500, 53)
    return Hotpot(
        texts, [questions[id_] for id_ in both], [rankings[id_] for id_ in both], [[title for title, _ in okapi[id_]] for id_ in both]
    )


def _rankings(path: Path) -> dict[str, list[tuple[str, float]]]:
    rankings: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            rankings[row["example_id"]].append((row["title"], float(row["score"])))
    return rankings


def test_rankings_are_nearest_to_those_of_rank_bm25_with_its_k1_and_b(hotpot: Hotpot, build: Callable[..., PassageStore]) -> None:
    """Okapi weighs frequent terms and keeps lengths otherwise than Lucene; its words are renamed so that no analysis changes them."""
    words: defaultdict[str, str] = defaultdict(lambda: f"q{len(words)}")

    def renamed(text: str) -> str:
        return " ".join(words[word] for word in text.lower().split())

    titles = list(hotpot.texts)
    store = build([Passage(str(n), "", renamed(hotpot.texts[title])) for n, title in enumerate(titles)])
    n_first, overlap = {}, {}
    for name in ("bm25-1.5-0.75", "bm25", "bm25-1.5-0", "bm25-1.5-1", "bm25-0-0.75"):
        build_index("made", name, store)
        rows = open_retriever("made", name, store).retrieve([renamed(question) for question in hotpot.questions], 10).rows.tolist()
        pairs = [([titles[row] for row in found], published[:10]) for found, published in zip(rows, hotpot.okapi, strict=True)]
        n_first[name] = sum(found[0] == published[0] for found, published in pairs)
        overlap[name] = np.mean([len(set(found) & set(published)) / 10 for found, published in pairs])
    assert max(n_first, key=n_first.__getitem__) == max(overlap, key=overlap.__getitem__) == "bm25-1.5-0.75"
    assert n_first["bm25-1.5-0.75"] >= 46
    assert overlap["bm25-1.5-0.75"] > 0.86


@pytest.mark.slow  # ten seconds
def test_scores_are_the_published_ones(hotpot: Hotpot) -> None:
    encoder = TransformerEncoder(encoder_spec("minilm"))
    for question, ranking in list(zip(hotpot.questions, hotpot.rankings, strict=True))[:2]:
        vectors = encoder.encode_queries([hotpot.texts[title] for title, _ in ranking])
        scores = vectors @ encoder.encode_queries([question])[0]
        np.testing.assert_allclose(scores, [score for _, score in ranking], atol=2e-6)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_whole_path_gives_the_published_rankings(hotpot: Hotpot, build: Callable[..., PassageStore]) -> None:
    titles = list(hotpot.texts)
    store = build([Passage(str(n), "", hotpot.texts[title]) for n, title in enumerate(titles)])
    build_index("made", "minilm", store)
    hits = open_retriever("made", "minilm", store).retrieve(hotpot.questions, 50)
    n_same = sum(titles[row] == ranking[0][0] for row, ranking in zip(hits.rows[:, 0].tolist(), hotpot.rankings, strict=True))
    assert n_same >= 0.99 * len(hotpot.rankings)
    for line, ranking in enumerate(hotpot.rankings):
        scores = [score for _, score in ranking]
        np.testing.assert_allclose(hits.scores[line], scores, atol=2e-6)
        published = dict(ranking)
        for row, score in zip(hits.rows[line].tolist(), hits.scores[line].tolist(), strict=True):
            # Neighbours whose scores agree to the last bits may change places, at rank 50 with one that is not published.
            assert abs(published.get(titles[row], scores[-1]) - score) <= 2e-6
