"""Passages and questions of a corpus as MiniLM's vectors: embedded once by this project, for every engine that searches vectors.

This project's ``minilm`` and sentence-transformers' vectors of the same texts differ by less than 2e-7 a component (``benchmarks.embed``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np

from benchmarks.engines.kinds import NAME, use_data_home
from wikidx.base.errors import MissingExtraError
from wikidx.indexer.base import Vectors

ENCODER = "minilm"
VECTORS = "vectors"  # the folder of the passages' vectors for peers
VECTORS_FILE, QUESTIONS_FILE, _MADE = "passages.npy", "question-vectors.npy", "embedded.json"


def embed(folder: Path, questions: Path) -> None:
    """Embed the passages of a corpus's store, resuming if interrupted, and a JSON list of questions; existing vectors are kept."""
    from wikidx.corpora.build import open_store
    from wikidx.indexer.build import build_vectors
    from wikidx.indexer.catalog import index_ref
    from wikidx.indexer.embedding.options import EmbedOptions
    from wikidx.indexer.naming import encoder_spec
    from wikidx.indexer.vectors.file import VECTORS as OWN_FILE

    use_data_home(folder)
    spec, store = encoder_spec(ENCODER), open_store(NAME)
    checkpoint_folder, questions_sha256 = str(spec.folder("query")), hashlib.sha256(questions.read_bytes()).hexdigest()
    inputs = {"checkpoint": checkpoint_folder, "passages": store.fingerprint, "questions": questions_sha256}
    if (folder / _MADE).exists() and json.loads((folder / _MADE).read_bytes()) == inputs:
        return
    from wikidx.indexer.encoders.transformer import TransformerEncoder

    build_vectors(NAME, spec, store, EmbedOptions(device="cpu"))
    (folder / VECTORS).mkdir(exist_ok=True)
    vectors = np.load(index_ref(NAME, ENCODER).path / OWN_FILE, mmap_mode="r")
    np.save(folder / VECTORS / VECTORS_FILE, vectors.astype(np.float32))
    np.save(folder / QUESTIONS_FILE, TransformerEncoder(spec, "cpu").encode_queries(json.loads(questions.read_bytes())))
    (folder / _MADE).write_text(json.dumps(inputs))


def passage_vectors(folder: Path) -> Vectors:
    """Return the passages' vectors, float32 of shape (passages, dim)."""
    vectors: Vectors = np.load(folder / VECTORS / VECTORS_FILE)
    return vectors


def question_vectors(folder: Path) -> Vectors:
    """Return the questions' vectors, float32 of shape (questions, dim)."""
    vectors: Vectors = np.load(folder / QUESTIONS_FILE)
    return vectors


def checkpoint(folder: Path) -> str:
    """Return the directory of MiniLM's checkpoint."""
    path: str = json.loads((folder / _MADE).read_bytes())["checkpoint"]
    return path


def require(package: str, extra: str) -> None:
    """Raise ``MissingExtraError`` unless a package is installed."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(package, extra)
