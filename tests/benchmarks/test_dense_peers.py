"""The measurement of peers of dense search: graphs beside exact search, on little data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dense_peers import recall
from tests.conftest import ROOT
from wikidx.indexer.base import Hits


def test_recall_is_the_share_of_the_exact_rows() -> None:
    exact, found = (Hits(np.array(rows), np.zeros((2, 2), dtype=np.float32)) for rows in ([[1, 2], [3, 4]], [[2, 9], [4, 3]]))
    assert recall(found, exact) == 0.75


@pytest.mark.slow  # twenty seconds
def test_graphs_find_nearly_what_exact_search_finds(tmp_path: Path) -> None:
    for package, extra in (("hnswlib", "bench"), ("usearch", "bench"), ("faiss", "dense")):
        pytest.importorskip(package, reason=f"needs the extra '{extra}'")
    options = [
        "--vectors",
        3000,
        "--threads",
        1,
        "--rounds",
        1,
        "--seconds",
        0.05,
        "--k",
        10,
        "--work",
        tmp_path,
        "--json",
        tmp_path / "out.json",
    ]
    command = [sys.executable, "-m", "benchmarks.dense_peers", *map(str, options), "--engines", "exact", "faiss", "hnswlib", "usearch"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = {row["engine"]: row for row in json.loads((tmp_path / "out.json").read_bytes())["rows"]}
    assert rows["exact"]["recall"] == 1
    assert rows["faiss"]["recall"] > 0.999  # equal scores may be in another order
    assert all(0.9 < rows[engine]["recall"] <= 1 for engine in ("hnswlib", "usearch"))
    assert all(row["p50 ms"] > 0 and row["index MB"] > 0.3 for row in rows.values())
