"""Exact search by torch against products in float64, and large products against smaller ones."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from tests.gpu.comparing import failed, sized
from tests.gpu.searches import Case, compare_case, largest_spread, misplaced_ties
from wikidx.indexer.base import NO_ROW, Hits, Stored
from wikidx.runtimes.cli.check_gpu import Difference, fill_random, half_product, largest_difference

_N_TILES = 8
_CASES = {  # on a GPU, and on a CPU
    "one row": (Case(1, 24, 1, 1), Case(1, 24, 1, 1)),
    "an edge": (Case(129, 96, 129, 7), Case(129, 24, 129, 2)),
    "all of a block": (Case(16_385, 384, 16_385, 2), Case(3_000, 96, 100, 64)),
    "many queries": (Case(200_000, 384, 100, 1_024), Case(2_500, 24, 1, 1_024)),
    "wide": (Case(300_000, 768, 100, 2), Case(2_000, 768, 100, 2)),
    "deep": (Case(200_000, 768, 5_000, 64), Case(6_000, 24, 5_000, 7)),
    "long": (Case(2_000_000, 96, 100, 1), Case(20_000, 24, 100, 1)),
    "long, many queries": (Case(2_000_000, 24, 1, 1_024), Case(20_000, 24, 1, 64)),
    **{
        kind: (Case(200_000, 96, 100, 7, kind), Case(2_000, 24, 100, 7, kind))
        for kind in ("ties", "extremes", "missing", "edges", "halves", "shards")
    },
}
_TF32 = """
import sys, torch
from tests.gpu.searches import Case, compare_case
matmul, device, *sizes = torch.backends.cuda.matmul, *sys.argv[1:]
assert matmul.allow_tf32, "TF32 is off before the first search"
for dim in map(int, sizes[1:]):
    found = [*compare_case(Case(int(sizes[0]), dim, 100, 64), "float32", (device,))]
    assert all(difference.passed for difference in found), found
assert not matmul.allow_tf32, "TF32 is on after a search"
print("compared")
"""


def shard_on(device: str) -> str:
    return sized(device, device, "cpu:0")  # "cpu" alone means the search without torch


@pytest.mark.parametrize("stored", ["float16", "float32"])
@pytest.mark.parametrize("case", _CASES)
def test_search(case: str, stored: Stored, device: str) -> None:
    made = sized(device, *_CASES[case])
    assert failed(compare_case(made, stored, (shard_on(device),) * (2 if made.kind == "shards" else 1))) == []


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not several GPUs")
def test_search_on_all_gpus() -> None:
    devices = tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    assert failed(compare_case(Case(200_000, 96, 100, 7, "all GPUs"), "float16", devices)) == []


@pytest.mark.slow  # a process that imports torch
def test_search_where_the_environment_switches_tf32_on(device: str) -> None:
    """As NVIDIA's containers do; torch reads the variable once."""
    sizes = sized(device, ("100000", "24", "768"), ("2000", "24"))
    environment = {**os.environ, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    command = [sys.executable, "-c", _TF32, shard_on(device), *sizes]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert ran.stdout == "compared\n", ran.stderr


def test_products_of_the_size_of_a_tile(device: str) -> None:
    """One product with more than 2^31 terms in a matrix, where cuBLAS has failed (pytorch#17897), is not used, and in tiles is right."""
    n_rows, dim = sized(device, (12_600_000, 768), (50_000, 24))
    if device != "cpu" and torch.cuda.mem_get_info(device)[0] < 2.5 * n_rows * dim + (4 << 30):
        pytest.skip(f"needs {2 * n_rows * dim / 1e9:.0f} GB free on the GPU")
    torch.manual_seed(1)
    rows, queries = fill_random(device, n_rows, dim), fill_random(device, 4, dim)
    scores = torch.cat([half_product(queries, part) for part in torch.split(rows, -(-n_rows // _N_TILES))], dim=1)
    sampled = torch.cat([torch.arange(0, n_rows, max(1, n_rows // 4_096)), torch.arange(n_rows - 256, n_rows)]).to(device)
    exact = queries.double() @ rows[sampled].double().T
    scale = float(queries.float().norm(dim=1).max() * rows[:65_536].float().norm(dim=1).max())
    assert failed([Difference("tiles", float((scores[:, sampled] - exact).abs().max()) / scale, 5e-6)]) == []


EXACT = np.array([[3.0, 5.0, 4.0, -np.inf, 5.0]])


@pytest.mark.parametrize(
    ("rows", "scores", "difference"),
    [
        ([1, 4, 2, 0], [5, 5, 4, 3], 0.0),
        ([1, 4, 2, 0], [5, 5, 4, 3.5], 0.25),  # a score is off
        ([1, 4, 0, 2], [5, 5, 3, 4], 0.5),  # in another order
        ([1, 1, 4, 2], [5, 5, 5, 4], np.inf),  # a row twice
        ([1, 4, 2, 3], [5, 5, 4, 3], np.inf),  # a row without a vector
        ([1, 4, 2, NO_ROW], [5, 5, 4, -np.inf], np.inf),  # too few
    ],
)
def test_differences_of_a_search(rows: list[int], scores: list[float], difference: float) -> None:
    hits = Hits(np.array([rows]), np.array([scores], dtype=np.float32))
    assert largest_difference(hits, EXACT, np.array([2.0])) == difference


def test_ties_are_by_row_and_equal_vectors_score_equally() -> None:
    right, wrong = (Hits(np.array([rows]), np.array([[5, 5, 4]], dtype=np.float32)) for rows in ([1, 4, 2], [4, 1, 2]))
    assert (misplaced_ties(right, EXACT), misplaced_ties(wrong, EXACT)) == (0, 2)
    numbers = np.array([0, 1, 2, 3, 1])
    off = Hits(right.rows, np.array([[5, 4.5, 4]], dtype=np.float32))
    assert (largest_spread(right, numbers), largest_spread(off, numbers)) == (0.0, 0.5)
