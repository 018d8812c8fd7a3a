"""Documents split by rules through the command line and in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import wikidx as idx_python
from tests.runtimes.command_line import Command
from wikidx.corpora.build import open_store, store_manifest
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.planning import splitting_tokenizer

TEXT = " ".join(f"Antidisestablishmentarianism has {n} letters or more." for n in range(30))


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    path = tmp_path / "articles.jsonl"
    path.write_text(json.dumps({"id": "a", "title": "Word", "text": TEXT}) + "\n")
    return path


def test_tokens_are_those_of_the_encoder(idx: Command, articles: Path) -> None:
    idx("build", articles, "--encoder", "minilm", "--split", "tokens:60:12")
    store = open_store("articles")
    passages = store.get_many(range(len(store)))
    lengths = Tokenizer(encoder_spec("minilm"), "passage").passages(passage._replace(title="") for passage in passages).lengths() - 2
    assert len(passages) > 5
    assert 48 < lengths[:-1].min() <= lengths.max() <= 60  # words have up to nine tokens
    assert store_manifest("articles").recipe.parameters["tokenizer"] == "minilm"
    idx("build", "articles", "--encoder", "minilm", "--force")
    assert open_store("articles").fingerprint == store.fingerprint
    assert "with tokenizer minilm, not tokenizer None" in idx("build", articles, "--bm25", "--split", "tokens:60:12", status=2)
    with idx_python.build([{"id": "a", "title": "Word", "text": TEXT}], "minilm", split="tokens:60:12") as searcher:
        assert [searcher.passage(f"a#{n}") for n in range(len(passages))] == passages


def test_tokens_of_no_encoder(idx: Command, articles: Path) -> None:
    assert splitting_tokenizer(["bm25"]) is None
    assert "name it with --encoder NAME" in idx("build", articles, "--bm25", "--split", "tokens:60", status=2)


def test_former_option_for_words_still_works(idx: Command, articles: Path) -> None:
    idx("build", articles, "--name", "old", "--words", "7", "--split", "dpr")
    assert "--words 7 is now written --split dpr:7" in idx.err
    idx("build", articles, "--name", "old", "--split", "dpr:7")
    assert store_manifest("old").recipe.parameters["words"] == 7
    assert "leave it out beside --split words:8" in idx("build", articles, "--words", "7", "--split", "words:8", status=2)
