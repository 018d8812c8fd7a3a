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
from tests.indexer.real_collections import COLLECTIONS, Collection
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.indexer.base import Hits, LexicalIndex
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


class Judged(NamedTuple):
    """A collection with judgements, and the index over it."""

    collection: Collection
    qrels: Qrels
    bm25: LexicalIndex
    indexed: Mapping[str, int]
    published: Published


def read_qrels(path: Path) -> Qrels:
    qrels: Qrels = {}
    for line in path.read_text(encoding="ascii").splitlines():
        query, _, passage, grade = line.split()
        qrels.setdefault(query, {})[passage] = int(grade)
    return qrels


@pytest.fixture(scope="module", params=PUBLISHED)
def judged(request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    name = request.param
    collection = COLLECTIONS[name](shared_data)
    qrels = read_qrels(shared_data / name / QRELS[name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(tmp_path_factory.mktemp(name)))
        build_store(corpus_of(collection.passages, "made"), StoreOptions())
        store = open_store("made")
        manifest = build_index("made", "bm25", store)
        return Judged(collection, qrels, open_lexical_index("made", "bm25", store), manifest.counts, PUBLISHED[name])


def run_of(judged: Judged, hits: Hits) -> dict[str, dict[str, float]]:
    """Return the rankings as trec_eval takes them.

    trec_eval looks at scores, not at ranks, and orders equal ones by descending id. Anserini orders them by ascending id and writes scores
    from which trec_eval must read its ranks. The passages here are in the order of their ids, so that our order of equal scores, ascending
    rows, is Anserini's; ranks for scores keep it. (By descending ids nDCG@10 on NFCorpus would be .3206, MAP on CACM .3124.)
    """
    ids = [passage.id for passage in judged.collection.passages]
    return {
        query: {ids[row]: -rank for rank, row in enumerate(rows) if row >= 0} for query, rows in zip(judged.qrels, hits.rows, strict=True)
    }


def test_the_published_figures_are_reached(judged: Judged) -> None:
    hits = judged.bm25.search([judged.collection.queries[query] for query in judged.qrels], DEPTH)
    measured = ir_measures.calc_aggregate(judged.published.figures, judged.qrels, run_of(judged, hits))
    assert {measure: round(value, 4) for measure, value in measured.items()} == judged.published.figures


def test_as_many_terms_are_indexed_as_published(judged: Judged) -> None:
    assert {name: judged.indexed[name] for name in judged.published.counts} == judged.published.counts
