"""Encoders, rerankers and kinds of index that are plug-ins: searched as those of idx are, recorded, never loaded by themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import wikidx as idx
from tests.retrievers.server.serving import search, serving
from tests.runtimes.command_line import Command
from wikidx.base.errors import ArtifactMismatch, InputError, UnknownNameError
from wikidx.base.plugins import VARIABLE, plug
from wikidx.corpora.build import open_store
from wikidx.indexer.catalog import built_indexes, index_ref
from wikidx.indexer.encoders import recipes
from wikidx.indexer.encoders.transformer import open_encoder
from wikidx.indexer.naming import encoder_spec, name_encoder
from wikidx.retrievers.rerankers.by_name import open_reranker
from wikidx.retrievers.server.settings import Settings
from wikidx.testing import check_encoder, check_index, check_reranker

PLUG_INS = '''
"""Letters of texts as vectors, the shortest passage first, and exact search whose vectors lie in a file of its own."""
import numpy as np
import wikidx as idx
from wikidx.base.machine.fit import ON_CPU
from wikidx.indexer.base import DEFAULT_PARAMS, empty_hits
from wikidx.indexer.indexes.kinds import Estimate

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Counts:
    def encode_queries(self, queries):
        return np.array([[query.lower().count(letter) for letter in LETTERS] for query in queries])

    def encode_passages(self, passages):
        return self.encode_queries([passage.text for passage in passages])


class Shorter:
    def score(self, queries, passages):
        return [-len(passage.text) for passage in passages]


class Plain:
    placement, parameters = ON_CPU, {}

    def __init__(self, path):
        self.vectors = np.load(path / "plain.npy")
        self.dim = self.vectors.shape[1]

    def __len__(self):
        return len(self.vectors)

    def search(self, vectors, k, params=DEFAULT_PARAMS):
        hits = empty_hits(len(vectors), k)
        allowed = np.arange(len(self)) if params.scope is None else params.scope.rows()
        for query, rows, scores in zip(vectors, *hits):
            products = self.vectors[allowed] @ query
            best = np.lexsort((allowed, -products))[:k]
            rows[: len(best)], scores[: len(best)] = allowed[best], products[best]
        return hits


def write(build):
    np.save(build.staging / "plain.npy", build.source.read(np.arange(build.source.n_rows)))
    return build.source.counts()


ENCODER = idx.OwnEncoder(name="letters", dim=26, open=lambda device: Counts())
RERANKER = idx.OwnReranker(name="shorter", open=lambda device: Shorter())
KIND = idx.IndexKind(
    name="plain",
    source="vectors",
    format_version=1,
    parameters=lambda size: {},
    write=write,
    open=lambda path, manifest, options: Plain(path),
    estimate=lambda size: Estimate(4 * size.n_rows * size.dim, 1e6),
)
'''
PASSAGES = ["Zanzibar buzzes.", "A quiet quay.", "Jazz.", "Pizza, pizza and more pizza, with a lot of it."]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(VARIABLE, "")
    path = tmp_path / "mine.py"
    path.write_text(PLUG_INS)
    return path


@pytest.fixture
def run(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command line, in the folder of the plug-ins, each command as a process that knows none of them."""
    monkeypatch.chdir(file.parent)
    command = Command(monkeypatch, capsys)

    def call(*arguments: str, status: int = 0) -> str:
        recipes._own.clear()
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLE, "")
            return command(*arguments, status=status)

    return call


def test_they_keep_the_contracts_of_their_kinds(file: Path) -> None:
    check_encoder(f"{file}:ENCODER")
    check_reranker(f"{file}:RERANKER")
    check_index(f"{file}:KIND")


def test_a_search_equals_brute_force_over_their_values(file: Path) -> None:
    plug(f"{file}:KIND")
    with idx.build(PASSAGES, retriever=f"{name_encoder(f'{file}:ENCODER')}-plain", device="cpu") as searcher:
        (found,) = searcher.search(["zz"], k=4)
        letters = [[text.lower().count(letter) for letter in "z"] for text in PASSAGES]
        assert [(hit.text, hit.score) for hit in found] == [
            (PASSAGES[row], 2.0 * letters[row][0]) for row in sorted(range(4), key=lambda row: (-letters[row][0], row))
        ]
    idx.build(PASSAGES, name="notes", retriever="letters", device="cpu").close()
    with idx.open_searcher("notes", "letters", reranker=f"{file}:RERANKER", device="cpu") as searcher:
        assert [hit.text for hit in searcher.search(["zz"], k=4, rerank="cross-encoder")[0]] == sorted(PASSAGES, key=len)


