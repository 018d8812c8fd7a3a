from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.test_smoke import rows


@pytest.mark.exhaustive
@pytest.mark.slow  # half a minute
def test_a_cluster_beside_one_process(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    alone, cluster = rows("ray", "embedding", "--passages", 16, "--range-rows", 4, "--nodes", 1, folder=tmp_path)
    assert (alone["nodes"], cluster["nodes"]) == ("this process", "1")
    assert cluster["same bytes"] == "yes"
    assert 0 < cluster["start s"] < cluster["seconds"]
