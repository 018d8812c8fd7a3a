"""The allocation of vectors and networks to GPUs, against brute force over small cases."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from wikidx.base.errors import InputError
from wikidx.base.machine.devices import SearchLoad, choose_placement
from wikidx.base.machine.placement import Allocation, Card, Demand, largest_share, place, place_processes


def fits(vectors: Demand | None, networks: Sequence[Demand], cards: Sequence[Card], chosen: Allocation) -> bool:
    used = dict.fromkeys((card.number for card in cards), 0.0)
    for number in chosen.vectors:
        assert vectors is not None
        used[number] += vectors.divided_bytes / len(chosen.vectors) + vectors.n_bytes
    for network, number in zip(networks, chosen.networks, strict=True):
        used[number] += network.n_bytes
    return all(used[card.number] <= card.free for card in cards)


def all_allocations(has_vectors: bool, n_networks: int, numbers: Sequence[int]) -> list[Allocation]:
    subsets = [subset for n in range(1, len(numbers) + 1) for subset in itertools.combinations(numbers, n)] if has_vectors else [()]
    places = list(itertools.product(numbers, repeat=n_networks))
    return [Allocation(subset, place_) for subset in subsets for place_ in places]


def test_an_allocation_is_found_exactly_if_there_is_one_and_uses_the_fewest_gpus() -> None:
    random_ = random.Random(25)
    n_placed = 0
    for _ in range(1_500):
        cards = [Card(number, random_.randrange(12)) for number in range(random_.randint(1, 4))]
        vectors = Demand("v", random_.randrange(4), random_.randrange(30)) if random_.random() < 0.8 else None
        networks = [Demand(str(n), random_.randrange(7)) for n in range(random_.randint(0 if vectors else 1, 3))]
        possible = all_allocations(vectors is not None, len(networks), [card.number for card in cards])
        fitting = [allocation for allocation in possible if fits(vectors, networks, cards, allocation)]
        found = place(vectors, networks, cards)
        assert (found is None) == (not fitting)
        assert found == place(vectors, networks, cards)
        if found is not None:
            n_placed += 1
            assert found in fitting
            fewest = min(len({*allocation.vectors, *allocation.networks}) for allocation in fitting)
            assert len({*found.vectors, *found.networks}) == fewest
    assert 300 < n_placed < 1_200


def test_the_emptiest_gpu_with_room_is_chosen() -> None:
    cards = [Card(0, 40), Card(1, 80), Card(2, 60)]
    assert place(Demand("v", 3, 20), [Demand("e", 1)], cards) == Allocation((1,), (1,))
    assert place(Demand("v", 3, 70), [Demand("e", 20)], cards) == Allocation((1,), (2,))  # what does not fit beside them moves on
    assert place(Demand("v", 3, 100), [Demand("e", 5)], cards) == Allocation((1, 2), (1,))
    assert place(Demand("v", 3, 100), [], cards, on_all=True) == Allocation((0, 1, 2))
    assert place(Demand("v", 3, 200), [], cards) is None


def test_processes_share_gpus_by_dividing_what_fits() -> None:
    cards, vectors, encoder = [Card(0, 100), Card(1, 60)], [Demand("v", 3, 32)], [Demand("e", 5)]
    assert place_processes(3, vectors, encoder, cards) == [0, 0, 1]
    assert place_processes(4, vectors, encoder, cards) is None
    assert place_processes(1, vectors, encoder, []) is None


def test_a_language_model_takes_what_searches_and_others_leave() -> None:
    card, searches = Card(0, 60_000, 80_000), Demand("searches", 4_000)
    assert largest_share(card, searches, 0, 1) == 0.7
    assert largest_share(card, searches, 0.3, 2) == 0.2
    assert largest_share(Card(0, 90_000, 80_000), searches, 0, 1) == 0.92


GB = 10**9
LOAD = SearchLoad(
    "search", "30.0 GB of vectors", 30 * GB, 3 * GB, networks=(Demand("the encoder 'e'", 2 * GB), Demand("the reranker 'r'", 4 * GB))
)


@pytest.mark.parametrize(
    ("device", "free", "devices", "networks"),
    [
        ("auto", [80], ("cuda:0",), ("cuda:0", "cuda:0")),
        ("auto", [35, 35], ("cuda:0",), ("cuda:1", "cuda:1")),
        ("auto", [36], ("cuda:0",), ("cuda:0", "cpu")),
        ("auto", [34], ("cuda:0",), ("cpu", "cpu")),
        ("cuda:1,0", [24, 24], ("cuda:1", "cuda:0"), ("cuda:1", "cuda:0")),
        ("all", [20, 24], ("cuda:0", "cuda:1"), ("cuda:0", "cuda:1")),
    ],
)
def test_networks_are_placed_with_the_vectors(device: str, free: list[int], devices: tuple[str, ...], networks: tuple[str, ...]) -> None:
    found = choose_placement(LOAD, device, [n * GB for n in free])
    assert found.devices == devices
    assert found.networks == tuple(zip(("the encoder 'e'", "the reranker 'r'"), networks, strict=True))


def test_a_named_gpu_without_room_for_all_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(InputError) as raised:
        choose_placement(LOAD, "cuda", [38 * GB])
    assert str(raised.value) == (
        "30.0 GB of vectors do not fit on cuda:0, which would have to hold 30.0 GB of vectors and 3.0 GB to work in each, 33.0 GB, and "
        "beside them the encoder 'e' with 2.0 GB, and beside them the reranker 'r' with 4.0 GB, where 38.0 GB are free: name 2 such GPUs "
        "(--device cuda:0,1,…), or --device cpu"
    )
