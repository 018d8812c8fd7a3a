"""Output of ``--help``, and shell completion."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.idx_line import parse
from tests.runtimes.command_line import Command
from wikidx.corpora import CORPORA
from wikidx.corpora.passage import Passage
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.build import build_index
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.runtimes.cli.commands import COMMANDS, EXAMPLES, command_of
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.training import find_builder

PARSED = {path: command_of(path) for path in COMMANDS}


def test_the_list_says_what_each_command_says_of_itself(idx: Command) -> None:
    for path, (_, about) in COMMANDS.items():
        *above, name = path.split()
        assert re.search(rf"^  {name} +{re.escape(about)}$", idx(*above, "--help"), re.MULTILINE)
        assert PARSED[path].help.startswith(about.rstrip("."))


def test_every_command_has_examples() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_end_the_help_and_can_be_parsed(idx: Command, name: str) -> None:
    shown = idx(*name.split(), "--help").rpartition("Examples:\n")[2].splitlines()
    assert [line.strip() for line in shown] == list(EXAMPLES[name])
    for example in EXAMPLES[name]:
        assert example.startswith(f"idx {name}")
        parse(shlex.split(example)[1:])


@pytest.mark.parametrize("wrong", ["search sample fox --dept 3", "search", "serch sample fox", "build sample --limit many"])
def test_a_wrong_line_is_not_parsed(wrong: str) -> None:
    with pytest.raises(AssertionError, match="idx"):
        parse(shlex.split(wrong))


def completed(idx: Command, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Ask for completions as the script does that ``idx --show-completion bash`` prints."""
    monkeypatch.setenv("_IDX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(f"{line}.".split()) - 1))
    return idx().split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("idx bu", ["build"]),
        ("idx build ", [*CORPORA]),
        ("idx build wiki", ["wiki2018", "wiki2020"]),
        ("idx build passages.js", []),  # the shell offers files then
        ("idx build sample --encoder contr", [name for name in ENCODERS if name.startswith("contr")]),
        ("idx build sample --index ", [*VECTOR_INDEXES]),
        ("idx search ", ["sample"]),
        ("idx search sample fox --retriever ", ["bm25"]),
        ("idx search sample fox -r minilm+", ["minilm+bm25"]),
        ("idx search sample fox -r bm25+", []),
        ("idx search sample fox --merge ", ["max", "sum", "rrf", "interleave"]),
        ("idx search sample fox --rerank c", ["cross-encoder"]),
        ("idx serve sample -r b", ["bm25"]),
        ("idx serve -r ", ["bm25"]),
        ("idx ask ", [*METHODS]),
        ("idx run r", [name for name in METHODS if name.startswith("r")]),
        ("idx train-data ", ["ra_isf", "self_reasoning"]),
        ("idx ask rag who? --corpus ", ["sample"]),
        ("idx eval retrieval --corpus sample -r ", ["bm25"]),
        ("idx import embeddings FILE --encoder e5", ["e5"]),
        ("idx remove sample --index ", ["bm25"]),
    ],
)
def test_names_are_completed(idx: Command, monkeypatch: pytest.MonkeyPatch, sample_home: Path, line: str, expected: list[str]) -> None:
    assert completed(idx, monkeypatch, line) == expected


def test_the_script_for_a_shell_asks_this_command(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # tests may be run from another one
    script = idx("--show-completion", "bash")
    assert "_IDX_COMPLETE=complete_bash" in script
    assert "-F _idx_completion idx" in script


def test_methods_are_listed_and_explained(idx: Command) -> None:
    assert [line.split()[0] for line in idx("ask").splitlines()] == [*METHODS]
    assert idx("ask", "rag").startswith("rag: retrieve with the question")


def test_only_the_named_corpus_has_its_indexes_completed(idx: Command, monkeypatch: pytest.MonkeyPatch, build: Any) -> None:  # noqa: ANN401
    build_index("with", "bm25", build([Passage("1", "Fox", "a den")], "with"))
    build([Passage("1", "Fox", "a den")], "without")
    for line, expected in (("search with fox -r ", ["bm25"]), ("search without fox -r ", []), ("eval retrieval --corpus without -r ", [])):
        assert completed(idx, monkeypatch, f"idx {line}") == expected


def test_methods_with_training_data_are_listed(idx: Command) -> None:
    assert [line.split()[0] for line in idx("train-data").splitlines()] == ["ra_isf", "self_reasoning"]


def test_methods_are_listed_for_programs(idx: Command) -> None:
    for command, methods in (("ask", map(find_method, METHODS)), ("train-data", map(find_builder, ("ra_isf", "self_reasoning")))):
        expected = [{"method": one.name, "summary": one.summary, "source": one.source} for one in methods]
        assert json.loads(idx(command, "--json")) == {"methods": expected}
