"""Checks that no linter provides: sizes, names, maps of packages, and use of private names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 400
PACKAGES = ("wikidx/base", "corpora", "indexer", "retrievers", "runtimes")
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "handler"}

FILES = sorted(file for folder in (*PACKAGES, "benchmarks", "tests") for file in (ROOT / folder).rglob("*.py"))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def too_long(file: Path) -> Iterator[str]:
    source, name = file.read_text(encoding="utf-8"), file.relative_to(ROOT)
    if (n_lines := source.count("\n")) > MAX_FILE_LINES:
        yield f"{name}: {n_lines} lines"
    for function in functions(ast.parse(source)):
        if function.end_lineno and (n_lines := function.end_lineno - function.lineno + 1) > MAX_FUNCTION_LINES:
            yield f"{name}: {function.name} has {n_lines} lines"


def test_files_and_functions_are_small() -> None:
    assert not [line for file in FILES for line in too_long(file)]


def test_docstrings_begin_with_a_noun_phrase_or_a_verb() -> None:
    questions = re.compile(r"(What|Where|How|Which|Whether|When|Who|Whose|Why|That)\b")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = list[str]()
    for file in FILES:
        nodes = (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, documented))
        found += [f"{file.relative_to(ROOT)}: {text[:60]}" for node in nodes if questions.match(text := ast.get_docstring(node) or "")]
    assert not found


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert not [file for file in FILES if BANNED_NAMES & {file.stem, file.parent.name}]


def test_the_map_of_each_package_names_all_that_is_in_it() -> None:
    unnamed = dict[str, list[str]]()
    for map_ in (file for package in PACKAGES for file in (ROOT / package).rglob("__init__.py")):
        told = ast.get_docstring(ast.parse(map_.read_text(encoding="utf-8"))) or ""
        inside = {file.stem for file in map_.parent.glob("*.py")} | {file.parent.name for file in map_.parent.glob("*/__init__.py")}
        unnamed[str(map_)] = [name for name in inside - {"__init__"} if not re.search(rf"\b{name}\b", told)]
    assert not {map_: names for map_, names in unnamed.items() if names}


def test_no_private_name_is_imported() -> None:
    private = dict[str, list[str]]()
    for file in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        imports = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
        ours = [node for node in imports if node.level or (node.module or "").partition(".")[0] == "wikidx"]
        private[str(file)] = [name.name for node in ours for name in node.names if re.match("_[^_]", name.name)]
    assert not {file: names for file, names in private.items() if names}
