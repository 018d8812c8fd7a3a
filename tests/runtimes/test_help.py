"""Output of ``--help``, lists of methods, and shell completion."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from tests.idx_line import parse
from tests.runtimes.command_line import Command
from wikidx.corpora import CORPORA
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.runtimes.cli.commands import COMMANDS, command_of
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.training import find_builder

PARSED = {path: command_of(path) for path in COMMANDS}
TRAINED = ("ra_isf", "self_reasoning")


def test_each_command_is_listed_and_explained_with_examples_that_can_be_parsed(idx: Command) -> None:
    lists = {above: idx(*above, "--help") for above in {tuple(path.split()[:-1]) for path in COMMANDS}}
    for path, (_, about) in COMMANDS.items():
        *above, name = path.split()
        assert re.search(rf"^  {name} +{re.escape(about)}$", lists[*above], re.MULTILINE)
        assert PARSED[path].help.startswith(about.rstrip("."))
        assert "Examples" not in PARSED[path].help
        shown = idx(*path.split(), "--help").rpartition("Examples:\n")[2].splitlines()
        assert shown
        for example in shown:
            assert example.strip().startswith(f"idx {path}")
            parse(shlex.split(example)[1:])


@pytest.mark.parametrize("wrong", ["search sample fox --dept 3", "search", "serch sample fox", "build sample --limit many"])
def test_a_wrong_line_is_not_parsed(wrong: str) -> None:
    with pytest.raises(AssertionError, match="idx"):
        parse(shlex.split(wrong))


def completed(idx: Command, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Ask for completions as the script does that ``idx --show-completion bash`` prints."""
    variables = {"_IDX_COMPLETE": "complete_bash", "COMP_WORDS": f"idx {line}", "COMP_CWORD": str(len(f"{line}.".split()))}
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return idx().split()


@pytest.mark.usefixtures("sample_home")
def test_names_are_completed(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for line, expected in (
        ("bu", ["build"]),
        ("build ", [*CORPORA]),
        ("build wiki", ["wiki2018", "wiki2020"]),
        ("build passages.js", []),  # the shell offers files then
        ("build sample --encoder contr", [name for name in ENCODERS if name.startswith("contr")]),
        ("build sample --index ", [*VECTOR_INDEXES]),
        ("search ", ["sample"]),
        ("search sample fox --retriever ", ["bm25"]),
        ("search sample fox -r minilm+", ["minilm+bm25"]),
        ("search sample fox -r bm25+", []),
        ("search sample fox --merge ", ["max", "sum", "rrf", "interleave"]),
        ("search sample fox --rerank c", ["cross-encoder"]),
        ("serve sample -r b", ["bm25"]),
        ("serve -r ", ["bm25"]),
        ("ask ", [*METHODS]),
        ("run r", [name for name in METHODS if name.startswith("r")]),
        ("train-data ", [*TRAINED]),
        ("ask rag who? --corpus ", ["sample"]),
        ("eval retrieval --corpus sample -r ", ["bm25"]),
        ("import embeddings FILE --encoder e5", ["e5"]),
        ("remove sample --index ", ["bm25"]),
    ):
        assert completed(idx, monkeypatch, line) == expected, line


@pytest.mark.usefixtures("animals")
def test_only_the_named_corpus_has_its_indexes_completed(
    idx: Command, monkeypatch: pytest.MonkeyPatch, build: Callable[..., PassageStore]
) -> None:
    build([Passage("1", "Fox", "a den")], "without")
    for line, expected in (
        ("search animals fox -r ", ["bm25"]),
        ("search without fox -r ", []),
        ("eval retrieval --corpus without -r ", []),
    ):
        assert completed(idx, monkeypatch, line) == expected, line


def test_the_script_for_a_shell_asks_this_command(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # tests may be run from another one
    script = idx("--show-completion", "bash")
    assert "_IDX_COMPLETE=complete_bash" in script
    assert "-F _idx_completion idx" in script


def test_methods_are_listed(idx: Command) -> None:
    for command, methods in (("ask", [find_method(name) for name in METHODS]), ("train-data", [find_builder(name) for name in TRAINED])):
        assert [line.split()[0] for line in idx(command).splitlines()] == [one.name for one in methods]
        expected = [{"method": one.name, "summary": one.summary, "source": one.source} for one in methods]
        assert idx.json(command) == {"methods": expected}