def test_commands_take_them_once_they_are_named(file: Path, run: Callable[..., str]) -> None:
    (file.parent / "notes.jsonl").write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(PASSAGES)))
    built = run("build", "notes.jsonl", "--encoder", "./mine.py:ENCODER", "--index", "./mine.py:KIND", "--device", "cpu")
    assert "letters (4 rows), letters-plain (4 rows)" in built
    told = run("search", "notes", "zz", "--retriever", "letters", "--device", "cpu", status=2)
    assert f"the encoder 'letters' is a plug-in, {file}:ENCODER: name it again, by --plugin {file}:ENCODER" in told
    assert "letters " in run("list")
    assert run("check", "notes").splitlines()[:2] == ["passages: as built", "letters: as built"]
    plugged = ("--plugin", "./mine.py:ENCODER", "--plugin", "mine.py:KIND", "--plugin", "mine.py:RERANKER")
    found = run(*plugged, "search", "notes", "zz", "--retriever", "letters-plain % 3 >> shorter", "--device", "cpu", "--json")
    assert [hit["id"] for hit in json.loads(found)["passages"]] == ["2", "0", "3"]
    reranked = run(*plugged, "search", "notes", "zz", "--retriever", "letters", "--device", "cpu", "--reranker", "shorter", "--json")
    assert [hit["text"] for hit in json.loads(reranked)["passages"]] == sorted(PASSAGES, key=len)
    run(*plugged, "remove", "notes", "--index", "letters-plain", "--yes")


def test_artifacts_are_read_by_the_code_alone_that_made_them(file: Path) -> None:
    for name in ("ENCODER", "KIND"):
        plug(f"{file}:{name}")
    idx.build(PASSAGES, name="notes", retriever="letters-plain", device="cpu").close()
    other = file.with_name("other.py")
    other.write_text(PLUG_INS + "\n# another version\n")
    os.environ[VARIABLE] = ""
    assert built_indexes("notes") == ["letters"]
    plug(f"{other}:ENCODER")
    with pytest.raises(ArtifactMismatch, match="made with another version of the encoder 'letters' .*: restore the file of then, or"):
        idx.open_searcher("notes", "letters", device="cpu")
    plug(f"{other}:KIND")
    with pytest.raises(
        ArtifactMismatch, match=r"made with another version of the index 'plain' \(sha256 .*other.py:KIND .*: restore the file of then"
    ):
        index_ref("notes", "letters-plain").manifest(open_store("notes").fingerprint)


def test_a_spec_of_ones_own_is_an_encoder(file: Path) -> None:
    file.write_text(
        "import dataclasses\nfrom wikidx.indexer.encoders.families import ENCODERS\n\n\ndef shout(query):\n    return query.upper()\n\n\n"
        "LOUD = dataclasses.replace(ENCODERS['minilm'], name='loud', query_text=shout)\n"
    )
    spec = encoder_spec(name_encoder(f"{file}:LOUD"))
    assert (spec.name, spec.query_text("a"), spec.recipe()["query"]) == ("loud", "A", "{QUERY}")
    minilm = open_encoder(encoder_spec("minilm"))
    np.testing.assert_array_equal(open_encoder(spec).encode_queries(["gold"]), minilm.encode_queries(["GOLD"]))


def encode(file: Path) -> None:
    open_encoder(encoder_spec(name_encoder(f"{file}:ENCODER"))).encode_queries(["gold"])


def rerank(file: Path) -> None:
    open_reranker(f"{file}:RERANKER").score(["a", "b"], [idx.Passage("1", "", "x")] * 2)


def find(file: Path) -> None:
    plug(f"{file}:KIND")
    with idx.build(PASSAGES, retriever=f"{name_encoder(f'{file}:ENCODER')}-plain", device="cpu") as searcher:
        searcher.search(["zz"], k=2)


def checking(check: Callable[[str], object], name: str) -> Callable[[Path], object]:
    return lambda file: check(f"{file}:{name}")


COUNTS = "return np.array([[query.lower().count(letter) for letter in LETTERS] for query in queries])"
OTHER = "class Other:\n    plugin_kind, name = 'reranker', 'other'\n\n\nRERANKER = Other()\n"
BEST, HITS = "= allowed[best], products[best]", "return hits"
NAN = "return np.full((len(queries), 26), np.nan)"
WRONG: list[tuple[str, str, Callable[[Path], object], str]] = [  # what is replaced by what, what is done then, and what is told
    (COUNTS, "return np.array([1 / 0 for _ in queries])", encode, "mine.py.*fails at .* 1, from 'gold' on, line 14: ZeroDivisionError"),
    (COUNTS, "return np.zeros((len(queries), 3))", encode, r"returns an array of \(1, 3\) instead of \(1, 26\) at a batch of 1"),
    (COUNTS, NAN, encode, "returns numbers that are not finite at a batch of 1, from 'gold' on"),
    (COUNTS, "return 'vectors'", encode, "fails at a batch of 1.*: ValueError: could not convert string to float"),
    ("def encode_queries", "def encode", encode, "AttributeError: 'Counts' object has no attribute 'encode_queries'"),
    (PLUG_INS, PLUG_INS, lambda file: name_encoder(str(file)), "mine.py' is a file: write which of its plug-ins is meant, .*:NAME"),
    (PLUG_INS, OTHER, rerank, "mine.py:RERANKER is a Other: a reranker is a wikidx.OwnReranker"),
    ("-len(passage.text) for passage in passages", "1 for _ in passages[1:]", rerank, r"of \(1,\).* one finite score is needed for each"),
    (HITS, "return hits[::-1]", find, "the hits of .*mine.py:KIND have numbers of float32 and int64 instead of int64 and float32"),
    (BEST, "= allowed[best] + 10_000, products[best]", find, "have rows that do not exist"),
    (HITS, "return type(hits)(hits.rows[:, 1:], hits.scores[:, 1:])", find, r"have shapes \(1, 1\) and \(1, 1\) instead of \(1, 2\)"),
    (HITS, "hits.rows[:, 1] = hits.rows[:, 0]; return hits", checking(check_index, "KIND"), "a row is returned twice for a query"),
    (COUNTS, f"{COUNTS} + len(queries)", checking(check_encoder, "ENCODER"), "alone than in a batch"),
    ("[-len(passage.text)", "[len(passages) - len(passage.text)", checking(check_reranker, "RERANKER"), "has another score alone"),
    ("@ query", "@ -query", checking(check_index, "KIND"), "of the 10 best by brute force 0.0"),
    ("if params.scope is None else params.scope.rows()", "", checking(check_index, "KIND"), "rows outside the scope are returned"),
    ("return build.source.counts()", "return None", checking(check_index, "KIND"), "'write' of .* returns a NoneType, not a Mapping"),
    (BEST, "= allowed[best[::-1]], products[best[::-1]]", checking(check_index, "KIND"), "another order than by descending score"),
]


