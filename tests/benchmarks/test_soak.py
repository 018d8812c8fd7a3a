"""The server under a mixed load for less than a minute leaks no memory, descriptors or threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak import fitted_growth
from tests.conftest import ROOT


def test_growth_is_that_of_the_line() -> None:
    seconds = [0.0, 1.0, 2.0, 4.0]
    assert fitted_growth(seconds, [5.0 + 3.0 * at for at in seconds]) == pytest.approx((12.0, 5.0))
    noise = np.random.default_rng(0).normal(size=200).tolist()
    growth, height = fitted_growth(list(range(200)), [100.0 + one for one in noise])
    assert abs(growth) < 1
    assert height == pytest.approx(100, abs=1)


@pytest.mark.exhaustive
@pytest.mark.slow  # a minute
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, which Linux has")
def test_memory_stays_flat(tmp_path: Path) -> None:
    """BM25 answers thousands of requests meanwhile: a leak of a kilobyte per request would be many megabytes."""
    out = tmp_path / "out.json"
    options = ["--minutes", "0.8", "--warm-up", "0.3", "--retriever", "bm25", "--clients", "4", "--rate", "0", "--every", "0.5"]
    command = [sys.executable, "-m", "benchmarks.soak", *options, "--rebuilds", "4", "--limit", "100", "--json", str(out)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr  # answers, descriptors and threads
    (verdict,) = json.loads(out.read_bytes())["rows"]
    assert verdict["anonymous bytes an answer"] < 1_000
