"""Errors on unknown names suggest similar ones."""

from __future__ import annotations

import time

import pytest

from tests.conftest import read_rows
from wikidx.base.registry import suggest, unknown_name_error


def test_near_names_are_named() -> None:
    message = "unknown corpus 'smaple': did you mean 'sample'? known: sample, wiki2018"
    assert str(unknown_name_error("corpus", "smaple", ["wiki2018", "sample"])) == message
    assert str(unknown_name_error("corpus", "x", [])) == "unknown corpus 'x': known: none"


@pytest.mark.parametrize(("name", "near"), read_rows("base/near_names.jsonl"))
def test_only_near_names_are_suggested(name: str, near: str) -> None:
    known = ["bm25", "minilm", "nomic", "notes", "wiki2018", "contriever", "refine"]
    assert suggest(name, known) == (f"did you mean '{near}'? " if near else "")


def test_names_that_are_built_come_first_and_few_others_follow() -> None:
    message = str(unknown_name_error("retriever", "nosuch", [*"edcba", "bm25"], ["bm25", "mine"]))
    assert message == "unknown retriever 'nosuch': known: bm25, mine (built here), a, b, c, d, …"
    assert str(unknown_name_error("retriever", "nine", ["a"], ["mine"])).endswith("did you mean 'mine'? known: mine (built here), a")


def test_odd_names_are_shown_on_one_line_and_cut() -> None:
    assert str(unknown_name_error("corpus", "a\nb", [])) == r"unknown corpus 'a\nb': known: none"
    started = time.process_time()
    assert str(unknown_name_error("corpus", "sample" * 1_000_000, ["sample"])) == f"unknown corpus '{('sample' * 14)[:80]}': known: sample"
    assert time.process_time() - started < 1  # several, if all of it is compared
