from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.embed import real_passages
from tests.benchmarks.test_smoke import rows


def test_beside_sentence_transformers(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the extra 'bench'")
    (figures,) = rows("embed", "--passages", 12, "--rounds", 1, folder=tmp_path)
    assert figures["passages"] == 12
    assert figures["max difference"] <= 5e-5
    assert 0 < figures["overhead %"] < 100
    assert figures["ratio"] == pytest.approx(figures["idx passages/s"] / figures["sentence-transformers passages/s"])


def test_more_passages_than_there_are_real_ones_are_joined_of_them(shared_data: Path) -> None:
    n_real = len(real_passages(33_888))
    assert n_real == 33_888
    assert len({passage.text for passage in real_passages(40_000)}) == 40_000
    assert np.mean([len(passage.text.split()) for passage in real_passages(1000)]) > 80
