"""The flagship commands with encoders, against a mirror that serves real rows, tiny checkpoints and vectors as they are published."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import itertools
import pickle
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loopback import serving
from tests.runtimes.command_line import Command
from wikidx.corpora.build import open_store
from wikidx.corpora.known import wikipedias
from wikidx.indexer.base import Vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.checkpoints import HubCheckpoint
from wikidx.indexer.published import addresses as published_addresses
from wikidx.indexer.vectors.file import VECTORS

pytestmark = pytest.mark.slow  # a whole way for each encoder: a minute

pytest.importorskip("torch", reason="needs the extra 'dense'")

N_ROWS = 300
DIM = 32
TINY = {  # encoder -> the golden checkpoint that stands for its own
    "contriever": "contriever/checkpoint",
    "dpr": "dpr/checkpoint",
    "dpr-multiset": "dpr/checkpoint",
    "gtr": "gtr/checkpoint",
    "gtr-xxl": "gtr/checkpoint",
    "simlm": "simlm/checkpoint",
    "e5": "contriever/checkpoint",
}


@pytest.fixture
def mirror(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve the first rows of the corpus and all checkpoints; yield the folder that is served."""
    folder = tmp_path / "mirror"
    rows = folder / "dpr" / "wikipedia_split" / "psgs_w100.tsv.gz"
    rows.parent.mkdir(parents=True)
    with gzip.open(shared_data / "psgs_w100_rows" / "psgs_w100_subset.tsv.gz", "rt", encoding="utf-8", newline="") as lines:
        rows.write_bytes(gzip.compress("".join(itertools.islice(lines, N_ROWS + 1)).encode()))
    (published,) = wikipedias.WIKI2018.files
    served = dataclasses.replace(published, n_bytes=rows.stat().st_size, md5=hashlib.md5(rows.read_bytes()).hexdigest())
    monkeypatch.setattr(
        wikipedias, "WIKI2018", dataclasses.replace(wikipedias.WIKI2018, files=(served,), n_passages=N_ROWS, estimate=(N_ROWS, 640))
    )
    for encoder, checkpoint in TINY.items():
        serve_checkpoint(encoder, shared_data / "golden_encoders" / checkpoint, folder)
        monkeypatch.setitem(ENCODERS, encoder, dataclasses.replace(ENCODERS[encoder], dim=DIM))
    for key, published_vectors in published_addresses.PUBLISHED.items():
        files = tuple(dataclasses.replace(file, n_bytes=None, md5=None) for file in published_vectors.files)
        monkeypatch.setitem(published_addresses.PUBLISHED, key, dataclasses.replace(published_vectors, files=files, download_bytes=100_000))
    with serving(folder) as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        yield folder


def serve_checkpoint(encoder: str, source: Path, folder: Path) -> None:
    spec = encoder_spec(encoder)
    for checkpoint, side in ((spec.query_checkpoint, "question_encoder"), (spec.passage_checkpoint, "ctx_encoder")):
        assert isinstance(checkpoint, HubCheckpoint)
        target = folder / checkpoint.repository / "resolve" / checkpoint.revision
        shutil.copytree(source / side if (source / side).exists() else source, target, dirs_exist_ok=True)


def vectors_of(encoder: str, corpus: str = "wiki2018", n_rows: int = N_ROWS) -> Vectors:
    found: Vectors = np.load(index_ref(corpus, encoder).path / VECTORS)[:n_rows].astype(np.float32)
    return found


def publish_contriever(folder: Path, ids: Sequence[str], vectors: Vectors) -> None:
    path = folder / "contriever" / "embeddings" / "contriever-msmarco" / "wikipedia_embeddings.tar"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w") as tar:
        for number, part in enumerate(np.array_split(np.arange(len(ids)), 3)):
            content = pickle.dumps(([ids[row] for row in part.tolist()], vectors[part].astype(np.float16)), protocol=4)
            member = tarfile.TarInfo(f"wikipedia_embeddings/passages_{number:02}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def publish_dpr(folder: Path, ids: Sequence[str], vectors: Vectors) -> None:
    path = folder / "dpr" / "data" / "wiki_encoded" / "single" / "nq"
    path.mkdir(parents=True)
    for number, part in enumerate(np.array_split(np.arange(len(ids) - 24), 50)):
        (path / f"wiki_passages_{number}").write_bytes(pickle.dumps([(f"wiki:{ids[row]}", vectors[row]) for row in part.tolist()]))


def faiss_index(path: Path, vectors: Vectors) -> bytes:
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(path))
    return path.read_bytes()


