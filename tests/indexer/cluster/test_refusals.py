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
import wikidx.indexer.embedding.cluster.embedding
from tests.indexer.cluster.conftest import CLUSTER
from tests.runtimes.command_line import Command
from wikidx.base.errors import IdxError, InputError, MissingExtraError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding.cluster.embedding import ProcessLost, check_cluster, ray_errors
from wikidx.indexer.embedding.cluster.nodes import check_versions
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
    with pytest.raises(
        IdxError, match=r"node [\d.]+:\d+: cpu has too little memory for batches of 1,024 tokens: use a smaller --batch-tokens"
    ):
        build_vectors("made", dataclasses.replace(tiny, passage_text=too_large), store, CLUSTER)
    assert not index_ref("made", "contriever").path.exists()


def test_a_process_that_ray_ends_for_want_of_memory_is_reported() -> None:
    with pytest.raises(ProcessLost, match="node 7 ran out of memory, .*--ray-cpus.*--batch-tokens"), ray_errors("node 7"):
        raise ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.")


def test_the_same_nodes_are_asked_once(on_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - Ray's own type
    check_cluster()
    monkeypatch.setattr(wikidx.base.compiled, "sources_hash", lambda *arguments: "another")
    check_cluster()
    monkeypatch.setattr(wikidx.indexer.embedding.cluster.embedding, "_checked", set())
    with pytest.raises(IdxError, match=r"node [\d.]+:\d+ has idx with code [0-9a-f]{16}, here is another: install the same"):
        check_cluster()


def test_a_node_with_another_version_is_found_before_work_starts(
    on_cluster: Any,  # noqa: ANN401 - Ray's own type
    tiny: EncoderSpec,
    store: PassageStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wikidx.indexer.embedding.cluster.embedding, "_checked", set())
    there = importlib.metadata.version("numpy")
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1" if name == "numpy" else version(name))
    with pytest.raises(IdxError, match=rf"node [\d.]+:\d+ has numpy {re.escape(there)}, here is 0\.1: install the same"):
        build_vectors("made", tiny, store, CLUSTER)
    assert not index_ref("made", "contriever").path.exists()


def test_every_package_that_decides_what_is_computed_is_compared(on_cluster: Any) -> None:  # noqa: ANN401 - Ray's own type
    for package, distribution in (("tokenizers", "tokenizers"), ("safetensors", "safetensors"), ("faiss", "faiss-cpu")):
        there = re.escape(importlib.metadata.version(distribution))
        with pytest.raises(IdxError, match=rf"node [\d.]+:\d+ has {package} {there}, here is 0\.1: install the same"):
            check_versions({package: "0.1"})


def test_what_cannot_be_had_is_refused(on_cluster: Any, tiny: EncoderSpec) -> None:  # noqa: ANN401 - Ray's own type
    with pytest.raises(InputError, match="--ray-cpus 2: the largest node of the Ray cluster has 1"):
        resolve_resources(EmbedOptions(on_ray=True, ray_cpus=2), tiny)
    with pytest.raises(InputError, match="--device cuda: none of the 4 nodes of the Ray cluster has a GPU"):
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
        (["--ray", "somewhere"], "'somewhere' is no address of a Ray cluster"),
        (["--ray-cpus", "2"], "--ray-cpus 2 is for work on a Ray cluster: add --ray"),
        (["--ray", "127.0.0.1:1", "--vectors", "published"], "--ray is for embedding passages: add --encoder, without --vectors published"),
        (["--ray", "127.0.0.1:1", "--device", "all"], "--device all with --ray: use auto, cpu or cuda"),
    ],
)
def test_mistakes_are_one_line(idx: Command, home: Path, options: list[str], message: str) -> None:
    assert message in idx("build", "sample", "--encoder", "minilm", *options, status=2)
    assert not home.exists() or not list(home.iterdir())
