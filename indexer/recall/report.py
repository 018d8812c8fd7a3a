"""Recall of the indexes over a corpus's vectors against exact search: measurement, report files and plots."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wikidx.corpora.artifacts.durable import write_durably
from wikidx.corpora.build import open_store
from wikidx.corpora.errors import ArtifactMissing, MissingExtraError
from wikidx.corpora.progress import Progress, Step, silent_steps
from wikidx.corpora.reading.queries import read_queries
from wikidx.indexer.base import Hits, Vectors
from wikidx.indexer.build import open_vector_index, open_vectors
from wikidx.indexer.catalog import built_indexes, index_ref
from wikidx.indexer.encoders.transformer import open_encoder
from wikidx.indexer.machine.threads import n_threads
from wikidx.indexer.naming import encoder_spec, parse_index_name

from .measuring import BATCH, DEPTHS, Point, measure_settings, queries_per_s, swept_parameter
from .plot import Curve, draw

if TYPE_CHECKING:
    from wikidx.corpora.store import PassageStore

RECALL, PLOT = "recall.json", "recall.png"

_N_QUERIES = 500
_SEED = 1234


class RecallReport(NamedTuple):
    """The content of each index's ``recall.json``, and one message per encoder: the path of its plot, or the reason for no plot."""

    reports: dict[str, Any]
    plots: list[str]


class _Baseline(NamedTuple):
    """Exact search over an encoder's vectors, the reference for its indexes.

    Attributes:
        store: the corpus's store.
        vectors: query vectors, float32, shape (Q, dim).
        hits: exact results for the queries.
        common_fields: common fields of the reports.
    """

    store: PassageStore
    vectors: Vectors
    hits: Hits
    common_fields: dict[str, Any]


def measure_recall(corpus: str, queries: Path | None = None, step: Step = silent_steps) -> RecallReport:
    """Measure every index built from vectors.

    Each index's folder gets a ``recall.json``, and each folder of vectors a ``recall.png``.

    Args:
        corpus: name of a built corpus.
        queries: a file of queries; see ``read_queries``. None: the questions of the sample corpus, or titles of
            random passages of another corpus.
        step: see ``Step``.

    Raises:
        ArtifactMissing: the corpus has no index built from vectors, or the vectors of such an index are missing.
        InputError: the file of queries cannot be used.
        ArtifactError, MissingExtraError: see ``open_vector_index``.
    """
    store = open_store(corpus)
    indexes = [name for name in map(parse_index_name, built_indexes(corpus)) if name.encoder and name.kind]
    if not indexes:
        raise ArtifactMissing(f"'{corpus}' has no index made of vectors: run 'idx build {corpus} --encoder NAME --index KIND'")
    texts, origin = (
        (list(dict.fromkeys(query.text for query in read_queries(queries))), str(queries)) if queries else _default_queries(corpus, store)
    )
    recall = RecallReport({}, [])
    for encoder in dict.fromkeys(name.encoder for name in indexes):
        baseline = _search_exactly(corpus, encoder, store, *_query_vectors(corpus, encoder, store, texts, origin))
        curves = dict[str, Curve]()
        for name in [str(index) for index in indexes if index.encoder == encoder]:
            curves[name] = _measure_index(corpus, name, baseline, step(f"measuring {name}", "settings"))
            recall.reports[name] = _write_report(corpus, name, curves[name], baseline.common_fields)
        recall.plots.append(_draw(corpus, encoder, baseline, curves))
    return recall


def _query_vectors(corpus: str, encoder: str, store: PassageStore, texts: list[str], origin: str) -> tuple[Vectors, str]:
    """Return the vectors of queries and their origin; without an encoder, vectors of the corpus."""
    spec = encoder_spec(encoder)
    vectors = open_vectors(corpus, encoder, store) if spec.query_checkpoint is None else None
    if vectors is not None:
        return vectors.sample(_N_QUERIES, _SEED), "vectors of passages drawn at random"
    return open_encoder(spec, "auto").encode_queries(texts), origin


def _search_exactly(corpus: str, encoder: str, store: PassageStore, vectors: Vectors, origin: str) -> _Baseline:
    exact = open_vector_index(corpus, encoder, store)
    depth = min(DEPTHS[-1], len(store))
    common_fields = {
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "queries": len(vectors),
        "queries_from": origin,
        "batch": BATCH,
        "timed_at_k": depth,
        "threads": n_threads(),
        "exact_queries_per_s": round(queries_per_s(lambda batch: exact.search(batch, depth), vectors), 1),
    }
    return _Baseline(store, vectors, exact.search(vectors, depth), common_fields)


def _measure_index(corpus: str, name: str, baseline: _Baseline, progress: Progress) -> Curve:
    """Return the recall and the speed of an index at each setting."""
    index = open_vector_index(corpus, name, baseline.store)
    points = list[Point]()
    for point in measure_settings(index, baseline.vectors, baseline.hits):
        points.append(point)
        progress(len(points), None)
    parameter = swept_parameter(index.parameters)
    return Curve(parameter, index.parameters[parameter].default if parameter else None, points)


def _write_report(corpus: str, name: str, curve: Curve, common_fields: dict[str, Any]) -> dict[str, Any]:
    points = [_to_json(point) for point in curve.points]
    report = {"index": name, **common_fields, "parameter": curve.parameter, "default": curve.default, "points": points}
    write_durably(index_ref(corpus, name).path / RECALL, json.dumps(report, indent=1).encode())
    return report


def _draw(corpus: str, encoder: str, baseline: _Baseline, curves: dict[str, Curve]) -> str:
    """Plot an encoder's indexes; return a message with the path of the plot, or with the reason for no plot."""
    plot = index_ref(corpus, encoder).path / PLOT
    n_queries, dim = baseline.vectors.shape
    title = (
        f"{corpus}: {len(baseline.store):,} passages, {encoder}, {dim} dimensions\n"
        f"{n_queries:,} queries ({baseline.common_fields['queries_from']})"
    )
    try:
        draw(plot, title, curves, baseline.common_fields["exact_queries_per_s"])
    except MissingExtraError as error:
        return f"no plot: {error}"
    return f"plot: {plot}"


def _to_json(point: Point) -> dict[str, Any]:
    recall = {str(k): round(value, 4) for k, value in point.recall.items()}
    return {**point.setting, "recall": recall, "queries_per_s": round(point.queries_per_s, 1)}


def _default_queries(corpus: str, store: PassageStore) -> tuple[list[str], str]:
    """Return default queries and a description of their origin."""
    if corpus.partition("@")[0] == "sample":
        from wikidx.corpora.known import sample

        return [question.question for question in sample.questions()], "the sample corpus's questions"
    rows = np.random.default_rng(_SEED).permutation(len(store))[: 4 * _N_QUERIES]
    texts = (passage.title.strip() or " ".join(passage.text.split()[:12]) for passage in store.get_many(np.sort(rows)))
    return list(dict.fromkeys(filter(None, texts)))[:_N_QUERIES], "titles of passages drawn at random"
