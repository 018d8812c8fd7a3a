"""Published rankings over 4,937 HotpotQA paragraphs (text only) by all-MiniLM-L6-v2, top 50 with scores."""

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


@pytest.fixture(scope="module")
def hotpot(shared_data: Path) -> Hotpot:
    folder = shared_data / "hotpot500"
    with gzip.open(folder / "pooled_corpus_validation_500_title_text.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = {item["title"]: item["text"] for item in map(json.loads, lines)}
    rankings = _rankings(folder / "rankings_dense_pooled.csv.gz")
    questions: dict[str, str] = {}
    for name in ("hotpotqa_200.jsonl.gz", "kilt_hotpotqa_400.jsonl.gz"):
        with gzip.open(shared_data / "datasets" / name, "rt", encoding="utf-8") as lines:
            questions |= {item.get("id", item.get("_id")): item["question"] for item in map(json.loads, lines)}
    both = [id_ for id_ in rankings if id_ in questions]
    assert (len(texts), len(rankings), len(both)) == (4937, 500, 53)
    return Hotpot(texts, [questions[id_] for id_ in both], [rankings[id_] for id_ in both])


def _rankings(path: Path) -> dict[str, list[tuple[str, float]]]:
    rankings: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            rankings[row["example_id"]].append((row["title"], float(row["score"])))
    return rankings


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
