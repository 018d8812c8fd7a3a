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
from wikidx.retrievers.mcp.sources import LocalSource
from wikidx.retrievers.mcp.tools import Tools

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


def test_passages_are_shown_with_their_place(idx: Command, tmp_path: Path) -> None:
    path = tmp_path / "manual.py"
    path.write_text(
        "from wikidx import Document, Format, Heading\n\n\ndef read(path):\n    text = path.read_text()\n"
        "    at = text.index('Remove')\n"
        "    yield Document('guide', 'Guide', text, (0, at), (Heading(0, 1, 'Install'), Heading(at, 2, 'Remove')))\n\n\n"
        "MANUAL = Format(name='manual', documents=read, holds_articles=True)\n"
    )
    (tmp_path / "guide.manual").write_text("Install the fox. Run it.\n\nRemove the fox. Wash your hands.")
    idx("--plugin", f"{path}:MANUAL", "build", tmp_path / "guide.manual", "--format", "manual", "--split", "sentences:1")
    (hit,) = idx.json("search", "guide", "wash")["passages"]
    assert hit["span"] == {"document": "guide", "start": 42, "end": 58, "page": 2, "heading": "Install > Remove"}
    assert "[guide#3]  page 2  Install > Remove" in idx("search", "guide", "wash")
    shown = idx.json("show", "guide", "guide#1", "--after", "1")
    assert [passage["id"] for passage in shown["passages"]] == ["guide#1", "guide#2"]
    assert shown["text"] == "Run it.\n\nRemove the fox."
    assert idx("show", "guide", "guide", "--page", "2").splitlines()[::2] == [
        f"Guide  [guide#{n}]  page 2  Install > Remove" for n in (2, 3)
    ]
    assert len(idx.json("show", "guide", "guide")["passages"]) == 4
    assert "no document of 'guide' has the id 'x'" in idx("show", "guide", "x", status=2)
    assert [hit["id"] for hit in idx.json("search", "guide", "fox", "--collapse", "document")["passages"]] == ["guide#0"]


def test_passage_of_a_corpus_without_documents_is_shown(idx: Command) -> None:
    idx("build", "sample")
    (hit, *_) = idx.json("search", "sample", "Nile")["passages"]
    assert idx.json("show", "sample", hit["id"])["text"] == hit["text"]
    assert "do not say which document they are of" in idx("show", "sample", hit["id"], "--after", "1", status=2)


def test_agents_read_documents(articles: Path, home: Path) -> None:
    with idx_python.build(articles, split="words:4"):
        tools = Tools(LocalSource(("articles",), [], "cpu"))
    found = tools.search(["letters 7"]).passages[0]
    assert found.span is not None
    read = tools.get_document(found.span.document, first=2, count=3)
    assert (read.first, read.n_passages, read.passages) == (2, 45, ["a#2", "a#3", "a#4"])
    assert read.text == " ".join(TEXT.split()[8:20])
