"""A Ray cluster for the tests of this folder, and the passages to embed on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wikidx.indexer.build
from tests.indexer.cluster.ray_nodes import cluster_of
from tests.runtimes.command_line import Command
from wikidx.base.cluster import connect
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec

SHARD_ROWS = 8
CLUSTER = EmbedOptions(on_ray=True)


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    with cluster_of(3) as nodes:
        yield nodes


@pytest.fixture
def on_cluster(cluster: Any) -> Iterator[Any]:  # noqa: ANN401 - Ray's own type
    with connect(cluster.address):
        yield cluster


@pytest.fixture
def minilm(monkeypatch: pytest.MonkeyPatch) -> EncoderSpec:
    monkeypatch.setattr(wikidx.indexer.build, "RANGE_ROWS", SHARD_ROWS)
    return encoder_spec("minilm")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Embed on this machine with one CPU, as on a node: with more threads sums are rounded differently."""
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def idx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)
