"""Embedding with a real, tiny checkpoint: in processes, on several devices, and killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.indexer.encoders.folders import with_checkpoint
from wikidx.base.artifacts.building import staging_path
from wikidx.base.errors import ArtifactMismatch, IdxError, InputError
from wikidx.base.progress import Progress, silent
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding import pipeline
from wikidx.indexer.embedding.embed import EmbedProgress, embed
from wikidx.indexer.embedding.options import EmbedOptions, Precision, Resources
from wikidx.indexer.embedding.pipeline import Job, embed_ranges
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.networks import batching
from wikidx.indexer.vectors.file import VECTORS, VectorFile, finished_ranges

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("store")]  # processes that are started afresh, with torch: a minute

pytest.importorskip("torch", reason="needs the extra 'dense'")

RANGE_ROWS, N_RANGES = 250, 12
ON_CPU = EmbedOptions(device="cpu")


def job(spec: EncoderSpec, file: VectorFile, devices: tuple[str, ...], n_tokenizing: int = 0, batch_tokens: int = 2048) -> Job:
    file.folder.mkdir(exist_ok=True)
    resources = Resources(devices, Precision("float32", "float32"), batch_tokens, n_tokenizing)
    return Job(spec, partial(open_store, "made"), file.write, resources)


NO_PROGRESS = EmbedProgress()


def run(spec: EncoderSpec, folder: Path, devices: tuple[str, ...], n_tokenizing: int = 0, progress: EmbedProgress = NO_PROGRESS) -> None:
    file = VectorFile(folder, 3000, "float32", RANGE_ROWS)
    embed(job(spec, file, devices, n_tokenizing), file, progress)


def stop(done: int, total: int | None) -> None:
    if done >= 1000:
        raise KeyboardInterrupt


def build_in_part(spec: EncoderSpec, store: PassageStore, options: EmbedOptions = ON_CPU, *, force: bool = False) -> dict[int, bytes]:
    """Build vectors, interrupted; return those of the ranges that are finished, by their first rows."""
    with pytest.raises(KeyboardInterrupt):
        build_vectors("made", spec, store, options, force=force, progress=EmbedProgress(stop, silent))
    return finished_vectors()


def finished_vectors() -> dict[int, bytes]:
    staging = staging_path(index_ref("made", "contriever").path)
    return {rows.start: np.load(staging / VECTORS)[rows.start : rows.stop].tobytes() for rows in finished_ranges(staging)}


@pytest.mark.parametrize(("devices", "n_tokenizing"), [(("cpu",), 2), (("cpu", "cpu"), 1)])
def test_processes_make_the_same_vectors(tiny: EncoderSpec, tmp_path: Path, devices: tuple[str, ...], n_tokenizing: int) -> None:
    run(tiny, tmp_path / "alone", ("cpu",))
    reports: list[tuple[int, int | None]] = []
    run(tiny, tmp_path / "together", devices, n_tokenizing, EmbedProgress(lambda *done: reports.append(done), silent))
    alone, together = (np.load(tmp_path / folder / VECTORS) for folder in ("alone", "together"))
    if len(devices) == 1:
        assert together.tobytes() == alone.tobytes()
    else:  # each has its share of the threads, and with another number of them sums may be rounded differently
        np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    assert reports[0] == (0, 3000)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


@pytest.mark.parametrize(
    ("dtype", "stored", "computed", "tolerance"),
    [
        ("float32", "float32", "float32", 1e-5),
        pytest.param("float16", "float16", "float32", 5e-3, marks=pytest.mark.exhaustive),
        ("bfloat16", "float16", "bfloat16", 0.1),
    ],
)
def test_what_is_built_is_what_the_encoder_gives(
    tiny: EncoderSpec, store: PassageStore, dtype: str, stored: str, computed: str, tolerance: float
) -> None:
    manifest = build_vectors("made", tiny, store, EmbedOptions(device="cpu", dtype=dtype))
    assert dict(manifest.counts) == {"rows": 3000, "dim": 32}
    named = {"encoder": "contriever", "origin": "encoded", "dtype": stored, "computed": computed}
    assert manifest.recipe.parameters == {**named, **tiny.recipe()}
    assert manifest.recipe.parameters["pooling"] == "mean"
    rows = np.arange(0, 3000, 37)
    found = np.load(index_ref("made", "contriever").path / VECTORS)[rows]
    expected = TransformerEncoder(tiny).encode_passages(store.get_many(rows))
    assert 0 < np.abs(found - expected).max() <= tolerance or dtype == "float32"
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    with pytest.raises(ArtifactMismatch, match="was built with .*: --force replaces it"):
        build_vectors("made", tiny, store, EmbedOptions(device="cpu", dtype="float16" if stored == "float32" else "float32"))
    assert build_vectors("made", tiny, store, EmbedOptions(device="cpu", batch_tokens=77)) == manifest  # it is there


def test_finished_vectors_are_kept_unless_asked(tiny: EncoderSpec, store: PassageStore, tmp_path: Path) -> None:
    half, whole = (EmbedOptions(device="cpu", dtype=dtype) for dtype in ("float16", "float32"))
    finished = build_in_part(tiny, store, half)
    message = r"has left [\d,]+ vectors with dtype float16: .* it resumes; --force starts again with dtype float32"
    with pytest.raises(ArtifactMismatch, match=message):
        build_vectors("made", tiny, store, whole)
    assert isinstance(tiny.passage_checkpoint, Path)
    folder = shutil.copytree(tiny.passage_checkpoint, tmp_path / "other")
    (folder / "tokenizer.json").unlink()  # then the vocabulary is read, with the same tokens
    message = r"has left [\d,]+ vectors with passage tokenizer\.json [0-9a-f]{12}.*passage vocab\.txt"
    with pytest.raises(ArtifactMismatch, match=message):
        build_vectors("made", with_checkpoint(tiny, folder), store, half)
    assert build_vectors("made", tiny, store, half).recipe.parameters["dtype"] == "float16"
    built = np.load(index_ref("made", "contriever").path / VECTORS)
    assert finished
    assert all(built[first : first + RANGE_ROWS].tobytes() == content for first, content in finished.items())
    build_in_part(tiny, store, half, force=True)
    assert build_vectors("made", tiny, store, whole, force=True).recipe.parameters["dtype"] == "float32"


def test_an_unusable_device_costs_no_finished_vector(tiny: EncoderSpec, store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = build_in_part(tiny, store)
    assert finished
    monkeypatch.setattr("wikidx.indexer.embedding.embed._devices", lambda device: ("cpu", "cuda:9"))
    with pytest.raises(InputError, match="the device 'cuda:9' cannot be used"):
        build_vectors("made", tiny, store, ON_CPU)
    assert finished.items() <= finished_vectors().items()


EMBED = """
import sys
from pathlib import Path
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.test_embed_processes import run
from wikidx.indexer.naming import encoder_spec

