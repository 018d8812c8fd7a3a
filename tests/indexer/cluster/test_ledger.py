"""Who makes which shard on a cluster, and what is counted, whatever is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wikidx.indexer.embedding.cluster.worker import Delivered, Ledger, Loss

SHARDS = [range(0, 10), range(10, 20), range(20, 25)]


def test_shards_are_given_once_and_counted() -> None:
    ledger = Ledger(SHARDS)
    ledger.enter("a", "node 1")
    ledger.enter("b", "node 2")
    assert (ledger.take("a"), ledger.take("b"), ledger.take("a"), ledger.take("b")) == (*SHARDS, None)
    assert ledger.take("stranger") is None
    ledger.report("a", 10, 100)
    ledger.report("b", 4, 40)
    ledger.deliver("a", Delivered(SHARDS[0], "f00"))
    state = ledger.state()
    assert state == ([Delivered(SHARDS[0], "f00")], 2, 0, 14, 140, {"node 1": 10, "node 2": 4})
    assert ledger.state().delivered == []
    assert (ledger.node("b"), ledger.node("stranger")) == ("node 2", None)


def test_what_a_lost_encoder_had_comes_next_and_its_passages_do_not_count() -> None:
    ledger = Ledger(SHARDS)
    for worker in "ab":
        ledger.enter(worker, "node")
    assert [ledger.take("a"), ledger.take("a")] == SHARDS[:2]
    ledger.report("a", 7, 70)
    assert ledger.lose("a") == Loss(SHARDS[0], 1)
    state = ledger.state()
    assert (state.n_left, state.n_waiting, state.n_passages, state.n_tokens) == (3, 3, 0, 70)
    assert ledger.take("a") is None
    ledger.report("a", 3, 30)
    ledger.deliver("a", Delivered(SHARDS[0], ""))  # it was only out of reach: another one makes this shard by now
    assert ledger.state().n_left == 3
    assert [ledger.take("b") for _ in SHARDS] == SHARDS
    assert ledger.lose("b") == Loss(SHARDS[0], 2)
    assert ledger.lose("b") is None
    ledger.enter("c", "node")
    assert ledger.lose("c") is None


@given(st.lists(st.tuples(st.sampled_from(["take", "deliver", "lose"]), st.integers(0, 4)), max_size=60))
def test_every_shard_is_made_whatever_is_lost(events: list[tuple[str, int]]) -> None:
    shards = [range(first, first + 3) for first in range(0, 18, 3)]
    ledger, taken, generation, delivered = Ledger(shards), dict[str, list[range]](), [0] * 5, list[range]()

    def deliver(worker: str) -> None:
        rows = taken[worker].pop(0)
        ledger.report(worker, len(rows), 9)
        ledger.deliver(worker, Delivered(rows, ""))

    for what, number in events:
        worker = f"{number}.{generation[number]}"
        ledger.enter(worker, "node")
        mine = taken.setdefault(worker, [])
        if what == "take" and (rows := ledger.take(worker)) is not None:
            mine.append(rows)
        elif what == "deliver" and mine:
            deliver(worker)
        elif what == "lose":
            loss = ledger.lose(worker)
            assert (loss.rows if loss else None) == (mine[0] if mine else None)
            mine.clear()
            generation[number] += 1
    ledger.enter("last", "node")
    taken["last"] = []
    while (rows := ledger.take("last")) is not None:
        taken["last"].append(rows)
    for worker in taken:
        while taken[worker]:
            deliver(worker)
    state = ledger.state()
    delivered = [found.rows for found in state.delivered]
    assert sorted(delivered, key=lambda rows: rows.start) == shards
    assert (state.n_left, state.n_waiting, state.n_passages) == (0, 0, 18)