def publish_dpr_multiset(folder: Path, ids: Sequence[str], vectors: Vectors) -> None:
    path = folder / "pyserini" / "indexes" / "faiss"
    path.mkdir(parents=True)
    (path / "docid").write_text("".join(f"{id_}\n" for id_ in ids[:-4]))
    faiss_index(path / "index", vectors[:-4])
    with tarfile.open(path / "faiss.wikipedia-dpr-100w.dpr_multi.20200127.f403c3.tar.gz", "w:gz") as tar:
        for name in ("docid", "index"):
            tar.add(path / name, f"faiss.wikipedia-dpr-100w.dpr_multi/{name}")


def publish_gtr_xxl(folder: Path, ids: Sequence[str], vectors: Vectors) -> None:
    path = folder / "datasets" / "princeton-nlp" / "gtr-t5-xxl-wikipedia-psgs_w100-index" / "resolve" / "main"
    path.mkdir(parents=True)
    (path / "gtr_wikipedia_index.pkl").write_bytes(pickle.dumps(vectors.astype(np.float16), protocol=4))


def publish_e5(folder: Path, ids: Sequence[str], vectors: Vectors) -> None:
    path = folder / "datasets" / "PeterJinGo" / "wiki-18-e5-index" / "resolve" / "main"
    path.mkdir(parents=True)
    content = faiss_index(folder / "e5_Flat.index", vectors)
    (path / "part_aa").write_bytes(content[:10_000])
    (path / "part_ab").write_bytes(content[10_000:])


PUBLISH: dict[str, tuple[Callable[[Path, Sequence[str], Vectors], None], int]] = {  # encoder -> how, and how many are missing
    "contriever": (publish_contriever, 0),
    "dpr": (publish_dpr, 24),
    "dpr-multiset": (publish_dpr_multiset, 4),
    "gtr-xxl": (publish_gtr_xxl, 0),
    "e5": (publish_e5, 0),
}


def top(idx: Command, encoder: str) -> dict[str, Any]:
    (hit,) = idx.json("search", "wiki2018", "who is the king of the sea", "-r", encoder, "-k", "1")["passages"]
    found: dict[str, Any] = hit
    return found


# The forms of the other files are read in indexer/test_published and indexer/test_embedding_arrays.
BOTH_WAYS = ["contriever", "dpr-multiset", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("dpr", "gtr-xxl", "e5"))]


@pytest.mark.parametrize("encoder", BOTH_WAYS)
def test_build_with_vectors_encoded_and_published(
    mirror: Path, idx: Command, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, n_missing = PUBLISH[encoder]
    said = idx("build", "wiki2018", "--encoder", encoder, "--vectors", "encode")
    assert said == f"built 'wiki2018': passages (300 rows), {encoder} (300 rows)\n"
    encoded, expected = vectors_of(encoder), top(idx, encoder)
    idx("check", "wiki2018")

    publish(mirror, [passage.id for passage in open_store("wiki2018").read()], encoded)
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "another home"))
    if n_missing:
        error = idx("build", "wiki2018", "--encoder", encoder, status=2)
        assert f"the published vectors of '{encoder}' lack {n_missing} passages of 'wiki2018', which no search would find" in error
        assert not (tmp_path / "another home").exists()
    arguments = ("build", "wiki2018", "--encoder", encoder, *(["--allow-missing"] if n_missing else []))
    (need,) = [need for need in idx.json(*arguments, "--dry-run")["estimates"] if need["step"] == encoder]
    component_bytes = 2 if encoder in ("contriever", "gtr-xxl") else 4
    assert need["disk_bytes"] == N_ROWS * DIM * component_bytes
    said = idx(*arguments, "--verify", "10")
    without = f", {n_missing} of them without a vector" if n_missing else ""
    assert said == f"built 'wiki2018': passages (300 rows), {encoder} (300 rows{without})\n"
    n_there = N_ROWS - n_missing
    imported = encoded.astype(np.float16 if component_bytes == 2 else np.float32)
    np.testing.assert_array_equal(vectors_of(encoder)[:n_there], imported[:n_there])
    assert not vectors_of(encoder)[n_there:].any()
    if expected["row"] < n_there:
        assert top(idx, encoder)["row"] == expected["row"]
    manifest = index_ref("wiki2018", encoder).manifest(None)
    assert manifest.recipe.parameters["origin"] == "imported"
    assert {file.url for file in published_addresses.PUBLISHED["wiki2018", encoder].files} <= set(manifest.sources.values())

    shutil.rmtree(mirror)
    idx(*arguments)  # it is there, and nothing is asked for again
    error = idx("build", "wiki2018", "--encoder", encoder, "--vectors", "encode", status=2)
    assert error == f"error: the vectors of '{encoder}' over 'wiki2018' are there, imported: --force replaces them"
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    error = idx("build", "wiki2018", "--encoder", encoder, "--vectors", "published", status=2)
    assert error == f"error: the vectors of '{encoder}' over 'wiki2018' are there, encoded: --force replaces them"


