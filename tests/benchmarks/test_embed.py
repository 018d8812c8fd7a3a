from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.embed import TimedModel, real_passages
from tests.benchmarks.test_smoke import rows
from wikidx.indexer.encoders import contriever
from wikidx.indexer.encoders.model import Model


@pytest.mark.exhaustive
@pytest.mark.slow
def test_beside_sentence_transformers(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the extra 'bench'")
    (figures,) = rows("embed", "--passages", 12, "--rounds", 1, folder=tmp_path)
    assert figures["passages"] == 12
    assert figures["max difference"] <= 5e-5
    assert 0 < figures["overhead %"] < 100
    assert figures["ratio"] == pytest.approx(figures["idx passages/s"] / figures["sentence-transformers passages/s"])


def forward(model: object, batch: object) -> str:
    """Take a while for a batch."""
    time.sleep(0.02)
    return f"vectors of {batch}"


def test_a_models_time_is_that_of_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "__init__", lambda *arguments: None)
    monkeypatch.setattr(Model, "forward", forward)
    model = TimedModel(contriever.SPEC, "cpu", "float32")
    before = time.perf_counter()
    assert [model.forward(batch) for batch in "ab"] == ["vectors of a", "vectors of b"]  # type: ignore[arg-type]
    assert 0.04 <= model.forward_s <= time.perf_counter() - before
    model.reset()
    assert model.forward_s == 0.0


def test_more_passages_than_there_are_real_ones_are_joined_of_them(shared_data: Path) -> None:
    n_real = len(real_passages(33_888))
    assert n_real == 33_888
    assert len({passage.text for passage in real_passages(40_000)}) == 40_000
    assert np.mean([len(passage.text.split()) for passage in real_passages(1000)]) > 80