checkpoint, folder = sys.argv[1:]
run(with_checkpoint(encoder_spec("contriever"), Path(checkpoint)), Path(folder), ("cpu", "cpu"), 1)
"""


def wait_for(condition: Callable[[], object], seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


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
def test_no_process_outlives_the_one_that_is_killed(tiny: EncoderSpec, tmp_path: Path) -> None:
    command = [sys.executable, "-c", EMBED, str(tiny.folder("passage")), str(tmp_path / "vectors")]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, start_new_session=True) as process:
        wait_for(lambda: finished_ranges(tmp_path / "vectors"))
        started_by_it = workers(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(started_by_it) >= 2
    wait_for(lambda: not any(map(is_running, started_by_it)), 10)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(("devices", "n_tokenizing", "work"), [(("cpu",), 1, "tokenises"), (("cpu", "cpu"), 0, "embeds")])
def test_a_process_that_is_killed_stops_the_build(
    tiny: EncoderSpec, tmp_path: Path, devices: tuple[str, ...], n_tokenizing: int, work: str
) -> None:
    before, killed = workers(os.getpid()), set[int]()

    def kill(done: int, total: int | None) -> None:
        if done and not killed:
            killed.update(workers(os.getpid()) - before)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(IdxError, match=f"a process that {work} was killed"):
        run(tiny, tmp_path / "vectors", devices, n_tokenizing, EmbedProgress(kill, silent))
    run(tiny, tmp_path / "vectors", ("cpu",))
    assert len(finished_ranges(tmp_path / "vectors")) == N_RANGES


def interrupt(done: int, total: int | None) -> None:
    if done:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("second", "error", "progress"), [("cuda:99", InputError, silent), ("cpu", KeyboardInterrupt, interrupt)])
def test_all_devices_stop_within_their_range(
    tiny: EncoderSpec, build: Callable[..., PassageStore], tmp_path: Path, second: str, error: type[BaseException], progress: Progress
) -> None:
    build([Passage(str(n), "", f"Passage {n}") for n in range(20_000)])
    file = VectorFile(tmp_path / "vectors", 20_000, "float32", 10_000)
    with pytest.raises(error):
        embed(job(tiny, file, ("cpu", second), batch_tokens=1), file, EmbedProgress(progress, silent))
    assert finished_ranges(file.folder) == []  # 10,000 batches would have taken far longer


def test_a_device_takes_few_ranges_ahead(tiny: EncoderSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "CHUNK_ROWS", 50)
    monkeypatch.setattr(pipeline, "_CHUNKS_AHEAD", 6)
    file, n_taken, n_done, excess = VectorFile(tmp_path / "vectors", 3000, "float32", 100), 0, 0, []

    def take() -> Iterator[range]:
        nonlocal n_taken
        for rows in file.ranges():
            n_taken += 1
            yield rows

    def report(n_passages: int, n_tokens: int) -> None:
        nonlocal n_done
        n_done += n_passages
        excess.append(n_taken - (n_done - 1) // 100)  # ranges that are taken and not finished

    embed_ranges(job(tiny, file, ("cpu",), n_tokenizing=7, batch_tokens=64), "cpu", take(), report)
    assert n_done == 3000
    assert 3 <= max(excess) <= 5  # three tokenised ahead, that which is made, and that which is padded
