"""``idx check --recall``: measure what the indexes over a corpus's vectors lose against exact search, and draw it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.build import open_store
from corpora.compression import lines_of, reading
from corpora.durable import write_durably
from corpora.errors import ArtifactMissing, InputError, MissingExtraError
from corpora.json_value import json_value
from indexer.base import Vectors, n_threads
from indexer.build import open_vector_index
from indexer.catalog import built_indexes, index_path
from indexer.encoders.transformer import TransformerEncoder
from indexer.naming import encoder_spec, vector_index_name
from indexer.recall import BATCH, DEPTHS, Point, measured, queries_per_s, swept_parameter
from runtimes.evaluation.reports.recall_plot import Curve, draw

from .screen import note, steps

if TYPE_CHECKING:
    from corpora.store import PassageStore

RECALL, PLOT = "recall.json", "recall.png"

_N_QUERIES = 500
_SEED = 1234


def measure_recall(corpus: str, queries: Path | None) -> dict[str, Any]:
    """Measure every index made of vectors; write ``recall.json`` beside its manifest, and ``recall.png`` beside its vectors' manifest.

    Returns:
        For each index what its ``recall.json`` holds.

    Raises:
        ArtifactMissing: the corpus has no such index, or not the vectors of one.
        InputError: the file of queries cannot be used.
        ArtifactError, MissingExtraError: see ``open_vector_index``.
    """
    store = open_store(corpus)
    made = [name for index in built_indexes(corpus) if (name := vector_index_name(index)) is not None]
    if not made:
        raise ArtifactMissing(f"'{corpus}' has no index made of vectors: run 'idx build {corpus} --encoder NAME --index KIND'")
    texts, origin = (_from_file(queries), str(queries)) if queries else _from_corpus(corpus, store)
    reports: dict[str, Any] = {}
    for encoder in dict.fromkeys(name.encoder for name in made):
        vectors = TransformerEncoder(encoder_spec(encoder), "auto").encode_queries(texts)
        names = [str(name) for name in made if name.encoder == encoder]
        reports |= _measure_encoder(corpus, encoder, names, vectors, origin, store)
    return reports


def _measure_encoder(corpus: str, encoder: str, names: Sequence[str], vectors: Vectors, origin: str, store: PassageStore) -> dict[str, Any]:
    """Measure the indexes over one encoder's vectors and draw them in one plot."""
    exact = open_vector_index(corpus, encoder, store)
    found = exact.search(vectors, min(DEPTHS[-1], len(store)))
    exact_speed = queries_per_s(lambda some: exact.search(some, found.rows.shape[1]), vectors)
    head = {
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "queries": len(vectors),
        "queries_from": origin,
        "batch": BATCH,
        "timed_at_k": found.rows.shape[1],
        "threads": n_threads(),
        "exact_queries_per_s": round(exact_speed, 1),
    }
    reports, curves = dict[str, Any](), dict[str, Curve]()
    for name in names:
        index = open_vector_index(corpus, name, store)
        parameter = swept_parameter(index.parameters)
        points = list[Point]()
        with steps() as step:
            progress = step(f"measuring {name}", "settings")
            for point in measured(index, vectors, found):
                points.append(point)
                progress(len(points), None)
        curves[name] = Curve(parameter, index.parameters[parameter].default if parameter else None, points)
        reports[name] = {
            "index": name,
            **head,
            "parameter": parameter,
            "default": curves[name].default,
            "points": [_as_json(point) for point in points],
        }
        write_durably(index_path(corpus, name) / RECALL, json.dumps(reports[name], indent=1).encode())
    plot = index_path(corpus, encoder) / PLOT
    title = f"{corpus}: {len(store):,} passages, {encoder}, {vectors.shape[1]} dimensions\n{len(vectors):,} queries ({origin})"
    try:
        draw(plot, title, curves, exact_speed)
        note(f"plot: {plot}")
    except MissingExtraError as error:
        note(f"no plot: {error}")
    return reports


def _as_json(point: Point) -> dict[str, Any]:
    recall = {str(k): round(value, 4) for k, value in point.recall.items()}
    return {**point.setting, "recall": recall, "queries_per_s": round(point.queries_per_s, 1)}


def _from_corpus(corpus: str, store: PassageStore) -> tuple[list[str], str]:
    """Return queries for a corpus that come without a file: the sample corpus's questions, otherwise titles of passages drawn at random."""
    if corpus.partition("@")[0] == "sample":
        from corpora import sample

        return [question.question for question in sample.questions()], "the sample corpus's questions"
    rows = np.random.default_rng(_SEED).permutation(len(store))[: 4 * _N_QUERIES]
    texts = (passage.title.strip() or " ".join(passage.text.split()[:12]) for passage in store.get_many(np.sort(rows)))
    return list(dict.fromkeys(filter(None, texts)))[:_N_QUERIES], "titles of passages drawn at random"


def _from_file(path: Path) -> list[str]:
    """Return the queries of a file, one a line: text, or JSON with "question"; each once."""
    queries = list[str]()
    with reading(path) as file:
        for number, line in enumerate(lines_of(file, str(path)), 1):
            if line.strip():
                queries.append(_query(path, number, line))
    if not queries:
        raise InputError(f"{path} has no queries")
    return list(dict.fromkeys(queries))


def _query(path: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode().strip()
        query = json_value(text)["question"] if text.startswith("{") else text
    except (ValueError, KeyError) as error:
        raise InputError(f'{path}, line {number}: neither text in UTF-8 nor JSON with "question" ({error})') from error
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"{path}, line {number}: the question is {query!r:.40}, not a text")
    return query
