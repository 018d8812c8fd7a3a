"""A corpus in a file, a home with a tiny checkpoint in it, and a whole corpus built once."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.commands import ENCODER, idx
from tests.retrievers.retrieving import at_home
from wikidx.base.artifacts.manifest import MANIFEST, manifest_from_json
from wikidx.corpora.build import store_path
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.networks.checkpoints import HubCheckpoint

pytest.importorskip("torch", reason="needs the extra 'dense'")

N_PASSAGES = 800
KINDS = ("ivf", "ivfpq", "hnsw", "int8", "binary")
QUERIES = ("red whale in the deep ocean", "king of the mountain")
WORDS = "river mountain whale fox ocean planet metal book ship king red deep café naïve stone bell".split()


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JSONL file of passages of random words; every hundredth is longer than a page of the store, and the title 'Same' has many."""
    chance = random.Random(7)
    path = tmp_path_factory.mktemp("source") / "mine.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for n in range(N_PASSAGES):
            text = " ".join(chance.choices(WORDS, k=12 if n % 100 else 300)) + f" {n}"
            if not n % 100:
                text += " " + chance.randbytes(3000).hex()
            file.write(json.dumps({"id": f"p{n}", "title": "Same" if n % 3 == 0 else f"T{n // 4}", "text": text}) + "\n")
    return path


@pytest.fixture(scope="session")
def empty_home(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with only a tiny checkpoint."""
    home, checkpoint = tmp_path_factory.mktemp("checkpoint"), ENCODERS["contriever"].passage_checkpoint
    assert isinstance(checkpoint, HubCheckpoint)
    golden = shared_data / "golden_encoders" / "contriever" / "checkpoint"
    shutil.copytree(golden, home / "checkpoints" / checkpoint.repository / checkpoint.revision)
    return home


@pytest.fixture
def home(empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a home of its own, with the checkpoint in it."""
    home = tmp_path / "home"
    shutil.copytree(empty_home, home)
    monkeypatch.setenv("IDX_HOME", str(home))
    monkeypatch.delenv("IDX_MIRROR", raising=False)
    return home


@pytest.fixture(scope="session")
def whole_home(empty_home: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which everything was built without faults; read-only."""
    home = tmp_path_factory.mktemp("whole") / "home"
    shutil.copytree(empty_home, home)
    with at_home(home):
        built = idx(*build_command(source, *KINDS))
    assert built.status == 0, built.err
    return home


@pytest.fixture
def small_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test's home on a 64 MB file system of its own."""
    disk = home.with_name("disk")
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "none", disk], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        assert not os.environ.get("CI"), "CI runs as root, which can mount a file system"
        pytest.skip("needs the right to mount a file system (root); a limit of a file's size stands for it in the other tests")
    shutil.copytree(home, disk / "home")
    monkeypatch.setenv("IDX_HOME", str(disk / "home"))
    yield disk / "home"
    subprocess.run(["umount", "-l", disk], check=True)


def path_of(part: str) -> Path:
    """Return where the store, or an index, of the corpus is."""
    return store_path("mine") if part == "passages" else index_ref("mine", part).path


def check_whole(whole_home: Path, *parts: str) -> None:
    """Check that parts equal those of a build without faults, and that no other files remain."""
    home = Path(os.environ["IDX_HOME"])
    for part in parts:
        ours, theirs = (manifest_from_json((of / path_of(part).relative_to(home) / MANIFEST).read_bytes()) for of in (home, whole_home))
        assert (ours.recipe, ours.fingerprint, ours.counts) == (theirs.recipe, theirs.fingerprint, theirs.counts)
        assert part not in ("bm25", ENCODER) or ours.files == theirs.files
    assert [file for file in home.rglob(".*") if file.name not in (".locks", ".checksums")] == []


def build_command(source: Path, *kinds: str) -> list[object]:
    """Return the command that builds the corpus 'mine' with BM25, vectors, and indexes of some kinds."""
    return ["build", source, "--name", "mine", "--bm25", "--encoder", ENCODER, *(f"--index={kind}" for kind in kinds), "--device", "cpu"]
