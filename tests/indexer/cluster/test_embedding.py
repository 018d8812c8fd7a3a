"""Passages embedded on a Ray cluster yield the bytes of a single machine, despite any losses."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.indexer.cluster.conftest import CLUSTER, SHARD_ROWS
from tests.indexer.cluster.ray_nodes import NODE
from tests.runtimes.command_line import Command
from wikidx.base.artifacts.building import staging_path
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.cluster import connect
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding.embed import EmbedProgress, embed
from wikidx.indexer.embedding.options import EmbedOptions, Precision, RayResources, Resources
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import VECTORS, VectorFile, finished_ranges

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
pytest.importorskip("torch", reason="needs the extra 'dense'")

N = 120  # passages of the sample corpus: fifteen shards for three nodes

pytestmark = pytest.mark.usefixtures("one_thread")


def alone(corpus: str, spec: EncoderSpec, store: PassageStore) -> Manifest:
    return build_vectors(corpus, spec, store, EmbedOptions(device="cpu"), force=True)


def assert_same(found: Manifest, expected: Manifest) -> None:
    """Compare everything except creation times."""
    assert len(expected.files) > 1
    assert dataclasses.replace(found, created="") == dataclasses.replace(expected, created="")


class Killer:
    """Kills a node and all its processes when half of the passages are encoded: the busy node that has encoded the fewest."""

    def __init__(self, cluster: Any, n_passages: int) -> None:  # noqa: ANN401 - Ray's own type
        self.cluster, self.n_passages, self.n_before = cluster, n_passages, 0
        self.encoded: dict[str, int] = {}

    def node(self, name: str) -> Callable[[int, int | None], None]:
        def progress(n_encoded: int, total: int | None) -> None:
            self.encoded[name] = n_encoded
            mortal = {f"{node.node_ip_address}:{node.node_manager_port}": node for node in self.cluster.worker_nodes}
            n_all = sum(self.encoded.values())
            if not self.n_before and n_all >= self.n_passages / 2:
                self.n_before = n_all
                slowest = mortal[min(self.encoded, key=self.encoded.__getitem__)]
                end(slowest)
                self.cluster.remove_node(slowest, allow_graceful=False)

        return progress


def end(node: Any) -> None:  # noqa: ANN401 - Ray's own type
    """Kill the processes of a node, which otherwise outlive it by a while on one machine, and might finish the work."""
    (raylet,) = (started.process.pid for started in node.all_processes["raylet"])
    for process in (raylet, *map(int, Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def built_with_a_node_lost(cluster: Any, corpus: str, spec: EncoderSpec, store: PassageStore, shard_rows: int) -> Manifest:  # noqa: ANN401
    killer, reports = Killer(cluster, len(store)), list[tuple[int, int | None]]()
    progress = EmbedProgress(passages=lambda *done: reports.append(done), node=killer.node)
    try:
        found = build_vectors(corpus, spec, store, CLUSTER, force=True, progress=progress)
    finally:
        if killer.n_before:
            cluster.add_node(**NODE)
    assert len(store) / 2 <= killer.n_before < len(store) - shard_rows
    assert sum(killer.encoded.values()) == len(store)  # no range that came back was made twice
    assert (reports[0], reports[-1]) == ((0, len(store)), (len(store), len(store)))
    return found


def unhurried(passage: Passage) -> str | tuple[str, str]:
    """Return the text of a passage after a while, so that encoders are at work when half is done."""
    time.sleep(0.05)
    return encoder_spec("minilm").passage_text(passage)


@pytest.mark.slow  # half a minute
def test_nodes_write_what_one_machine_writes_also_when_one_is_lost(
    on_cluster: Any,  # noqa: ANN401 - Ray's own type
    minilm: EncoderSpec,
    caplog: pytest.LogCaptureFixture,
) -> None:
    build_store(sample.CORPUS, StoreOptions(limit=N))
    corpus = f"sample@{N}"
    store = open_store(corpus)
    with caplog.at_level(logging.INFO, "wikidx.indexer.embedding.cluster"):
        found = built_with_a_node_lost(on_cluster, corpus, dataclasses.replace(minilm, passage_text=unhurried), store, SHARD_ROWS)
    assert "was lost" in caplog.text
    assert_same(found, alone(corpus, minilm, store))


SCRIPT = """
import sys
from pathlib import Path
from tests.indexer.encoders.folders import with_checkpoint
import wikidx.indexer.build
from wikidx.corpora.build import open_store
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.naming import encoder_spec
from wikidx.base.cluster import connect

