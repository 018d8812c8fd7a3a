"""Kernel of Triton that lists the keys of scores above a threshold. The scores are read once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from wikidx.indexer.indexes.keys import LARGEST_ROW

_COLUMNS = 2_048  # scores of a query per program: the fastest of 1,024 to 8,192 on an H100, with 4, 8 or 16 warps
_WARPS = 4


def select(scores: torch.Tensor, thresholds: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor], first_row: int) -> None:
    """Add the scores above the thresholds to those found, a ``gpu_best.Found``; see ``gpu_best.Select``."""
    (n_queries, n_columns), (keys, counts) = scores.shape, found
    grid = (triton.cdiv(n_columns, _COLUMNS), n_queries)
    last = LARGEST_ROW - first_row
    with torch.cuda.device_of(scores):  # type: ignore[no-untyped-call]
        _select[grid](
            scores, thresholds, keys, counts, n_columns, scores.stride(0), last, keys.shape[1], COLUMNS=_COLUMNS, num_warps=_WARPS
        )


@triton.jit(do_not_specialize=["last", "room"])
def _select(  # type: ignore[no-untyped-def]  # noqa: ANN202, PLR0913
    scores,  # noqa: ANN001
    thresholds,  # noqa: ANN001
    keys,  # noqa: ANN001
    counts,  # noqa: ANN001
    n_columns,  # noqa: ANN001
    stride,  # noqa: ANN001
    last,  # noqa: ANN001
    room,  # noqa: ANN001
    COLUMNS: tl.constexpr,  # noqa: N803
):
    """List the scores of one query in some columns, with keys as those of ``gpu_best.encode_keys``."""
    query = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    values = tl.load(scores + query * stride + columns, mask=columns < n_columns, other=float("-inf"))
    is_found = values > tl.load(thresholds + query)
    n_found = tl.sum(is_found.to(tl.int32))
    if n_found > 0:  # in few programs
        places = tl.atomic_add(counts + query, n_found) + tl.cumsum(is_found.to(tl.int32), 0) - 1
        bits = (values + 0.0).to(tl.int32, bitcast=True)  # -0 becomes 0
        ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
        tl.store(keys + query * room + places, (ordered << 32) | (last - columns.to(tl.int64)), mask=is_found & (places < room))
