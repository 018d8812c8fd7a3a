"""The first commands on a machine, where no kernel has been compiled."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from wikidx.base import compiled
from wikidx.corpora.known import sample
from wikidx.retrievers.opening import open_searcher
from wikidx.runtimes.cli import main

BUILD, SEARCH = ["build", "sample", "--bm25"], ["search", "sample", "Which metal is liquid at room temperature?"]
IN_PYTHON = f"""
import json, math, sys
from contextlib import suppress
from types import SimpleNamespace
from wikidx.base import compiled
from wikidx.runtimes.cli import main

compiled.time = SimpleNamespace(thread_time=lambda: 0.0)  # estimates alone decide, on a slow machine too
for command in ({BUILD}, {SEARCH}):
    sys.argv = ["idx", *command]
    with suppress(SystemExit):
        main()
compiled._interpretation.spent_s = -math.inf  # for many questions
from tests.runtimes.test_first_commands import rankings
print(json.dumps(rankings()))
"""


def rankings() -> list[Any]:
    """Return ids and scores for the sample's questions, alone and in groups of three."""
    questions = [question.question for question in sample.questions()]
    groups = [[question] for question in questions] + [questions[first : first + 3] for first in range(0, 30, 3)]
    found = open_searcher("sample", "bm25").search_groups(groups)
    return [[(hit.passage.id, hit.score, len(hit.provenance)) for hit in ranking] for ranking in found]


def test_a_small_corpus_is_built_and_searched_without_compilation_with_the_same_results(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_home, cache = tmp_path / "other", tmp_path / "cache"
    environment = {"IDX_HOME": str(other_home), "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", IN_PYTHON], env=os.environ | environment, capture_output=True, text=True)
    assert (ran.returncode, "compiling" in ran.stderr) == (0, False), ran.stderr
    assert not list(cache.rglob("*.nbi"))

    monkeypatch.setattr(compiled._interpretation, "spent_s", math.inf)
    monkeypatch.setattr(sys, "argv", ["idx", *BUILD])
    with contextlib.suppress(SystemExit):
        main()
    assert json.loads(ran.stdout.splitlines()[-1]) == json.loads(json.dumps(rankings()))
    files = [
        path.relative_to(home) for path in home.rglob("*") if path.parent.name == "bm25" and path.name != "manifest.json"
    ]  # has the time
    assert len(files) > 10
    assert [file for file in files if (home / file).read_bytes() != (other_home / file).read_bytes()] == []
