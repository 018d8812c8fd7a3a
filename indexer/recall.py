"""Recall of the indexes over a corpus's vectors against exact search, and their speed, at several values of a search parameter."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wikidx.base.artifacts.durable import write_durably
from wikidx.base.errors import ArtifactMissing
from wikidx.base.machine.threads import n_threads
from wikidx.base.progress import Step, silent_steps
from wikidx.corpora.build import open_store
from wikidx.corpora.store import PassageStore

from .base import DEFAULT_PARAMS, Hits, SearchParam, SearchParams, VectorIndex, Vectors
from .build import open_vector_index, open_vectors
from .catalog import built_indexes, index_ref
from .encoders.transformer import open_encoder
from .naming import encoder_spec, parse_index_name

_DEPTHS = (1, 10, 100)
_BATCH = 32  # queries per batch in timing
_MIN_S = 0.5  # minimum time of measuring a setting's speed
_LARGEST_SWEPT = {"nprobe": 1024, "ef_search": 1024, "refine": 16}
_N_QUERIES = 500
_SEED = 1234


def measure_recall(corpus: str, queries: Sequence[str] = (), origin: str = "", step: Step = silent_steps) -> dict[str, Any]:
    """Measure every index built from vectors; return the content of each index's ``recall.json``, which is written to its folder.

    Args:
        corpus: name of a built corpus.
        queries: distinct queries; none: titles of random passages.
        origin: the queries' origin, for the report.
        step: see ``Step``.

    Raises:
        ArtifactMissing: the corpus has no index built from vectors, or the vectors of such an index are missing.
        ArtifactError, MissingExtraError: see ``open_vector_index``.
    """
    store = open_store(corpus)
    indexes = [name for name in map(parse_index_name, built_indexes(corpus)) if name.source == "vectors"]
    if not indexes:
        raise ArtifactMissing(f"'{corpus}' has no index made of vectors: run 'idx build {corpus} --encoder NAME --index KIND'")
    texts, origin = (queries, origin) if queries else _default_queries(store)
    reports = dict[str, Any]()
    for encoder in dict.fromkeys(name.encoder for name in indexes):
        vectors, origin_of_vectors = _query_vectors(corpus, encoder, store, texts, origin)
        exact, common_fields = _search_exactly(open_vector_index(corpus, encoder, store), vectors, origin_of_vectors)
        for name in [str(index) for index in indexes if index.encoder == encoder]:
            index, progress, points = open_vector_index(corpus, name, store), step(f"measuring {name}", "settings"), list[dict[str, Any]]()
            for point in measure_settings(index, vectors, exact):
                points.append(point)
                progress(len(points), None)
            parameter = _swept_parameter(index.parameters)
            default = index.parameters[parameter].default if parameter else None
            reports[name] = {"index": name, **common_fields, "parameter": parameter, "default": default, "points": points}
            write_durably(index_ref(corpus, name).path / "recall.json", json.dumps(reports[name], indent=1).encode())
    return reports


def measure_settings(index: VectorIndex, queries: Vectors, exact: Hits) -> Iterator[dict[str, Any]]:
    """Yield the measurements of an index at each setting: the search parameters, recall by depth, and queries per second.

    Args:
        index: index over the same rows as exact search.
        queries: float32, shape (Q, dim).
        exact: results of exact search for the queries, at the largest depth.
    """
    depth = exact.rows.shape[1]
    for params in settings(index.parameters):
        recalls = {str(k): round(recall(index.search(queries, k, params), exact, k), 4) for k in _DEPTHS if k <= depth}
        overrides = params.overrides()
        setting = {name: overrides.get(name, param.default) for name, param in index.parameters.items()}

        def search(vectors: Vectors, params: SearchParams = params) -> object:
            return index.search(vectors, depth, params)

        yield {**setting, "recall": recalls, "queries_per_s": round(_queries_per_s(search, queries), 1)}


def settings(parameters: Mapping[str, SearchParam]) -> Iterator[SearchParams]:
    """Yield the settings to measure. The swept parameter has its default and powers of two; the others have their defaults."""
    name = _swept_parameter(parameters)
    if name is None:
        yield DEFAULT_PARAMS
        return
    largest = min(parameters[name].maximum, _LARGEST_SWEPT[name])
    smallest = {"ef_search": 4, "refine": -1}.get(name, 0)  # smallest exponent of 2; -1 means the value 0
    values = {0 if exponent < 0 else 1 << exponent for exponent in range(smallest, largest.bit_length())}
    for value in sorted({*values, parameters[name].default}):
        swept: dict[str, Any] = {name: value}
        yield SearchParams(**swept)


def recall(hits: Hits, exact: Hits, k: int) -> float:
    """Return the share of the first k rows in ``exact`` that are among the first k rows in ``hits``, over all queries."""
    relevant = [set(line[line >= 0].tolist()) for line in exact.rows[:, :k]]
    n_found = sum(len(rows.intersection(line.tolist())) for rows, line in zip(relevant, hits.rows[:, :k], strict=True))
    return n_found / max(1, sum(map(len, relevant)))


def _swept_parameter(parameters: Mapping[str, SearchParam]) -> str | None:
    """Return the parameter to vary: the first of nprobe, ef_search and refine that an index has; None if it has none of them."""
    return next((name for name in _LARGEST_SWEPT if name in parameters), None)


def _query_vectors(corpus: str, encoder: str, store: PassageStore, texts: Sequence[str], origin: str) -> tuple[Vectors, str]:
    """Return the vectors of queries and their origin; without an encoder, vectors of the corpus."""
    spec = encoder_spec(encoder)
    vectors = open_vectors(corpus, encoder, store) if spec.query_checkpoint is None else None
    if vectors is not None:
        return vectors.sample(_N_QUERIES, _SEED), "vectors of passages drawn at random"
    return open_encoder(spec, "auto").encode_queries(texts), origin


def _search_exactly(index: VectorIndex, vectors: Vectors, origin: str) -> tuple[Hits, dict[str, Any]]:
    """Return the results of exact search for query vectors, and the fields that the reports of all indexes have."""
    depth = min(_DEPTHS[-1], len(index))
    return index.search(vectors, depth), {
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "queries": len(vectors),
        "queries_from": origin,
        "batch": _BATCH,
        "timed_at_k": depth,
        "threads": n_threads(),
        "exact_queries_per_s": round(_queries_per_s(lambda batch: index.search(batch, depth), vectors), 1),
    }


def _queries_per_s(search: Callable[[Vectors], object], queries: Vectors) -> float:
    """Return the queries per second in batches of ``_BATCH``. All queries are searched, repeatedly for at least half a second."""
    batches = np.array_split(queries, max(1, len(queries) // _BATCH))
    n_done, started = 0, time.perf_counter()
    while True:
        for batch in batches:
            search(batch)
            n_done += len(batch)
        seconds = time.perf_counter() - started
        if seconds >= _MIN_S:
            return n_done / seconds


def _default_queries(store: PassageStore) -> tuple[list[str], str]:
    """Return default queries and a description of their origin."""
    rows = np.random.default_rng(_SEED).permutation(len(store))[: 4 * _N_QUERIES]
    texts = (passage.title.strip() or " ".join(passage.text.split()[:12]) for passage in store.get_many(np.sort(rows)))
    return list(dict.fromkeys(filter(None, texts)))[:_N_QUERIES], "titles of passages drawn at random"
