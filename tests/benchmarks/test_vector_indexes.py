"""The table of kinds, over few vectors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_kind_is_built_opened_and_asked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.vector_indexes", "--vectors", "3000", "--dim", "32", "--json", str(tmp_path / "out.json")]
    subprocess.run([*command, "--kinds", "int8", "ivf", "ivfpq", "hnsw"], check=True, capture_output=True, timeout=300)
    rows = {row["kind"]: row for row in json.loads((tmp_path / "out.json").read_text())["rows"]}
    assert rows["int8"]["disk MB"] == pytest.approx(3000 * 32 / 1e6, rel=0.02)
    assert rows["ivfpq"]["disk MB"] < rows["int8"]["disk MB"] < rows["ivf"]["disk MB"]
    assert rows["int8"]["recall@10"] > 0.99
    assert 0.6 < min(row["recall@10"] for row in rows.values()) <= 1
    assert all(row["build s"] > 0 and row["peak RSS MB"] > 50 and row["queries/s"] > 0 for row in rows.values())
