"""Numba kernels that combine ranked lists; ``fusion`` validates their inputs.

Rows must be below 2 ** 32, and scores finite. Returned lists are sorted by descending float32 score, ties by ascending row. The values of a
row are added in float64, in the order of the target's lists. The result of a target therefore never depends on other targets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.indexes.keys import Keys, encode, keep_largest, lowest_score, row_of, score_of, sort_keys

MAX, SUM, RRF, INTERLEAVE = 0, 1, 2, 3  # rules that combine a row's scores or ranks in several lists

_PRIME = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 divided by the golden ratio; its multiples spread well (Knuth)


class Lists(NamedTuple):
    """L ranked lists, best first: list i has the entries from ``starts[i]`` to before ``ends[i]``; gaps between lists are allowed.

    Attributes:
        rows: int64.
        scores: float32, one per row.
        starts, ends: int64, (L,).
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Targets(NamedTuple):
    """T targets, each a merge of lists: target t merges the lists ``members[starts[t]:starts[t + 1]]``, in that order.

    An entry of the list ``members[m]`` has the value ``factors[m] * (x - offsets[m])``, where x is the entry's score or a function of its
    rank. ``bases[t]`` is added to the combined value of each row.

    Attributes:
        members: int64, numbers of lists.
        starts: int64, (T + 1,).
        factors, offsets: float64, one per member.
        bases: float64, (T,).
    """

    members: NDArray[np.int64]
    starts: NDArray[np.int64]
    factors: NDArray[np.float64]
    offsets: NDArray[np.float64]
    bases: NDArray[np.float64]


class _Table(NamedTuple):
    """Hash table of distinct keys: an occupied slot holds ``base`` plus the key's index in ``keys``.

    The table is never cleared. ``base`` grows from target to target, and a slot with a value below ``base`` counts as free.
    """

    slots: NDArray[np.int64]
    keys: NDArray[Any]


@kernel
def combine(  # noqa: PLR0913
    lists: Lists, targets: Targets, longest: int, rule: int, rank_constant: float, text_key: NDArray[np.uint64], out: Lists
) -> None:
    """Merge the lists of each target; a row in several lists appears once.

    Args:
        lists: input lists.
        targets: the lists of each target.
        longest: largest number of entries in the lists of a target, or more; at least 1.
        rule: MAX keeps a row's highest score, INTERLEAVE its highest 1 / (rank_constant + rank); SUM adds a row's scores, RRF its values
            1 / (rank_constant + rank).
        rank_constant: a number from 0 on.
        text_key: key of each row's text; of rows with equal keys, only the best is kept. Empty: all rows are kept.
        out: one output list for each target; ``ends`` has the maximum ends, and is set to the actual ends.
    """
    n_texts = longest if len(text_key) > 0 else 0
    table, texts = _Table(_new_slots(longest), np.empty(longest, np.int64)), _Table(_new_slots(n_texts), np.empty(n_texts, np.uint64))
    values, keys = np.empty(longest, np.float64), np.empty(longest, np.int64)
    base, text_base = 1, 1
    for t in range(len(targets.starts) - 1):
        n = _add_up(lists, targets, t, rule, rank_constant, table, values, base)
        base += n
        start, end = out.starts[t], out.ends[t]
        n_best = n_written = 0
        while n_written < end - start and n_best < n:  # a single pass, unless equal texts are dropped
            n_best = min(n, max(end - start, 4 * n_best))
            _sort_best(table.keys[:n], values[:n], targets.bases[t], n_best, keys)
            n_written = _write_best(keys[:n_best], text_key, texts, text_base, out.rows[start:end], out.scores[start:end])
            text_base += n_best
        out.ends[t] = start + n_written


@kernel
def _add_up(  # noqa: PLR0913
    lists: Lists, targets: Targets, t: int, rule: int, rank_constant: float, table: _Table, values: NDArray[np.float64], base: int
) -> int:
    """Combine the values of equal rows of a target, and return the number of distinct rows.

    ``table.keys`` and ``values`` receive the rows and their values in the order of first occurrence.
    """
    n = 0
    for m in range(targets.starts[t], targets.starts[t + 1]):
        start, end = lists.starts[targets.members[m]], lists.ends[targets.members[m]]
        factor, offset = targets.factors[m], targets.offsets[m]
        rows, scores = lists.rows[start:end], lists.scores[start:end]
        for p in range(len(rows)):
            x = np.float64(scores[p])
            if rule == RRF or rule == INTERLEAVE:
                x = 1.0 / (rank_constant + 1.0 + np.float64(p))
            value = factor * (x - offset)
            slot = _find_slot(table, rows[p], base)
            i = table.slots[slot] - base
            if i < 0:
                table.slots[slot] = base + n
                table.keys[n], values[n] = rows[p], value
                n += 1
            elif rule == SUM or rule == RRF:
                values[i] += value
            else:
                values[i] = max(values[i], value)
    return n


