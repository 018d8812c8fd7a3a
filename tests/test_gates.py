"""Gates on size that no linter holds: functions of at most 50 lines, files of at most 400."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 400
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "handler"}

FILES = sorted(
    file for folder in ("corpora", "indexer", "retrievers", "runtimes", "benchmarks", "tests") for file in (ROOT / folder).rglob("*.py")
)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_file_and_functions_are_small(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_FILE_LINES
    long = {
        f.name: f.end_lineno - f.lineno + 1
        for f in functions(ast.parse(source))
        if f.end_lineno and f.end_lineno - f.lineno >= MAX_FUNCTION_LINES
    }
    assert not long


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert not [file for file in FILES if BANNED_NAMES & {file.stem, file.parent.name}]
