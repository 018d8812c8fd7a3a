"""Comparison of two commits: the table, and a whole round of a checkout against itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.commits.__main__ import table
from tests.conftest import ROOT


def test_ratios_are_of_the_same_round() -> None:
    (row,) = table({"work": {"before": [10.0, 20.0, 40.0], "now": [20.0, 10.0, 30.0]}})
    assert row == {
        "workload": "work",
        "before, best /s": 40,
        "now, best /s": 30,
        "ratio": 0.75,
        "least": 0.5,
        "largest": 2,
        "of the best": 0.75,
    }


@pytest.mark.slow  # starts some twenty processes
def test_a_checkout_beside_itself(shared_data: Path, tmp_path: Path) -> None:
    passages = [{"id": str(n), "title": "t", "text": f"some text about {n % 7}"} for n in range(300)]
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    command = ["benchmarks.commits", str(ROOT), "--rounds", "1", "--seconds", "0.05", "--passages", str(tmp_path / "some.jsonl")]
    subprocess.run([sys.executable, "-m", *command, "--json", str(tmp_path / "out.json")], cwd=ROOT, check=True)
    rows = json.loads((tmp_path / "out.json").read_bytes())["rows"]
    assert len(rows) == 16
    assert all(row["before, best /s"] > 0 and row["now, best /s"] > 0 for row in rows)
