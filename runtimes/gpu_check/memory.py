"""Memory that is refused: one line instead of a traceback, and the next call works."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import IdxError
from wikidx.base.machine.fit import Placement
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.indexes.exact.index import ExactIndex

from .models import cross_encoder_in, made_pairs
from .networks import encoder_in, save_bert
from .task import Task

_TAKEN_BYTES = (1 << 30, 32 << 20)  # on a GPU at a time, as long as they can be had

Compute = Callable[[], NDArray[np.float32]]


def check_refusals(task: Task, *, n_rows: int, dim: int, n_queries: int, n_texts: int, sizes: Mapping[str, int]) -> None:
    """Refuse memory to a search, an encoder and a reranker. On a GPU all that is free is taken before; on a CPU, the error is injected."""
    generator = np.random.default_rng(8)
    vectors = generator.standard_normal((n_rows, dim), dtype=np.float32).astype(np.float16)
    queries = generator.standard_normal((n_queries, dim), dtype=np.float32)
    index = ExactIndex(vectors, placement=Placement(("cuda:0" if task.on_gpu else "cpu:0",), "checked"))
    index.search(queries[:1], 10)
    _check(task, "exact search", lambda: index.search(queries, 10).scores)
    encoder = TransformerEncoder(encoder_in(save_bert(task.folder / "bert", **sizes)), task.device, "float32")
    encoder.encode_queries(["first"])
    long = ["the river " * 300] * n_texts
    _check(task, "encoding of queries", lambda: encoder.encode_queries(long))
    reranker = cross_encoder_in(save_bert(task.folder / "reranker", n_labels=1, **sizes), task.device)
    few, passages = made_pairs(1, n_texts, 400)
    reranker.score(few[:1], [passages[0]._replace(text="first")])
    _check(task, "reranking", lambda: reranker.score(few, passages))


def _check(task: Task, case: str, compute: Compute) -> None:
    """Compute without memory, and then with it. The errors are 0 or 1."""
    case = case if task.on_gpu else f"{case}, refusal injected"
    message = None
    with take_memory(task.device) if task.on_gpu else _inject_refusals():
        try:
            compute()
        except IdxError as error:
            message = str(error)
    is_right = message is not None and "too little memory" in message and "\n" not in message
    task.check(f"{case}: one line says that memory is too little (0: yes)", float(not is_right), 0)
    if message is not None:
        task.record(case, {"message": message})
    first = compute()
    task.check(f"{case}: works again, with finite results (0: yes)", float(not (np.isfinite(first).all() and first.any())), 0)


@contextlib.contextmanager
def take_memory(device: str) -> Iterator[None]:
    """Leave almost no memory on a GPU."""
    import torch

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
def _inject_refusals() -> Iterator[None]:
    """Make torch's matrix products and linear layers fail as on a GPU without memory."""
    import torch
    from torch.nn import functional

    def refuse(*arguments: object, **named: object) -> NoReturn:
        raise torch.OutOfMemoryError("out of memory: injected by idx check")

    linear: Any = functional.linear
    setattr(functional, "linear", refuse)  # noqa: B010 - its type is another
    setattr(torch.Tensor, "__matmul__", refuse)  # noqa: B010
    try:
        yield
    finally:
        setattr(functional, "linear", linear)  # noqa: B010
        delattr(torch.Tensor, "__matmul__")  # that of the base class is left
