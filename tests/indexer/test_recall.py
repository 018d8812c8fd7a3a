from __future__ import annotations

import numpy as np
import pytest

from wikidx.base.machine.fit import ON_CPU
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParam, SearchParams, Vectors
from wikidx.indexer.recall import measure_settings, recall, settings


def hits(rows: list[list[int]]) -> Hits:
    return Hits(np.array(rows), np.zeros(np.shape(rows), dtype=np.float32))


@pytest.mark.parametrize(("k", "expected"), [(1, 0.5), (2, 0.75), (3, 0.8)])
def test_recall_is_the_share_of_the_exact_rows(k: int, expected: float) -> None:
    exact = hits([[1, 2, 3], [4, 5, -1]])
    assert recall(hits([[1, 3, 2], [5, 4, -1]]), exact, k) == pytest.approx({1: 0.5, 2: 0.75, 3: 1.0}[k])
    assert recall(hits([[1, 3, 9], [5, 4, 7]]), exact, k) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [DEFAULT_PARAMS]),
        ({"nprobe": SearchParam(3, 10), "refine": SearchParam(4, 1000)}, [SearchParams(nprobe=n) for n in (1, 2, 3, 4, 8)]),
        ({"ef_search": SearchParam(128, 100)}, [SearchParams(ef_search=n) for n in (16, 32, 64, 128)]),
        ({"refine": SearchParam(2, 1000)}, [SearchParams(refine=n) for n in (0, 1, 2, 4, 8, 16)]),
    ],
)
def test_the_parameter_is_swept_by_powers_of_two(parameters: dict[str, SearchParam], expected: list[SearchParams]) -> None:
    assert list(settings(parameters)) == expected


class OneMoreRow:
    """Finds, with nprobe n, the first n rows that exact search finds."""

    dim = 2
    placement = ON_CPU
    parameters = {"nprobe": SearchParam(2, 4)}

    def __len__(self) -> int:
        return 4

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        rows = np.full((len(vectors), k), -1)
        rows[:, : params.nprobe or 2] = np.arange(k)[: params.nprobe or 2]
        return hits(rows.tolist())


def test_each_depth_is_what_a_search_for_so_many_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.recall._MIN_S", 0.0)

    class BetterWithDepth(OneMoreRow):
        def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
            return hits([list(range(k)) if k > 1 else [9]] * len(vectors))

    exact = hits([list(range(10))] * 3)
    (first, *_) = measure_settings(BetterWithDepth(), np.zeros((3, 2), dtype=np.float32), exact)
    assert first["recall"] == {"1": 0.0, "10": 1.0}


def test_every_setting_has_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.recall._MIN_S", 0.0)
    points = list(measure_settings(OneMoreRow(), np.zeros((3, 2), dtype=np.float32), hits([[0, 1, 2, 3]] * 3)))
    assert [(point["nprobe"], point["recall"]) for point in points] == [(n, {"1": 1.0}) for n in (1, 2, 4)]
    assert all(point["queries_per_s"] > 0 for point in points)
