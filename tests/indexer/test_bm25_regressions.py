"""Published figures of BM25 with Lucene (k1 0.9, b 0.4), reached without Java, and measured by trec_eval's own code.

The figures are those of Anserini's regressions ``cacm`` and ``beir-v1.0.0-nfcorpus.flat``, which also say how many terms were indexed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import ir_measures
import pytest
from ir_measures import AP, P, R, nDCG

from tests.conftest import corpus_of
from tests.indexer.real_collections import COLLECTIONS
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.indexer.build import build_index, open_lexical_index

Qrels = dict[str, dict[str, int]]  # query -> passage -> grade

DEPTH = 1000


class Published(NamedTuple):
    """Published figures, and counts of what was indexed; unpublished counts are left out."""

    figures: Mapping[ir_measures.Measure, float]
    counts: Mapping[str, int]


PUBLISHED = {
    "cacm": Published({AP: 0.3123, P @ 30: 0.1942}, {"rows": 3_204, "rows_with_terms": 3_204, "tokens": 320_968, "terms": 14_363}),
    "nfcorpus": Published(
        {nDCG @ 10: 0.3218, R @ 100: 0.2457, R @ 1000: 0.3704}, {"rows": 3_633, "rows_with_terms": 3_633, "tokens": 637_485}
    ),
}
QRELS = {"cacm": "qrels.cacm.txt", "nfcorpus": "test.qrels"}


def read_qrels(path: Path) -> Qrels:
    qrels: Qrels = {}
    for line in path.read_text(encoding="ascii").splitlines():
        query, _, passage, grade = line.split()
        qrels.setdefault(query, {})[passage] = int(grade)
    return qrels


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures_are_reached(name: str, shared_data: Path, home: Path) -> None:
    """trec_eval looks at scores, not at ranks, and orders equal ones by descending id.

    Anserini orders them by ascending id and writes scores from which trec_eval must read its ranks. The passages here are in the order of
    their ids, so that our order of equal scores, ascending rows, is Anserini's; ranks for scores keep it. (By descending ids nDCG@10 on
    NFCorpus would be .3206, MAP on CACM .3124.)
    """
    collection, qrels, published = COLLECTIONS[name](shared_data), read_qrels(shared_data / name / QRELS[name]), PUBLISHED[name]
    build_store(corpus_of(collection.passages), StoreOptions())
    counts = build_index("made", "bm25", open_store("made")).counts
    assert {name: counts[name] for name in published.counts} == published.counts
    hits = open_lexical_index("made", "bm25", open_store("made")).search([collection.queries[query] for query in qrels], DEPTH)
    run = {
        query: {collection.passages[row].id: -rank for rank, row in enumerate(rows) if row >= 0}
        for query, rows in zip(qrels, hits.rows.tolist(), strict=True)
    }
    measured = ir_measures.calc_aggregate(published.figures, qrels, run)
    assert {measure: round(value, 4) for measure, value in measured.items()} == published.figures
