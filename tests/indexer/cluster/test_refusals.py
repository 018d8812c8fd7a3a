"""Errors of embedding on a Ray cluster, raised before it starts where possible: their messages, and that no partial files remain."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wikidx.base.compiled
import wikidx.indexer.build
import wikidx.indexer.embedding.cluster
from tests.indexer.cluster.conftest import CLUSTER
from tests.runtimes.command_line import Command
from wikidx.base.cluster import ProcessLost, check_versions, connect, fetch
from wikidx.base.errors import ArtifactMismatch, IdxError, InputError, MissingExtraError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding.embed import resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.encoders.spec import EncoderSpec

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
pytest.importorskip("torch", reason="needs the extra 'dense'")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]  # Ray
connected = pytest.mark.usefixtures("on_cluster")


def die(passage: Passage) -> str:
    """End the process at any passage of a store; the template of a recipe has no id."""
    if passage.id:
        os._exit(1)
    return passage.text


def die_of_one(passage: Passage) -> str:
    """End the process at one passage."""
    return die(passage) if passage.id == "1701" else passage.text


def too_large(passage: Passage) -> str:
    """Want more memory than there is for any passage of a store."""
    if passage.id:
        raise MemoryError
    return passage.text


@connected
@pytest.mark.parametrize(
    ("passage_text", "range_rows", "message"),
    [
        pytest.param(  # one after the other
            die,
            3000,
            r"3 encoders were lost over rows 0 to 2,999, the last one so: .* was lost \(.*the finished",
            marks=pytest.mark.exhaustive,
        ),
        (  # of ranges in hand together
            die_of_one,
            250,
            r"3 encoders were lost over rows 1,500 to 1,749, the last one so: .* was lost \(.*the finished",
        ),
        (too_large, 250, r"node [\d.]+:\d+: cpu has too little memory for batches of 1,024 tokens: use a smaller"),
    ],
)
def test_passages_that_end_encoders_or_want_too_much_memory_are_named(
    tiny: EncoderSpec,
    store: PassageStore,
    monkeypatch: pytest.MonkeyPatch,
    passage_text: Callable[[Passage], str],
    range_rows: int,
    message: str,
) -> None:
    monkeypatch.setattr(wikidx.indexer.build, "RANGE_ROWS", range_rows)
    with pytest.raises(IdxError, match=message):
        build_vectors("made", dataclasses.replace(tiny, passage_text=passage_text), store, CLUSTER)
    assert not index_ref("made", "contriever").path.exists()


def test_a_process_that_ray_ends_for_want_of_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(reference: object, timeout: float | None) -> None:
        raise ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.")

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(ProcessLost, match="node 7 was lost: Ray ended it for want of memory"):
        fetch("node 7", None)


@connected
def test_other_weights_on_a_node_are_refused(tiny: EncoderSpec, store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikidx.indexer.embedding.cluster, "weight_checksums", lambda spec: {"passage model.safetensors": "1"})
    message = r"node [\d.]+:\d+: another checkpoint of 'contriever' \(.*model.safetensors.*\): put the same"
    with pytest.raises(ArtifactMismatch, match=message):
        build_vectors("made", tiny, store, CLUSTER)
    assert not index_ref("made", "contriever").path.exists()


def test_a_node_with_another_version_is_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    version, there = importlib.metadata.version, re.escape(importlib.metadata.version("faiss-cpu"))
    monkeypatch.setattr(importlib.metadata, "version", lambda asked: "0.1" if asked == "faiss-cpu" else version(asked))
    with pytest.raises(IdxError, match=rf"node [\d.]+:\d+ has faiss {there}, here is 0\.1: install the same"), connect(cluster.address):
        pass
    assert not ray.is_initialized()


@connected
def test_what_cannot_be_had_is_refused(tiny: EncoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_resources(CLUSTER, tiny).devices == ("cpu",) * 3
    refused: list[tuple[dict[str, Any], str]] = [
        ({"ray_cpus": 2}, "--ray-cpus 2: the largest node of the Ray cluster has 1"),
        ({"ray_cpus": 0}, "--ray-cpus 0: an encoder needs at least one"),
        ({"device": "cuda"}, "--device cuda: none of the 3 nodes of the Ray cluster has a GPU"),
        ({"device": "cuda:1"}, "--device cuda:1 with --ray: use auto, cpu or cuda"),
    ]
    for options, message in refused:
        with pytest.raises(InputError, match=message):
            resolve_resources(EmbedOptions(on_ray=True, **options), tiny)
    check_versions()
    monkeypatch.setattr(wikidx.base.compiled, "sources_hash", lambda files: "another")
    with pytest.raises(IdxError, match=r"node [\d.]+:\d+ has idx's code [0-9a-f]{16}, here is another: install the same"):
        check_versions()


def test_without_ray_the_extra_is_named(tiny: EncoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"needs the extra 'ray': pip install .*\[ray\]'"):
        resolve_resources(CLUSTER, tiny)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ray", "127.0.0.1:1"], "no Ray cluster can be reached at 127.0.0.1:1"),
        (["--ray", "127.0.0.1:99999"], "no Ray cluster can be reached"),
        (["--ray", "somewhere"], "'somewhere' is no address of a Ray cluster"),
        (["--ray", "ray://somewhere:10001"], "is no address of a Ray cluster: use HOST:PORT"),
        (["--ray-cpus", "2"], "--ray-cpus 2 is for work on a Ray cluster: add --ray"),
        (["--ray", "127.0.0.1:1", "--vectors", "published"], "--ray is for embedding passages: add --encoder, without --vectors published"),
        (["--ray", "127.0.0.1:1", "--device", "all"], "--device all with --ray: use auto, cpu or cuda"),
    ],
)
def test_mistakes_are_one_line(idx: Command, home: Path, options: list[str], message: str) -> None:
    assert message in idx("build", "sample", "--encoder", "minilm", *options, status=2)
    assert not home.exists() or not list(home.iterdir())
