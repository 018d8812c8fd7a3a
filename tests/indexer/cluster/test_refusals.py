"""Errors of embedding on a Ray cluster, raised before it starts where possible: their messages, and that no partial files remain."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import wikidx.base.compiled
import wikidx.indexer.build
import wikidx.indexer.embedding.cluster
from tests.indexer.cluster.conftest import CLUSTER
from tests.runtimes.command_line import Command
from wikidx.base.cluster import ProcessLost, check_versions, connect, remote_errors
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


def die(passage: Passage) -> str:
    """End the process at any passage of a store; the template of a recipe has no id."""
    if passage.id:
        os._exit(1)
    return passage.text


def test_a_shard_that_no_encoder_survives_is_named(
    on_cluster: Any,  # noqa: ANN401 - Ray's own type
    tiny: EncoderSpec,
    store: PassageStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wikidx.indexer.build, "RANGE_ROWS", len(store))  # one range, so that encoders are lost one after the other
    fatal = dataclasses.replace(tiny, passage_text=die)
    with pytest.raises(IdxError, match=r"3 encoders were lost over rows 0 to 2,999, the last one so: .* was lost \(.*the finished"):
        build_vectors("made", fatal, store, CLUSTER)
    assert not index_ref("made", "contriever").path.exists()


def die_of_one(passage: Passage) -> str:
    """End the process at one passage."""
    return die(passage) if passage.id == "1701" else passage.text


def test_of_ranges_in_hand_together_the_one_that_ends_encoders_is_named(
    on_cluster: Any,  # noqa: ANN401 - Ray's own type
    tiny: EncoderSpec,
    store: PassageStore,
) -> None:
    with pytest.raises(IdxError, match=r"3 encoders were lost over rows 1,500 to 1,749, the last one so: "):
        build_vectors("made", dataclasses.replace(tiny, passage_text=die_of_one), store, CLUSTER)


def too_large(passage: Passage) -> str:
    """Want more memory than there is for any passage of a store."""
    if passage.id:
        raise MemoryError
    return passage.text


def test_want_of_memory_on_a_node_is_reported_with_its_name(on_cluster: Any, tiny: EncoderSpec, store: PassageStore) -> None:  # noqa: ANN401
    with pytest.raises(IdxError, match=r"node [\d.]+:\d+: cpu has too little memory for batches of 1,024 tokens: use a smaller"):
        build_vectors("made", dataclasses.replace(tiny, passage_text=too_large), store, CLUSTER)
    assert not index_ref("made", "contriever").path.exists()


def test_a_process_that_ray_ends_for_want_of_memory_is_reported() -> None:
    with pytest.raises(ProcessLost, match="node 7 was lost: Ray ended it for want of memory"), remote_errors("node 7"):
        raise ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.")


def test_other_weights_on_a_node_are_refused(
    on_cluster: Any,  # noqa: ANN401 - Ray's own type
    tiny: EncoderSpec,
    store: PassageStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wikidx.indexer.embedding.cluster, "weight_checksums", lambda spec: {"passage model.safetensors": "1"})
    with pytest.raises(
        ArtifactMismatch, match=r"node [\d.]+:\d+: another checkpoint of 'contriever' \(.*model.safetensors.*\): put the same"
    ):
        build_vectors("made", tiny, store, CLUSTER)
    assert not index_ref("made", "contriever").path.exists()


@pytest.mark.parametrize(("package", "name"), [(name, name) for name in ("numpy", "tokenizers", "safetensors")] + [("faiss-cpu", "faiss")])
def test_a_node_with_another_version_is_refused(cluster: Any, package: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    version, there = importlib.metadata.version, re.escape(importlib.metadata.version(package))
    monkeypatch.setattr(importlib.metadata, "version", lambda asked: "0.1" if asked == package else version(asked))
    with pytest.raises(IdxError, match=rf"node [\d.]+:\d+ has {name} {there}, here is 0\.1: install the same"), connect(cluster.address):
        pass
    assert not ray.is_initialized()


def test_a_node_with_other_code_is_refused(on_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - Ray's own type
    check_versions()
    monkeypatch.setattr(wikidx.base.compiled, "sources_hash", lambda files: "another")
    with pytest.raises(IdxError, match=r"node [\d.]+:\d+ has idx's code [0-9a-f]{16}, here is another: install the same"):
        check_versions()


def test_what_cannot_be_had_is_refused(on_cluster: Any, tiny: EncoderSpec) -> None:  # noqa: ANN401 - Ray's own type
    with pytest.raises(InputError, match="--ray-cpus 2: the largest node of the Ray cluster has 1"):
        resolve_resources(EmbedOptions(on_ray=True, ray_cpus=2), tiny)
    with pytest.raises(InputError, match="--device cuda: none of the 3 nodes of the Ray cluster has a GPU"):
        resolve_resources(EmbedOptions(device="cuda", on_ray=True), tiny)
    assert resolve_resources(CLUSTER, tiny).devices == ("cpu",) * 3
    with pytest.raises(InputError, match="--device cuda:1 with --ray: use auto, cpu or cuda"):
        EmbedOptions(device="cuda:1", on_ray=True)
    with pytest.raises(InputError, match="--ray-cpus 0: an encoder needs at least one"):
        EmbedOptions(on_ray=True, ray_cpus=0)


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
