"""Vectors of passages and questions in place of MiniLM's or by it, for this project and as files for every other engine.

This project's ``minilm`` and sentence-transformers' vectors of the same texts differ by less than 2e-7 a component (``benchmarks.embed``).
Made vectors are noise around a thousand centres, which lists and graphs can separate as they do real ones.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from benchmarks.processes import NAME, use_data_home
from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.checked_files import build_checked
from wikidx.base.artifacts.manifest import Parameters, Recipe
from wikidx.corpora.build import open_store
from wikidx.indexer.base import Stored, Vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import FORMAT_VERSION, KIND, VectorFile
from wikidx.indexer.vectors.file import VECTORS as OWN_FILE

ENCODER = "minilm"
VECTORS = "vectors"  # the folder of the passages' vectors for peers
_VECTORS_FILE, _QUESTIONS_FILE, _MADE = "passages.npy", "question-vectors.npy", "embedded.json"
_CENTRES, _NOISE = 1000, 0.9
_BLOCK = 1 << 18


def made_vectors(n: int, dim: int, seed: int) -> Vectors:
    """Return n vectors of length 1 around centres that are the same for every seed."""
    centres = np.random.default_rng(0).standard_normal((_CENTRES, dim), dtype=np.float32)
    rng = np.random.default_rng((1, seed))
    vectors: Vectors = centres[rng.integers(0, _CENTRES, n)] + _NOISE * rng.standard_normal((n, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def put_vectors(dim: int, given: Vectors | None = None) -> None:
    """Put vectors in place of an encoder's over the corpus: given ones, or made ones, which are stored as float16."""
    stored: Stored = "float16" if given is None else "float32"
    store = open_store(NAME)

    def write(staging: Path) -> BuildResult:
        file = VectorFile(staging, len(store), stored)
        for rows in file.ranges():
            file.write(rows, made_vectors(len(rows), dim, rows.start) if given is None else given[rows.start : rows.stop])
        return BuildResult(store.fingerprint, {"rows": len(store), "dim": file.dim(), "missing": 0})

    parameters: Parameters = {"encoder": ENCODER, "origin": "imported", "dtype": stored}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs={"passages": store.fingerprint})
    build_checked(index_ref(NAME, ENCODER).path, ArtifactSpec(recipe=recipe, sources={}, find_existing=lambda: None, write=write))


def share_vectors(folder: Path, questions: Vectors) -> None:
    """Write the vectors in the data home, and those of the questions, as files of float32 for every engine."""
    stored = np.load(index_ref(NAME, ENCODER).path / OWN_FILE, mmap_mode="r")
    (folder / VECTORS).mkdir(exist_ok=True)
    single = np.lib.format.open_memmap(folder / VECTORS / _VECTORS_FILE, mode="w+", dtype=np.float32, shape=stored.shape)
    for first in range(0, len(stored), _BLOCK):
        single[first : first + _BLOCK] = stored[first : first + _BLOCK]
    single.flush()
    np.save(folder / _QUESTIONS_FILE, questions)


def embed(folder: Path, questions: Path) -> None:
    """Embed the passages of a corpus's store, resuming if interrupted, and a JSON list of questions; existing vectors are kept."""
    use_data_home(folder)
    spec, store = encoder_spec(ENCODER), open_store(NAME)
    sha256 = hashlib.sha256(questions.read_bytes()).hexdigest()
    inputs = {"checkpoint": str(spec.folder("query")), "passages": store.fingerprint, "questions": sha256}
    if (folder / _MADE).exists() and json.loads((folder / _MADE).read_bytes()) == inputs:
        return
    from wikidx.indexer.build import build_vectors
    from wikidx.indexer.embedding.options import EmbedOptions
    from wikidx.indexer.encoders.transformer import TransformerEncoder

    build_vectors(NAME, spec, store, EmbedOptions(device="cpu"))
    share_vectors(folder, TransformerEncoder(spec, "cpu").encode_queries(json.loads(questions.read_bytes())))
    (folder / _MADE).write_text(json.dumps(inputs))


def passage_vectors(folder: Path) -> Vectors:
    """Return the passages' vectors, float32 of shape (passages, dim)."""
    vectors: Vectors = np.load(folder / VECTORS / _VECTORS_FILE)
    return vectors


def question_vectors(folder: Path) -> Vectors:
    """Return the questions' vectors, float32 of shape (questions, dim)."""
    vectors: Vectors = np.load(folder / _QUESTIONS_FILE)
    return vectors


def checkpoint(folder: Path) -> str:
    """Return the directory of MiniLM's checkpoint."""
    path: str = json.loads((folder / _MADE).read_bytes())["checkpoint"]
    return path
