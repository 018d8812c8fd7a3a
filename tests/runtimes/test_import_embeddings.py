"""``idx import embeddings`` with real rows and a tiny checkpoint."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import corpus_of
from tests.runtimes.command_line import Command
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.reading.readers import read
from wikidx.indexer.base import Vectors
from wikidx.indexer.build import build_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.checkpoints import HubCheckpoint
from wikidx.indexer.vectors.file import VECTORS

pytestmark = pytest.mark.slow  # twenty seconds

pytest.importorskip("torch", reason="needs the extra 'dense'")

N_ROWS = 200


@pytest.fixture
def ids(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Build a corpus of real rows, with a tiny checkpoint where a user would put one; return the ids."""
    rows = read(shared_data / "psgs_w100_rows" / "psgs_w100_subset.tsv.gz", "tsv")
    build_store(corpus_of([located.passage for located in itertools.islice(rows, N_ROWS)]), StoreOptions())
    monkeypatch.setitem(ENCODERS, "contriever", dataclasses.replace(ENCODERS["contriever"], dim=32))
    assert isinstance(ENCODERS["contriever"].passage_checkpoint, HubCheckpoint)
    shutil.copytree(shared_data / "golden_encoders" / "contriever" / "checkpoint", ENCODERS["contriever"].passage_checkpoint.folder)
    return [passage.id for passage in open_store("made").read()]


@pytest.fixture
def made(ids: list[str]) -> Vectors:
    """The vectors that the encoder gives; they are not kept."""
    build_vectors("made", encoder_spec("contriever"), open_store("made"), EmbedOptions(device="cpu"))
    vectors = stored()
    shutil.rmtree(index_ref("made", "contriever").path.parent)
    return vectors


def stored() -> Vectors:
    found: Vectors = np.load(index_ref("made", "contriever").path / VECTORS).astype(np.float32)
    return found


def tar_of(path: Path, **members: bytes) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


ARGUMENTS = ("--corpus", "made", "--encoder", "contriever")


def test_embeddings_are_imported_verified_and_searched(idx: Command, ids: list[str], made: Vectors, tmp_path: Path) -> None:
    half = made.astype(np.float16)
    parts = {f"passages_{n:02}": pickle.dumps((ids[n::2], half[n::2]), protocol=4) for n in range(2)}
    path = tar_of(tmp_path / "wikipedia_embeddings.tar", **parts)
    said = idx("import", "embeddings", path, *ARGUMENTS, "--format", "contriever", "--verify", "50")
    assert said == "imported 'contriever' into 'made': 200 rows\n"
    np.testing.assert_array_equal(stored(), half)
    imported = idx.json("import", "embeddings", path, *ARGUMENTS)  # the same again is there already
    assert imported == {"corpus": "made", "imported": {"contriever": {"rows": 200, "dim": 32, "missing": 0}}}
    idx("check", "made")
    (hit,) = idx.json("search", "made", "ship", "-r", "contriever", "-k", "1")["passages"]
    assert hit["id"] in ids
    assert "holds other vectors" in idx("import", "embeddings", path, *ARGUMENTS, "--dtype", "float32", status=2)
    idx("import", "embeddings", path, *ARGUMENTS, "--dtype", "float32", "--force")
    assert np.load(index_ref("made", "contriever").path / VECTORS).dtype == np.float32


def test_a_partial_import_has_to_be_allowed_and_is_said(idx: Command, ids: list[str], made: Vectors, tmp_path: Path) -> None:
    path = tmp_path / "wiki_passages_0"
    path.write_bytes(pickle.dumps([(f"wiki:{id_}", vector) for id_, vector in zip(ids[3:], made[3:], strict=True)]))
    error = idx("import", "embeddings", path, *ARGUMENTS, status=2)
    shown = ", ".join(f"'{id_}'" for id_ in ids[:3])
    assert error == f"error: {path} lacks 3 of the corpus's 200 passages, such as {shown}: --allow-missing imports the others"
    said = idx("import", "embeddings", path, *ARGUMENTS, "--allow-missing", "--verify", "20")
    assert said == "imported 'contriever' into 'made': 200 rows, 3 of them without a vector\n"
    found = idx.json("search", "made", "ship", "-r", "contriever", "-k", "200", "--depth", "200")["passages"]
    assert sorted(hit["id"] for hit in found) == sorted(ids[3:])


class Payload:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (os.environ["IDX_HOME"] + "/payload has run",)


BAD: list[tuple[Callable[[list[str], Vectors], bytes], str]] = [
    (lambda ids, made: pickle.dumps(np.roll(made, 1, axis=0)), "of 5 passages that were encoded again 5 have another vector"),
    (lambda ids, made: pickle.dumps((ids, np.repeat(made, 2, axis=1))), "holds vectors of dimension 64, 'contriever' has 32"),
    (
        lambda ids, made: pickle.dumps(made[:-1]),
        "has 199 embeddings without ids for 200 passages, so that nothing says whose they are",
    ),
    (lambda ids, made: pickle.dumps((ids, made))[:-1000], "is cut off"),
    (
        lambda ids, made: pickle.dumps((ids, made, Payload())),
        "mkdir', which embeddings do not need: it is refused, nothing of it was run",
    ),
]


def test_bad_embeddings_are_refused_and_leave_nothing(idx: Command, ids: list[str], made: Vectors, tmp_path: Path) -> None:
    for make, message in BAD:
        path = tmp_path / "made.pkl"
        path.write_bytes(make(ids, made))
        assert message in idx("import", "embeddings", path, *ARGUMENTS, "--verify", "5", status=2)
        assert not index_ref("made", "contriever").path.parent.exists()
        assert path.exists()
    assert not (Path(os.environ["IDX_HOME"]) / "payload has run").exists()
    climbing = tar_of(tmp_path / "some.tar", **{"passages_00": pickle.dumps((ids, made)), "../../passages_01": b""})
    assert "has the member '../../passages_01', which is not a plain file" in idx("import", "embeddings", climbing, *ARGUMENTS, status=2)


def test_without_a_checkpoint_nothing_can_be_verified(
    idx: Command, ids: list[str], made: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(ENCODERS["contriever"].passage_checkpoint, HubCheckpoint)
    shutil.rmtree(ENCODERS["contriever"].passage_checkpoint.folder)
    monkeypatch.setenv("IDX_MIRROR", "http://127.0.0.1:9")  # nobody listens
    path = tmp_path / "made.pkl"
    path.write_bytes(pickle.dumps(made))
    assert "the checkpoint of 'contriever' is not on this machine" in idx(
        "import", "embeddings", path, *ARGUMENTS, "--verify", "5", status=2
    )
    idx("import", "embeddings", path, *ARGUMENTS)
