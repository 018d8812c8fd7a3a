"""Embedding with a real, tiny checkpoint: in processes, on several devices, and killed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import wikidx.indexer.build
from tests.conftest import ROOT
from tests.indexer.encoders.folders import with_checkpoint
from wikidx.base.artifacts.building import staging_path
from wikidx.base.errors import ArtifactMismatch, IdxError, InputError, StorageError
from wikidx.base.progress import silent
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_vectors, check_query_weights
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding.embed import EmbedProgress, embed
from wikidx.indexer.embedding.options import EmbedOptions, Precision, Resources
from wikidx.indexer.embedding.pipeline import Job, PassageEncoder
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import VECTORS, VectorFile, finished_ranges

pytestmark = pytest.mark.slow  # processes that are started afresh, with torch: a minute

pytest.importorskip("torch", reason="needs the extra 'dense'")

RANGE_ROWS = 250


@pytest.fixture
def spec(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> EncoderSpec:
    monkeypatch.setattr(wikidx.indexer.build, "RANGE_ROWS", RANGE_ROWS)
    return with_checkpoint(encoder_spec("contriever"), shared_data / "golden_encoders" / "contriever" / "checkpoint")


@pytest.fixture
def store(build: Callable[..., PassageStore], made_passages: list[Passage]) -> PassageStore:
    return build(made_passages)


def run(spec: EncoderSpec, folder: Path, devices: tuple[str, ...], n_tokenizing: int, progress: EmbedProgress = EmbedProgress()) -> None:  # noqa: B008
    folder.mkdir(exist_ok=True)
    resources = Resources(devices, Precision("float32", "float32"), 2048, n_tokenizing)
    file = VectorFile(folder, 3000, "float32", RANGE_ROWS)
    embed(Job(spec, partial(open_store, "made"), file.write, resources), file, progress)


def finished_vectors(staging: Path) -> dict[int, bytes]:
    """Return the vectors of the ranges that are finished, by their first rows."""
    return {rows.start: np.load(staging / VECTORS)[rows.start : rows.stop].tobytes() for rows in finished_ranges(staging)}


def is_finished(finished: dict[int, bytes]) -> bool:
    """Return whether the built vectors are those that were finished before."""
    built = np.load(index_ref("made", "contriever").path / VECTORS)
    return all(built[first : first + RANGE_ROWS].tobytes() == content for first, content in finished.items())


@pytest.mark.parametrize(("devices", "n_tokenizing"), [(("cpu",), 2), (("cpu", "cpu"), 0), (("cpu", "cpu"), 1)])
def test_processes_make_the_same_vectors(
    spec: EncoderSpec, store: PassageStore, tmp_path: Path, devices: tuple[str, ...], n_tokenizing: int
) -> None:
    run(spec, tmp_path / "alone", ("cpu",), 0)
    reports: list[tuple[int, int | None]] = []
    run(spec, tmp_path / "together", devices, n_tokenizing, EmbedProgress(lambda *done: reports.append(done), silent))
    alone, together = (np.load(tmp_path / folder / VECTORS) for folder in ("alone", "together"))
    if len(devices) == 1:
        assert together.tobytes() == alone.tobytes()
    else:  # each has its share of the threads, and with another number of them sums may be rounded differently
        np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    assert reports[0] == (0, 3000)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 5e-3), ("bfloat16", 0.1)])
def test_what_is_built_is_what_the_encoder_gives(spec: EncoderSpec, store: PassageStore, dtype: str, tolerance: float) -> None:
    manifest = build_vectors("made", spec, store, EmbedOptions(device="cpu", dtype=dtype))
    assert dict(manifest.counts) == {"rows": 3000, "dim": 32}
    stored = "float32" if dtype == "float32" else "float16"
    computed = "bfloat16" if dtype == "bfloat16" else "float32"
    assert manifest.recipe.parameters == {
        "encoder": "contriever",
        "origin": "encoded",
        "dtype": stored,
        "computed": computed,
        **spec.recipe(),
    }
    assert manifest.recipe.parameters["pooling"] == "mean"
    rows = np.arange(0, 3000, 37)
    found = np.load(index_ref("made", "contriever").path / VECTORS)[rows]
    resources = Resources(("cpu",), Precision("float32", "float32"), 500, 0)
    expected = PassageEncoder(spec, resources).encode(store.get_many(rows))
    assert 0 < np.abs(found - expected).max() <= tolerance or dtype == "float32"
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    with pytest.raises(ArtifactMismatch, match="was built with .*: --force replaces it"):
        build_vectors("made", spec, store, EmbedOptions(device="cpu", dtype="float16" if stored == "float32" else "float32"))
    assert build_vectors("made", spec, store, EmbedOptions(device="cpu", batch_tokens=77)) == manifest  # it is there


SCRIPT = """
import sys
from functools import partial
from pathlib import Path
from tests.indexer.encoders.folders import with_checkpoint
from wikidx.corpora.build import open_store
import wikidx.indexer.build
from wikidx.indexer.build import build_vectors
from wikidx.indexer.embedding.options import EmbedOptions, Precision, Resources
from wikidx.indexer.embedding.embed import EmbedProgress, embed
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.vectors.file import VectorFile

