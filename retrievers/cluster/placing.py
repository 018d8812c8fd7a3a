"""Placement of shard processes on nodes, and their devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wikidx.corpora.errors import InputError
from wikidx.indexer.embedding.cluster.nodes import Node, nodes

_DEVICES = ("auto", "cpu", "cuda")


def working_nodes() -> list[Node]:
    """Return the nodes that offer a CPU or a GPU; one with neither, such as a head node without workers, gets no shard.

    Raises:
        InputError: there is none.
    """
    there = nodes()
    found = [node for node in there if node.n_cpus >= 1 or node.n_gpus >= 1]
    if not found:
        raise InputError(f"none of the {len(there)} nodes of the Ray cluster offers a processor: start one with 'ray start --num-cpus'")
    return found


def check_device(device: str) -> None:
    """Raise ``InputError`` unless a shard can search on this device."""
    if device not in _DEVICES:
        raise InputError(f"--device {device} with --ray: say auto, cpu or cuda; which GPU a shard gets Ray decides")


def needs_gpus(device: str, there: Sequence[Node], n_processes: int) -> bool:
    """Return whether every process gets a GPU.

    Args:
        device: "auto": GPUs if there are enough for all processes.
        there: the nodes.
        n_processes: of all shards.

    Raises:
        InputError: "cuda", and there are too few GPUs.
    """
    n_gpus = sum(int(node.n_gpus) for node in there)
    if device == "cuda" and n_gpus < n_processes:
        raise InputError(
            f"--device cuda: {n_processes} processes (shards times replicas) need a GPU each, the Ray cluster has {n_gpus}: "
            "say fewer --shards or --replicas, or --device cpu"
        )
    return device != "cpu" and n_gpus >= n_processes


def placed(n_shards: int, n_replicas: int, there: Sequence[Node], busy: Sequence[Node], *, on_gpus: bool) -> list[list[Node]]:
    """Return the nodes of each shard's replicas: distinct if there are enough nodes, with about as many processes on each.

    Args:
        n_shards: number of shards.
        n_replicas: of each.
        there: the nodes.
        busy: nodes of the processes of other generations, which need their GPUs until they end.
        on_gpus: whether each process needs a GPU.

    Raises:
        InputError: too few GPUs are free.
    """
    n_busy = Counter(node.id for node in busy)
    room = {node.id: int(node.n_gpus) - n_busy[node.id] for node in there} if on_gpus else {}
    n_free, n_needed = sum(max(0, n) for n in room.values()), n_shards * n_replicas
    if on_gpus and n_free < n_needed:
        raise InputError(
            f"{n_needed} processes need a GPU each beside the {len(busy)} that serve, {n_free} are free: an index is exchanged with twice "
            "the GPUs, or by starting the server again"
        )
    used, found = Counter[str](), []
    for _ in range(n_shards):
        chosen = list[Node]()
        for _ in range(n_replicas):
            possible = [node for node in there if not on_gpus or used[node.id] < room[node.id]]
            chosen.append(min(possible, key=lambda node: (node in chosen, used[node.id])))  # noqa: B023 - called at once
            used[chosen[-1].id] += 1
        found.append(chosen)
    return found
