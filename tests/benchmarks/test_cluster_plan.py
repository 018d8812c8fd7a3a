"""The plan's arithmetic, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cluster_plan import Figures, build_estimate, main, serving_estimate

SMALL = Figures(node_gb=100, usable=0.5, node_cores=4, replicas=2, depth=10, gpus=4, gpu_passages_per_s=1000)


def test_building_grows_with_the_corpus() -> None:
    found = build_estimate(36_000_000, SMALL)
    assert found["vectors GB"] == pytest.approx(55.296)  # 36 M of 768 components of two bytes
    assert found["store GB"] == pytest.approx(10.44)
    assert found["GPU h (given 1,000 passages/s each)"] == pytest.approx(10)
    assert found["h on 4 GPUs"] == pytest.approx(2.5)


def test_serving_cuts_an_index_by_what_a_node_holds() -> None:
    bm25, exact, ivfpq = serving_estimate(100_000_000, SMALL)
    assert [row["index"] for row in (bm25, exact, ivfpq)] == ["bm25", "exact", "ivfpq"]
    assert (exact["shards"], exact["nodes"]) == (4, 8)  # 153.6 GB, 50 GB a node, two of each
    assert exact["bytes/question"] == 4 * (768 * 4 + 10 * 12)
    assert exact["questions/s"] == pytest.approx(1307 * 100_000 * (4 / 2) / 25_000_000)  # whatever the replicas
    assert exact["one question ms"] == pytest.approx(25_000_000 * 1536 / 46e9 * 1e3)
    assert (bm25["shards"], bm25["nodes"], bm25["bytes/question"]) == (1, 2, 0)
    assert bm25["one question ms"] == pytest.approx(100_000_000 / (816.9 * 2_500_000) * 1e3)
    assert ivfpq["questions/s"] == pytest.approx(846.9 / 10 * (4 / 2))


def test_what_is_assumed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--sizes", "1000000"])
    said = capsys.readouterr().out
    assert "GPU h (assumed 5,000 passages/s each)" in said
    assert said.count("of which are assumed gpu_passages_per_s 5000, ") == 2
    main(["--sizes", "1000000", "--gpu-passages-per-s", "3000"])
    said = capsys.readouterr().out
    assert "GPU h (given 3,000 passages/s each)" in said
    assert "of which are assumed node_scan_rate" in said


def test_every_figure_is_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--sizes", "1000000", "--gpus", "2", "--replicas", "3", "--json", str(tmp_path / "out.json")])
    said = capsys.readouterr().out
    assert "h on 2 GPUs" in said
    assert "gpus 2, replicas 3" in said
    assert [row["nodes"] for row in json.loads((tmp_path / "out.json").read_bytes())["rows"]] == [3, 3, 3]