ARGUMENTS = {
    "corpus": ("build", "wrong.py:VALUE"),
    "format": ("build", "notes.txt", "--format", "wrong.py:VALUE"),
    "encoder": ("build", "notes", "--encoder", "wrong.py:VALUE"),
    "analyzer": ("--plugin", "wrong.py:VALUE", "build", "notes", "--index", "bm25-odd"),
    "reranker": ("search", "notes", "zz", "--reranker", "wrong.py:VALUE"),
    "method": ("ask", "wrong.py:VALUE", "who?", "--llm", "scripted:notes.txt"),
    "backend": ("ask", "direct", "who?", "--llm", "wrong.py:VALUE"),
    "metric": ("eval", "answers", "notes.txt", "--questions", "sample", "--metrics", "wrong.py:VALUE"),
    "question_format": ("run", "direct", "--questions", "notes.txt", "--format", "wrong.py:VALUE", "--out", "new"),
}


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_a_value_of_another_class_is_told_in_a_line(
    kind: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(file.parent)
    Path("wrong.py").write_text(f"class Other:\n    plugin_kind, name = {kind!r}, 'odd'\n\n\nVALUE = Other()\n")
    Path("notes.txt").write_text('{"id": "1", "text": "a", "answer": "a"}\n')
    idx.build(PASSAGES, name="notes").close()
    assert "wrong.py:VALUE is a Other: " in Command(monkeypatch, capsys)(*ARGUMENTS[kind], status=2)


@pytest.mark.parametrize(("before", "after", "act", "message"), WRONG)
def test_what_breaks_a_contract_is_told_with_its_place(
    file: Path, before: str, after: str, act: Callable[[Path], object], message: str
) -> None:
    assert before in PLUG_INS
    file.write_text(PLUG_INS.replace(before, after))
    with pytest.raises((AssertionError, InputError), match=message):
        act(file)


def test_names_of_idx_and_other_devices_are_refused(file: Path) -> None:
    file.write_text(PLUG_INS.replace('name="letters"', 'name="minilm"').replace('name="plain"', 'name="ivf"'))
    with pytest.raises(InputError, match="is called 'minilm', as another encoder or an index is: give it another name"):
        name_encoder(f"{file}:ENCODER")
    with pytest.raises(InputError, match="is called 'minilm', as the encoder of idx is"):
        encoder_spec("minilm")
    plug(f"{file}:KIND")
    with pytest.raises(InputError, match="is called 'ivf', as the index of idx is"):
        _ = index_ref("notes", "contriever-ivf").kind
    with pytest.raises(UnknownNameError, match="unknown reranker 'shortest'"):
        open_reranker("shortest")


def test_requests_load_no_plug_ins(file: Path) -> None:
    """Code runs only if whoever started the server names it."""
    file.with_name("evil.py").write_text(f"open({str(file.with_name('ran'))!r}, 'w')\n")
    idx.build(PASSAGES, name="notes", device="cpu").close()
    evil = f"{file.with_name('evil.py')}:X"
    with serving(Settings(corpora=("notes",), retrievers=("bm25",), port=0)) as url:
        for fields in ({"retriever": evil}, {"retriever": f"bm25 >> {evil}"}, {"corpus": evil}, {"retriever": f"{evil}-ivf"}):
            answer = search(url, groups=[["gold"]], **fields)
            assert answer.status in (400, 404, 422), answer.body
    for name in (evil, f"bm25+{evil}", f"bm25 >> {evil}"):
        with pytest.raises(idx.IdxError):
            idx.open_searcher("notes", name)
    assert not file.with_name("ran").exists()
