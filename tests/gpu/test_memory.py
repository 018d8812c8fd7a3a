"""Memory that is refused: one line instead of a traceback, and the next call works."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from benchmarks.gpu.made import cross_encoder_in, encoder_in, made_pairs, save_bert
from tests.gpu.comparing import BASE, SMALL, sized
from wikidx.base.errors import IdxError
from wikidx.base.machine.fit import Placement
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.indexes.exact import gpu as exact_gpu
from wikidx.indexer.indexes.exact.index import ExactIndex

_TAKEN_BYTES = (1 << 30, 32 << 20)  # on a GPU at a time, as long as they can be had

Compute = Callable[[], NDArray[np.float32]]


def searching(device: str, folder: Path) -> tuple[Compute, Compute]:
    """Return a small call, which makes what is made once, and the call that needs memory."""
    n_rows, dim, n_queries = sized(device, (200_000, 64, 1_024), (1_000, 8, 7))
    generator = np.random.default_rng(8)
    vectors = generator.standard_normal((n_rows, dim), dtype=np.float32).astype(np.float16)
    queries = generator.standard_normal((n_queries, dim), dtype=np.float32)
    index = ExactIndex(vectors, placement=Placement((sized(device, device, "cpu:0"),), "compared"))
    return lambda: index.search(queries[:1], 10).scores, lambda: index.search(queries, 10).scores


def encoding(device: str, folder: Path) -> tuple[Compute, Compute]:
    encoder = TransformerEncoder(encoder_in(save_bert(folder / "bert", **sized(device, BASE, SMALL))), device, "float32")
    long = ["the river " * 300] * sized(device, 64, 4)
    return lambda: encoder.encode_queries(["first"]), lambda: encoder.encode_queries(long)


def reranking(device: str, folder: Path) -> tuple[Compute, Compute]:
    reranker = cross_encoder_in(save_bert(folder / "reranker", n_labels=1, **sized(device, BASE, SMALL)), device)
    queries, passages = made_pairs(1, sized(device, 64, 4), 400)
    first = [passages[0]._replace(text="first")]
    return lambda: reranker.score(queries[:1], first), lambda: reranker.score(queries, passages)


@pytest.mark.parametrize("work", [searching, encoding, reranking])
def test_refused_memory_is_one_line_and_the_next_call_works(
    work: Callable[[str, Path], tuple[Compute, Compute]], device: str, tmp_path: Path
) -> None:
    first, compute = work(device, tmp_path)
    first()
    with sized(device, take_memory, inject_refusals)(device), pytest.raises(IdxError, match="too little memory") as raised:
        compute()
    assert "\n" not in str(raised.value)
    found = compute()
    assert np.isfinite(found).all()
    assert found.any()


def test_an_error_of_torch_that_gets_through_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_gpu, "_gpu_errors", lambda device: contextlib.nullcontext())
    first, compute = searching("cpu", tmp_path)
    first()
    with inject_refusals("cpu"), pytest.raises(torch.OutOfMemoryError):
        compute()


@contextlib.contextmanager
def take_memory(device: str) -> Iterator[None]:
    """Leave almost no memory on a GPU."""
    torch.cuda.empty_cache()
    taken = list[torch.Tensor]()
    for n_bytes in _TAKEN_BYTES:
        with contextlib.suppress(torch.OutOfMemoryError):  # not all that is free can be had
            while torch.cuda.mem_get_info(device)[0] >= n_bytes:
                taken.append(torch.empty(n_bytes, dtype=torch.uint8, device=device))
    try:
        yield
    finally:
        taken.clear()
        torch.cuda.empty_cache()


@contextlib.contextmanager
def inject_refusals(device: str) -> Iterator[None]:
    """Make torch's matrix products and linear layers fail as on a GPU without memory."""

    def refuse(*arguments: object, **named: object) -> NoReturn:
        raise torch.OutOfMemoryError("out of memory: injected by a test")

    linear: Any = functional.linear
    setattr(functional, "linear", refuse)  # noqa: B010 - its type is another
    setattr(torch.Tensor, "__matmul__", refuse)  # noqa: B010
    try:
        yield
    finally:
        setattr(functional, "linear", linear)  # noqa: B010
        delattr(torch.Tensor, "__matmul__")  # that of the base class is left


def test_all_memory_of_a_gpu_is_taken_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's answers replaced: of 2.5 GiB that are free, 100 MiB cannot be had."""
    free, empty, taken = 5 << 29, torch.empty, list[int]()

    def take(size: int, *, dtype: object, device: str) -> Any:  # noqa: ANN401 - a tensor
        if sum(taken) + size > free - (100 << 20):
            raise torch.OutOfMemoryError("CUDA out of memory")
        taken.append(size)
        return empty(0, dtype=torch.uint8)

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - sum(taken), 1 << 33))
    monkeypatch.setattr(torch, "empty", take)
    with take_memory("cuda:0"):
        assert 100 << 20 <= free - sum(taken) < 132 << 20
