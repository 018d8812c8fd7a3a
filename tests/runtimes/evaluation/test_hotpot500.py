"""Published rankings of 500 HotpotQA questions over their 4,937 pooled paragraphs, and the figures that were published of them."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from wikidx.runtimes.evaluation.retrieval.rankings import gold_values
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import read_questions

CUTS = (2, 5, 10)
N_PAGES = 2  # that support each question
GOLD_RANKS = Path(__file__).parents[2] / "data" / "hotpot500" / "gold_ranks.csv"


def read_rankings(shared_data: Path, method: str) -> dict[str, dict[str, float]]:
    """Return each question's pages, scored by their ranks: so equal scores stay in the published order, which trec_eval's is not."""
    rankings: defaultdict[str, dict[str, float]] = defaultdict(dict)
    with gzip.open(shared_data / "hotpot500" / f"rankings_{method}_pooled.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            rankings[line["example_id"]][line["title"]] = -float(line["rank"])
    return dict(rankings)


def read_gold(rankings: dict[str, dict[str, float]], method: str) -> dict[str, dict[str, int]]:
    """Return each question's supporting pages; those that the ranking does not have are known by number only."""
    gold: dict[str, dict[str, int]] = {}
    with GOLD_RANKS.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            at_rank = {-score: title for title, score in rankings[line["question"]].items()}
            found = [at_rank[float(rank)] for rank in line[method].split()]
            not_found = [f"not found {n}" for n in range(N_PAGES - len(found))]
            gold[line["question"]] = dict.fromkeys([*found, *not_found], 1)
    return gold


def published(shared_data: Path, method: str) -> dict[str, str]:
    with (shared_data / "hotpot500" / "main_results_v1.csv").open(encoding="utf-8", newline="") as lines:
        return next(line for line in csv.DictReader(lines) if line["Method"].lower() == method)


@pytest.mark.parametrize("method", ["bm25", "dense"])
def test_the_figures_of_published_rankings_are_the_published_ones(shared_data: Path, method: str) -> None:
    rankings = read_rankings(shared_data, method)
    gold = read_gold(rankings, method)
    assert rankings.keys() == gold.keys()
    assert len(gold) == 500
    measures = [*(f"{name}@{k}" for name in ("Success", "R") for k in CUTS), "RR@10", "RR"]
    values: dict[str, FloatArray] = gold_values(rankings, gold, list(gold), measures)
    figures = {
        **{f"Any Evidence Hit Rate@{k}": values[f"Success@{k}"] for k in CUTS},
        **{f"Full Evidence Hit Rate@{k}": values[f"R@{k}"] == 1 for k in CUTS},
        "Evidence Recall@5": values["R@5"],
        "MRR@10": values["RR@10"],
        "MRR@50": values["RR"],
    }
    expected = published(shared_data, method)
    assert {name: f"{np.mean(of_figure):.3f}" for name, of_figure in figures.items()} == {name: expected[name] for name in figures}
    assert expected.keys() == {"Method", *figures}
    questions = [one for one in read_questions(shared_data / "datasets" / "hotpotqa_200.jsonl.gz") if one.id in gold]
    assert len(questions) == 15
    for one in questions:  # the gold pages are those of the set
        assert {page for page in gold[one.id] if page in rankings[one.id]} == set(one.gold["titles"]) & rankings[one.id].keys()
