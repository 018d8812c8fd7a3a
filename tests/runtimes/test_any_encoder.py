"""A checkpoint of the user's own through the command line: build, search, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.encoders import tiny
from tests.indexer.encoders.fake_embeddings import FakeEmbeddings, fake_serving
from tests.runtimes.command_line import Command
from wikidx.corpora.passage import Passage
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.encoders import recipes
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec
from wikidx.retrievers.build_and_open import build as build_searcher

NOTES = [
    {"id": "1", "title": "Nile", "text": "the river of rivers"},
    {"id": "2", "title": "", "text": "a nile"},
    {"id": "3", "title": "Of", "text": "river"},
]
QUERY = "the nile"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(json.dumps(note) + "\n" for note in NOTES))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.add_modules(tiny.save_bert(tmp_path / "Fine-Tuned"), "mean")


def expected_order(name: str) -> list[str]:
    encoder = TransformerEncoder(encoder_spec(name))
    passages = encoder.encode_passages([Passage(**note) for note in NOTES])
    scores = passages @ encoder.encode_queries([QUERY])[0]
    return [NOTES[row]["id"] for row in np.argsort(-scores, kind="stable")]


def test_a_folder_is_built_and_searched_by_its_name(idx: Command, notes: Path, folder: Path) -> None:
    dry = idx.json("build", notes, "--encoder", folder, "--dry-run")["estimates"]
    assert {need["step"]: need["disk_bytes"] for need in dry}["fine-tuned"] == 3 * 24 * 4
    idx("build", notes, "--encoder", folder, "--dry-run")
    assert idx.err.splitlines()[-1].split() == ["fine-tuned", "288", "B", "802.1", "MB"]
    built = idx.json("build", notes, "--encoder", folder, "--index", "int8", "--device", "cpu")["built"]
    assert built["fine-tuned"] == {"rows": 3, "dim": 24}
    for retriever in ("fine-tuned", "fine-tuned-int8"):
        found = idx.json("search", "notes", QUERY, "-r", retriever, "--device", "cpu")["passages"]
        assert [hit["id"] for hit in found] == expected_order("fine-tuned")
    recorded = index_ref("notes", "fine-tuned").manifest(None).recipe.parameters
    assert (recorded["pooling"], recorded["normalize"], recorded["passage"]) == ("mean", "true", "{title} {text}")
    assert "fine-tuned" in idx("list")


def test_options_make_another_encoder_which_needs_another_name(idx: Command, notes: Path, folder: Path) -> None:
    options = ("--pooling", "cls", "--query-prompt", "a: ", "--dim", 8, "--no-normalize")
    idx("build", notes, "--encoder", folder, "--device", "cpu")
    refusal = idx("build", "notes", "--encoder", folder, *options, status=2)
    assert refusal.startswith(
        "error: 'fine-tuned' is another encoder (pooling mean, not cls; normalize True, not False): name this one with"
    )
    idx("build", "notes", "--encoder", f"other={folder}", *options, "--device", "cpu")
    with build_searcher("notes", "other", device="cpu", show_progress=False) as searcher:
        assert [hit.id for hit in searcher.search([QUERY])[0]] == expected_order("other")


def test_a_query_is_not_encoded_by_another_recipe_or_checkpoint(idx: Command, notes: Path, folder: Path, home: Path) -> None:
    idx("build", notes, "--encoder", folder, "--device", "cpu")
    recipe = home / "encoders" / "fine-tuned.json"
    sound = recipe.read_text()
    recipe.write_text(json.dumps(json.loads(sound) | {"query_prompt": "a "}))
    recipes._own.clear()  # as for another process
    refusal = idx("search", "notes", QUERY, "-r", "fine-tuned", "--device", "cpu", status=2)
    assert "the vectors of 'fine-tuned' over 'notes' were made with query_prompt '', not 'a ': name the encoder again as it was" in refusal
    assert "were made with query_prompt" in idx("build", "notes", "--encoder", "fine-tuned", "--device", "cpu", status=2)
    recipe.write_text(sound)
    tiny.save_bert(folder, seed=1)
    assert "were made with another checkpoint" in idx("search", "notes", QUERY, "-r", "fine-tuned", "--device", "cpu", status=2)
    idx("build", "notes", "--encoder", folder, "--pooling", "max", "--force", "--device", "cpu")
    found = idx.json("search", "notes", QUERY, "-r", "fine-tuned", "--device", "cpu")["passages"]
    assert [hit["id"] for hit in found] == expected_order("fine-tuned")


def test_a_served_model_is_built_and_searched_by_its_name(idx: Command, notes: Path) -> None:
    with fake_serving(FakeEmbeddings()) as url:
        dry = idx.json("build", notes, "--encoder", f"openai:org/Tiny@{url}", "--dry-run")["estimates"]
        assert {need["step"]: (need["disk_bytes"], need["memory_bytes"]) for need in dry}["tiny"] == (3 * 8 * 4, None)
        built = idx.json("build", notes, "--encoder", f"openai:org/Tiny@{url}", "--index", "int8")["built"]
        assert built["tiny"] == {"rows": 3, "dim": 8}
        for retriever in ("tiny", "tiny-int8"):
            found = idx.json("search", "notes", "Of river", "-r", retriever)["passages"]
            assert (found[0]["id"], found[0]["score"]) == ("3", pytest.approx(1, abs=1e-6))
    refusal = idx("search", "notes", "Of river", "-r", "tiny", status=2)
    assert refusal.startswith(f"error: nobody listens at {url}")