what, range_rows, checkpoint, *folder = sys.argv[1:]
wikidx.indexer.build.RANGE_ROWS = int(range_rows)
spec = with_checkpoint(encoder_spec("contriever"), Path(checkpoint))
if what == "build":
    build_vectors("made", spec, open_store("made"), EmbedOptions(device="cpu"))
else:
    resources = Resources(("cpu",) * int(what), Precision("float32", "float32"), 64, 1)
    file = VectorFile(Path(*folder), 3000, "float32", int(range_rows))
    embed(Job(spec, partial(open_store, "made"), file.write, resources), file, EmbedProgress())
"""


def started(what: str, spec: EncoderSpec, *folder: Path) -> subprocess.Popen[bytes]:
    arguments = [what, str(RANGE_ROWS), str(spec.folder("passage")), *map(str, folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], env=environment, cwd=ROOT, start_new_session=True)


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def stop(done: int, total: int | None) -> None:
    if done >= 1000:
        raise KeyboardInterrupt


def test_a_full_disk_keeps_what_is_finished(spec: EncoderSpec, store: PassageStore) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_vectors("made", spec, store, EmbedOptions(device="cpu"), progress=EmbedProgress(stop, silent))
    staging = staging_path(index_ref("made", "contriever").path)
    finished = finished_vectors(staging)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # all vectors have 384,128 bytes
    try:
        with pytest.raises(StorageError, match="work on .*contriever has stopped: File too large; finished parts are kept"):
            build_vectors("made", spec, store, EmbedOptions(device="cpu"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert finished_vectors(staging) == finished
    build_vectors("made", spec, store, EmbedOptions(device="cpu"))
    assert finished
    assert is_finished(finished)


def test_odd_passages_have_vectors(spec: EncoderSpec, build: Callable[..., PassageStore]) -> None:
    odd = [
        Passage("0", "", ""),
        Passage("1", "Title", ""),
        Passage("2", "", " "),
        Passage("3", "T", "word " * 10_000),
        Passage("4", "é", "\x00"),
    ]
    store = build(odd)
    build_vectors("made", spec, store, EmbedOptions(device="cpu"))
    found = np.load(index_ref("made", "contriever").path / VECTORS)
    encoder = PassageEncoder(spec, Resources(("cpu",), Precision("float32", "float32"), 1, 0))
    np.testing.assert_allclose(found, [encoder.encode([passage])[0] for passage in odd], rtol=0, atol=1e-5)
    assert len({vector.tobytes() for vector in found.round(3)}) >= 3


def test_finished_files_are_not_thrown_away_unasked(spec: EncoderSpec, store: PassageStore) -> None:
    half, whole = (EmbedOptions(device="cpu", dtype=dtype) for dtype in ("float16", "float32"))
    with pytest.raises(KeyboardInterrupt):
        build_vectors("made", spec, store, half, progress=EmbedProgress(stop, silent))
    message = r"has left [\d,]+ vectors with dtype float16: .* it resumes; --force starts again with dtype float32"
    with pytest.raises(ArtifactMismatch, match=message):
        build_vectors("made", spec, store, whole)
    finished = finished_vectors(staging_path(index_ref("made", "contriever").path))
    assert build_vectors("made", spec, store, half).recipe.parameters["dtype"] == "float16"
    assert is_finished(finished)
    with pytest.raises(KeyboardInterrupt):
        build_vectors("made", spec, store, half, force=True, progress=EmbedProgress(stop, silent))
    assert build_vectors("made", spec, store, whole, force=True).recipe.parameters["dtype"] == "float32"


def test_vectors_of_another_checkpoint_are_not_thrown_away_unasked(spec: EncoderSpec, store: PassageStore, tmp_path: Path) -> None:
    assert isinstance(spec.passage_checkpoint, Path)
    other = with_checkpoint(spec, shutil.copytree(spec.passage_checkpoint, tmp_path / "other"))
    (tmp_path / "other" / "tokenizer.json").unlink()  # then the vocabulary is read, with the same tokens
    options = EmbedOptions(device="cpu")
    with pytest.raises(KeyboardInterrupt):
        build_vectors("made", spec, store, options, progress=EmbedProgress(stop, silent))
    with pytest.raises(ArtifactMismatch, match=r"has left [\d,]+ vectors with passage tokenizer\.json [0-9a-f]{12}.*passage vocab\.txt"):
        build_vectors("made", other, store, options)
    assert build_vectors("made", spec, store, options).count("rows") == 3000


def test_a_device_that_cannot_be_used_costs_no_finished_vector(
    spec: EncoderSpec, store: PassageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_vectors("made", spec, store, EmbedOptions(device="cpu"), progress=EmbedProgress(stop, silent))
    staging = staging_path(index_ref("made", "contriever").path)
    finished = finished_vectors(staging)
    assert finished
    monkeypatch.setattr("wikidx.indexer.embedding.embed._devices", lambda device: ("cpu", "cuda:9"))
    with pytest.raises(InputError, match="the device 'cuda:9' cannot be used"):
        build_vectors("made", spec, store, EmbedOptions(device="cpu"))
    assert finished.items() <= finished_vectors(staging).items()


def test_questions_are_not_encoded_with_other_weights_than_the_passages(spec: EncoderSpec, store: PassageStore, tmp_path: Path) -> None:
    build_vectors("made", spec, store, EmbedOptions(device="cpu"))
    check_query_weights("made", spec)
    assert isinstance(spec.passage_checkpoint, Path)
    folder = shutil.copytree(spec.passage_checkpoint, tmp_path / "other")
    weights = next(file for file in folder.iterdir() if file.name in ("model.safetensors", "pytorch_model.bin"))
    weights.write_bytes(weights.read_bytes() + b" ")
    with pytest.raises(ArtifactMismatch, match=rf"another checkpoint than {folder} \(passage {weights.name}\): restore that"):
        check_query_weights("made", with_checkpoint(spec, folder))


@pytest.mark.parametrize("n_finished", [0, 2])
def test_a_killed_build_loses_at_most_a_range(spec: EncoderSpec, store: PassageStore, n_finished: int) -> None:
    staging = staging_path(index_ref("made", "contriever").path)
    with started("build", spec) as process:
        wait_for(lambda: len(finished_ranges(staging)) >= n_finished and staging.exists())
        process.send_signal(signal.SIGKILL)
    finished = finished_vectors(staging)
    assert n_finished <= len(finished) < 12
    options = EmbedOptions(device="cpu")
    resumed = build_vectors("made", spec, store, options)
    assert is_finished(finished)
    undisturbed = build_vectors("made", spec, store, options, force=True)
    assert resumed.files == undisturbed.files


def workers(pid: int) -> set[int]:
    """Return the processes that a process has started by "spawn", and those that these have."""
    try:
        direct = {int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()}
        return {child for child in direct if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()}.union(*map(workers, direct))
    except FileNotFoundError:
        return set()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("n_devices", [1, 2])
def test_no_process_outlives_the_one_that_is_killed(spec: EncoderSpec, store: PassageStore, tmp_path: Path, n_devices: int) -> None:
    folder = tmp_path / "vectors"
    folder.mkdir()
    with started(str(n_devices), spec, folder) as process:
        wait_for(lambda: finished_ranges(folder))
        started_by_it = workers(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(started_by_it) >= n_devices
    wait_for(lambda: not any(map(is_running, started_by_it)), 10)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(("devices", "n_tokenizing", "work"), [(("cpu",), 1, "tokenises"), (("cpu", "cpu"), 0, "embeds")])
def test_a_process_that_is_killed_stops_the_build(
    spec: EncoderSpec, store: PassageStore, tmp_path: Path, devices: tuple[str, ...], n_tokenizing: int, work: str
) -> None:
    before = workers(os.getpid())
    killed = set[int]()

    def kill(done: int, total: int | None) -> None:
        if done and not killed:
            killed.update(workers(os.getpid()) - before)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(IdxError, match=f"a process that {work} was killed"):
        run(spec, tmp_path / "vectors", devices, n_tokenizing, EmbedProgress(kill, silent))
    run(spec, tmp_path / "vectors", ("cpu",), 0)
    assert len(finished_ranges(tmp_path / "vectors")) == 12


def test_what_a_device_raises_is_raised_here(spec: EncoderSpec, store: PassageStore, tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / f".{VECTORS}.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        run(spec, tmp_path / "vectors", ("cpu", "cpu"), 0)