@kernel
def _new_slots(n: int) -> NDArray[np.int64]:
    """Return empty slots for n distinct keys, at least four for each key, so that probes are short."""
    size = 16
    while size < 4 * n:
        size *= 2
    return np.zeros(size, np.int64)


@kernel
def _find_slot(table: _Table, key: Any, base: int) -> Any:  # noqa: ANN401 - rows, or keys of texts
    """Return the slot of the key, or a free slot for it."""
    mask = np.uint64(len(table.slots) - 1)  # unsigned: numba checks the sign of other indices
    slot = (np.uint64(key) * _PRIME) >> np.uint64(32) & mask
    while table.slots[slot] >= base and table.keys[table.slots[slot] - base] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def _sort_best(rows: NDArray[np.int64], values: NDArray[np.float64], base: float, n_best: int, keys: Keys) -> None:
    """Write the keys of the best rows, ascending, to the beginning of ``keys``, which has room for all rows."""
    n_used, threshold = 0, np.float32(-np.inf)
    for i in range(len(rows)):
        score = np.float32(values[i] + base)
        if score < threshold:
            continue
        if n_used == 2 * n_best:  # most of the other rows are below the threshold
            keep_largest(keys[:n_used], n_best)
            n_used, threshold = n_best, lowest_score(keys[:n_best])
        keys[n_used] = encode(score, rows[i])
        n_used += 1
    if n_best < n_used:
        keep_largest(keys[:n_used], n_best)
    sort_keys(keys[:n_best])


@kernel
def _write_best(  # noqa: PLR0913
    best: Keys,
    text_key: NDArray[np.uint64],
    texts: _Table,
    base: int,
    rows: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> int:
    """Write rows and scores until the list is full, and return their number; of rows with equal texts, only the first is written."""
    n = 0
    for key in best[::-1]:
        if n == len(rows):
            break
        row = row_of(key)
        if len(text_key) > 0:
            slot = _find_slot(texts, text_key[row], base)
            if texts.slots[slot] >= base:
                continue
            texts.slots[slot], texts.keys[n] = base + n, text_key[row]
        rows[n], scores[n] = row, score_of(key)
        n += 1
    return n


@kernel
def find_origins(lists: Lists, members: NDArray[np.int64], starts: NDArray[np.int64], best: Lists) -> tuple[NDArray[Any], ...]:
    """Return where each of the best rows of a target stands in the target's lists, in the order of targets and lists.

    Args:
        lists: the input lists.
        members: numbers of lists.
        starts: target t has the lists ``members[starts[t]:starts[t + 1]]``.
        best: the best rows of each target, without gaps between the lists.

    Returns:
        For each place: the row's number in ``best``, the number of the list, and the row's rank (from 1) and score in it.
    """
    longest, n_most = 1, 0
    for t in range(len(best.starts)):
        size = best.ends[t] - best.starts[t]
        longest, n_most = max(longest, size), n_most + size * (starts[t + 1] - starts[t])
    found, numbers, ranks = np.empty(n_most, np.int64), np.empty(n_most, np.int64), np.empty(n_most, np.int64)
    scores = np.empty(n_most, np.float32)
    slots, base, n = _new_slots(longest), 1, 0
    for t in range(len(best.starts)):
        table = _Table(slots, best.rows[best.starts[t] : best.ends[t]])
        for i in range(len(table.keys)):
            slots[_find_slot(table, table.keys[i], base)] = base + i
        for m in range(starts[t], starts[t + 1]):
            start = lists.starts[members[m]]
            for p in range(start, lists.ends[members[m]]):
                i = slots[_find_slot(table, lists.rows[p], base)] - base
                if i >= 0 and n < n_most:  # more only if a list has a row twice
                    found[n], numbers[n], ranks[n], scores[n] = best.starts[t] + i, members[m], p - start + 1, lists.scores[p]
                    n += 1
        base += len(table.keys)
    return found[:n], numbers[:n], ranks[:n], scores[:n]