address, checkpoint = sys.argv[1:]
wikidx.indexer.build.RANGE_ROWS = 250
with connect(address):
    spec = with_checkpoint(encoder_spec("contriever"), Path(checkpoint))
    wikidx.indexer.build.build_vectors("made", spec, open_store("made"), EmbedOptions(on_ray=True))
"""


@pytest.mark.slow
def test_a_build_whose_process_is_killed_resumes(cluster: Any, tiny: EncoderSpec, store: PassageStore) -> None:  # noqa: ANN401
    staging = staging_path(index_ref("made", "contriever").path)
    command = [sys.executable, "-c", SCRIPT, cluster.address, str(tiny.folder("passage"))]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        until = time.monotonic() + 120
        while not (kept := finished_ranges(staging)):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    before = np.load(staging / VECTORS)
    with connect(cluster.address):
        found = build_vectors("made", tiny, store, CLUSTER)
    built = np.load(index_ref("made", "contriever").path / VECTORS)
    assert all((built[rows.start : rows.stop] == before[rows.start : rows.stop]).all() for rows in kept)
    assert_same(found, alone("made", tiny, store))


@pytest.mark.slow
def test_passages_are_tokenised_by_processes_beside_an_encoder(
    on_cluster: Any,  # noqa: ANN401 - Ray's own type
    tiny: EncoderSpec,
    store: PassageStore,
    tmp_path: Path,
) -> None:
    folders = tmp_path / "alone", tmp_path / "together"
    for folder, ray in zip(folders, (None, RayResources(1, 0)), strict=True):
        folder.mkdir()
        found = Resources(("cpu",), Precision("float32", "float32"), 2048, 1, ray)
        file = VectorFile(folder, 3000, "float32", 250)
        embed(Job(tiny, partial(open_store, "made"), file.write, found), file, EmbedProgress())
    before, after = ((folder / VECTORS).read_bytes() for folder in folders)
    assert after == before


@pytest.mark.slow
def test_the_command_builds_on_a_cluster(
    cluster: Any,  # noqa: ANN401 - Ray's own type
    idx: Command,
    minilm: EncoderSpec,
    home: Path,
) -> None:
    options = ("sample", "--limit", 16, "--encoder", "minilm", "--ray", cluster.address, "--json")
    (_, need) = json.loads(idx("build", *options, "--dry-run"))["estimates"]
    assert need["step"] == "minilm"
    assert need["memory_bytes"] is None  # of the cluster's nodes
    assert not (home / "sample@16").exists()
    assert json.loads(idx("build", *options))["built"]["minilm"] == {"rows": 16, "dim": 384}
    assert np.load(index_ref("sample@16", "minilm").path / VECTORS).shape == (16, 384)
    assert not ray.is_initialized()


def handler_of(number: int) -> int | None:
    """Return the address of a signal's handler, the first field of C's struct sigaction."""
    action = ctypes.create_string_buffer(1_024)
    assert ctypes.CDLL(None).sigaction(number, None, action) == 0
    return ctypes.c_void_p.from_buffer(action).value


@pytest.mark.slow
def test_faults_are_handled_as_before(cluster: Any) -> None:  # noqa: ANN401 - Ray's own type
    """Ray's own handlers, and none after its end, would end a process at the first null check of the Java in it (Lucene)."""
    before = handler_of(signal.SIGSEGV)
    assert before  # pytest's own
    with connect(cluster.address):
        assert handler_of(signal.SIGSEGV) == before
    assert handler_of(signal.SIGSEGV) == before