@pytest.mark.parametrize("encoder", ["gtr", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("simlm", "minilm"))])
def test_build_where_no_vectors_are_published(mirror: Path, idx: Command, encoder: str) -> None:
    limit = ("--limit", "20") if encoder == "minilm" else ()  # real weights
    corpus, n_rows = ("wiki2018@20", 20) if limit else ("wiki2018", N_ROWS)
    arguments = ("build", "wiki2018", "--encoder", encoder, *limit)
    passages, vectors = idx.json(*arguments, "--dry-run")["estimates"]
    assert (passages["step"], vectors["step"]) == ("passages", encoder)
    assert vectors["disk_bytes"] == n_rows * encoder_spec(encoder).dim * 4
    assert idx(*arguments) == f"built '{corpus}': passages ({n_rows} rows), {encoder} ({n_rows} rows)\n"
    np.testing.assert_allclose(np.linalg.norm(vectors_of(encoder, corpus, n_rows), axis=1), 1, atol=1e-5)


def test_options_decide_what_is_stored(mirror: Path, idx: Command) -> None:
    idx("build", "wiki2018", "--encoder", "contriever", "--limit", "50", "--dtype", "float16", "--batch-tokens", "300", "--device", "cpu")
    parameters = index_ref("wiki2018@50", "contriever").manifest(None).recipe.parameters  # a subset is embedded unless one says otherwise
    assert {name: parameters[name] for name in ("origin", "dtype", "computed")} == {
        "origin": "encoded",
        "dtype": "float16",
        "computed": "float32",
    }
    half = vectors_of("contriever", "wiki2018@50", 50)
    idx("build", "wiki2018@50", "--encoder", "contriever", "--dtype", "float32", "--batch-tokens", "300", "--force")
    whole = vectors_of("contriever", "wiki2018@50", 50)
    np.testing.assert_array_equal(whole.astype(np.float16), half)
    idx("build", "wiki2018@50", "--encoder", "contriever", "--dtype", "bfloat16", "--force")
    assert index_ref("wiki2018@50", "contriever").manifest(None).recipe.parameters["computed"] == "bfloat16"


def test_what_cannot_be_had_is_named(mirror: Path, idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = ("build", "wiki2018", "--encoder", "contriever", "--vectors", "encode")
    for devices, message in (("cuda:98,98", "the device 'cuda:98' cannot be used"), ("cuda:98,99", "the device 'cuda:9")):
        assert message in idx(*encode, "--device", devices, status=2)  # of two processes, the first to fail is told
    monkeypatch.setenv("IDX_HOME", str(mirror.parent / "another home"))
    shutil.rmtree(mirror / "facebook")
    error = idx(*encode, status=2)
    assert "the checkpoint of 'contriever' is not on this machine and cannot be downloaded" in error
    assert "put config.json, tokenizer.json (or vocab.txt), model.safetensors (or pytorch_model.bin) of" in error


def test_too_small_a_disk_is_said_by_a_dry_run_and_refused_by_a_build(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.planning.free_disk_bytes", lambda: 10**9)
    steps = {need["step"] for need in idx.json("build", "wiki2018", "--encoder", "contriever", "--dry-run")["estimates"]}
    assert steps == {"passages", "contriever"}
    assert "GB are needed under" in idx("build", "wiki2018", "--encoder", "contriever", status=2)
