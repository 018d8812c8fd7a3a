"""Nodes and devices of shard processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wikidx.base.errors import InputError
from wikidx.indexer.embedding.cluster.nodes import Node, list_nodes

_DEVICES = ("auto", "cpu", "cuda")


def usable_nodes() -> list[Node]:
    """Return the nodes that offer a CPU or a GPU; other nodes, such as a head node without workers, get no shard.

    Raises:
        InputError: no node offers a CPU or a GPU.
    """
    all_nodes = list_nodes()
    usable = [node for node in all_nodes if node.n_cpus >= 1 or node.n_gpus >= 1]
    if not usable:
        raise InputError(f"none of the {len(all_nodes)} nodes of the Ray cluster offers a processor: start one with 'ray start --num-cpus'")
    return usable


def check_device(device: str) -> None:
    """Raise ``InputError`` unless a shard can search on this device."""
    if device not in _DEVICES:
        raise InputError(f"--device {device} with --ray: use auto, cpu or cuda; Ray assigns the GPUs")


def needs_gpus(device: str, nodes: Sequence[Node], n_processes: int) -> bool:
    """Return whether every process gets a GPU.

    Args:
        device: "cuda", "cpu", or "auto", which uses GPUs if there are enough for all processes.
        nodes: the nodes that hold the processes.
        n_processes: number of processes, which is shards times replicas.

    Raises:
        InputError: the device is "cuda", and there are too few GPUs.
    """
    n_gpus = sum(int(node.n_gpus) for node in nodes)
    if device == "cuda" and n_gpus < n_processes:
        raise InputError(
            f"--device cuda: {n_processes} processes (shards times replicas) need a GPU each, the Ray cluster has {n_gpus}: "
            "use fewer --shards or --replicas, or --device cpu"
        )
    return device != "cpu" and n_gpus >= n_processes


def place_replicas(n_shards: int, n_replicas: int, nodes: Sequence[Node], busy_nodes: Sequence[Node], *, on_gpus: bool) -> list[list[Node]]:
    """Return the nodes of each shard's replicas, with an even load; a shard's nodes are distinct if there are enough.

    Args:
        n_shards: number of shards.
        n_replicas: number of replicas of each shard.
        nodes: the usable nodes.
        busy_nodes: the node of each running process of other generations; such a process occupies a GPU.
        on_gpus: whether each process needs a GPU.

    Raises:
        InputError: too few GPUs are free.
    """
    n_busy = Counter(node.id for node in busy_nodes)
    free_gpus = {node.id: int(node.n_gpus) - n_busy[node.id] for node in nodes} if on_gpus else {}
    n_free, n_needed = sum(max(0, n) for n in free_gpus.values()), n_shards * n_replicas
    if on_gpus and n_free < n_needed:
        raise InputError(
            f"{n_needed} processes need a GPU each besides the {len(busy_nodes)} that serve, {n_free} are free: an index is exchanged "
            "with twice the GPUs, or by starting the server again"
        )
    n_placed, placement = Counter[str](), []
    for _ in range(n_shards):
        chosen = list[Node]()
        for _ in range(n_replicas):
            candidates = [node for node in nodes if not on_gpus or n_placed[node.id] < free_gpus[node.id]]
            chosen.append(min(candidates, key=lambda node: (node in chosen, n_placed[node.id])))  # noqa: B023 - called immediately
            n_placed[chosen[-1].id] += 1
        placement.append(chosen)
    return placement
