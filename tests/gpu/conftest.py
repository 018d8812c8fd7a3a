"""The device of a comparison: a CPU at small sizes, as CI has it, and a GPU, for ``pytest -m gpu``."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'dense'")

from wikidx.base.machine.devices import count_gpus

_LIMIT_S = 180.0  # for a test on a GPU, which may hang
_GPU = (pytest.mark.gpu, pytest.mark.timeout(_LIMIT_S), pytest.mark.skipif(count_gpus() == 0, reason="no GPU that torch can use"))


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=_GPU)])
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
