"""Vectors of a corpus from a server: the same after an interruption, and searched by queries of the same model only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indexer.encoders.fake_embeddings import FakeEmbeddings, fake_serving, hashed_vectors
from wikidx.base.artifacts.building import staging_path
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.base.net.endpoint import Endpoint, EndpointError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_vectors, open_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding.embed import resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.encoders import served
from wikidx.indexer.encoders.recipes import RecipeOptions
from wikidx.indexer.naming import encoder_spec, name_encoder
from wikidx.indexer.networks.checkpoints import ServedModel
from wikidx.indexer.vectors.file import finished_ranges
from wikidx.retrievers.opening import open_retriever

PASSAGES = [Passage(f"p{n}", f"Title {n}", "river " * (n % 20) + str(n)) for n in range(2500)]
EXPECTED = hashed_vectors([f"{passage.title} {passage.text}" for passage in PASSAGES])


@pytest.fixture
def store(build: Callable[..., PassageStore]) -> PassageStore:
    return build(PASSAGES)


def build_from(url: str, store: PassageStore, **choices: Any) -> None:  # noqa: ANN401 - options
    name = name_encoder(f"openai:org/Tiny@{url}", RecipeOptions(**choices))
    build_vectors("made", encoder_spec(name), store, EmbedOptions())


def stored(store: PassageStore) -> np.typing.NDArray[np.float32]:
    vectors = open_vectors("made", "tiny", store)
    assert vectors is not None
    return vectors.read(np.arange(len(store)))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that is gone be noticed after one retry."""

    def make(name: str, url: str, **limits: Any) -> Endpoint:  # noqa: ANN401 - options
        return Endpoint(name, url, retries=1, first_pause_s=0.01)

    monkeypatch.setattr(served, "Endpoint", make)


def test_a_server_that_dies_midway_costs_only_unfinished_ranges(store: PassageStore) -> None:
    message = r"the connection to 'org/Tiny' broke: .* \(2 tries\)"
    with fake_serving(FakeEmbeddings(dies_after=70)) as url, pytest.raises(EndpointError, match=message):
        build_from(url, store)
    finished = finished_ranges(staging_path(index_ref("made", "tiny").path))
    assert 0 < sum(map(len, finished)) < len(store)
    with fake_serving(after := FakeEmbeddings()) as url:  # at another address
        build_from(url, store)
    np.testing.assert_array_equal(stored(store), EXPECTED)
    n_again = sum(map(len, after.batches)) - 1  # the first text asks for the dimension
    assert n_again == len(store) - sum(map(len, finished))


def test_queries_are_encoded_at_any_address_of_the_same_model(store: PassageStore) -> None:
    with fake_serving(FakeEmbeddings()) as url:
        build_from(url, store)
    manifest = index_ref("made", "tiny").manifest(None)
    assert manifest.recipe.inputs["passage model"] == "openai:org/Tiny"
    assert "127.0.0.1" not in str(manifest)
    with fake_serving(elsewhere := FakeEmbeddings()) as url:
        name_encoder(f"openai:org/Tiny@{url}")
        hits = open_retriever("made", "tiny", store).retrieve(["Title 7 " + PASSAGES[7].text], 3)
    assert hits.rows[0, 0] == 7
    assert hits.scores[0, 0] == pytest.approx(1, abs=1e-6)
    assert elsewhere.batches[-1] == ["Title 7 " + PASSAGES[7].text]


def test_another_model_is_refused(store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_serving(FakeEmbeddings()) as url:
        build_from(url, store)
        with pytest.raises(InputError, match=r"'tiny' is another encoder \(checkpoint openai:org/Tiny, not openai:other/tiny\)"):
            name_encoder(f"openai:other/tiny@{url}")
        with pytest.raises(InputError, match="'tiny' is another encoder .query_prompt , not q: "):
            build_from(url, store, query_prompt="q: ")
    with fake_serving(FakeEmbeddings(embed=lambda texts: hashed_vectors([text[::-1] for text in texts]))) as impostor:
        monkeypatch.setenv("IDX_EMBEDDINGS_URL", impostor)
        message = r"the server of 'tiny' gives the first passage of 'made' another vector than the stored one .*: it has another model"
        with pytest.raises(ArtifactMismatch, match=message):
            open_retriever("made", "tiny", store)


def test_a_build_keeps_to_its_own_recipe_whatever_another_process_writes(home: Path) -> None:
    with fake_serving(FakeEmbeddings()) as own, fake_serving(FakeEmbeddings()) as other:
        name = name_encoder(f"openai:org/Tiny@{own}")
        command = f"from wikidx.indexer.naming import name_encoder; name_encoder('openai:org/Tiny@{other}')"
        subprocess.run([sys.executable, "-c", command], env={**os.environ, "IDX_HOME": str(home)}, check=True)
        assert other in (home / "encoders" / "tiny.json").read_text()
        assert encoder_spec(name).passage_checkpoint == ServedModel(model="org/Tiny", url=own)


def test_a_stored_vector_of_zeros_is_named_as_such(store: PassageStore) -> None:
    with fake_serving(FakeEmbeddings(embed=lambda texts: hashed_vectors(texts) * np.float32(1e-9))) as url:
        spec = encoder_spec(name_encoder(f"openai:org/Tiny@{url}"))
        build_vectors("made", spec, store, EmbedOptions(dtype="float16"))  # too small for this precision
        with pytest.raises(ArtifactMismatch, match="the first vector of 'tiny' is all zeros: run 'idx build made --encoder tiny --force'"):
            open_retriever("made", "tiny", store)


def test_a_cluster_is_not_for_served_encoders() -> None:
    with fake_serving(FakeEmbeddings()) as url:
        spec = encoder_spec(name_encoder(f"mine=openai:org/Tiny@{url}"))
    with pytest.raises(InputError, match="--ray is for a checkpoint: 'mine' is computed by its server"):
        resolve_resources(EmbedOptions(on_ray=True), spec)
