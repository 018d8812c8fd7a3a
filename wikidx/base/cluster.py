"""Connection to a Ray cluster, its nodes, and errors of work on them. Ray is imported on first use.

A command must run on a machine of the cluster, where ``ray start`` was run. Without an address, Ray is started on this machine alone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from .errors import IdxError, InputError, MissingExtraError, StorageError, explain_os_error

COMPARED = ("wikidx", "ray", "numpy", "numba", "torch", "tokenizers", "safetensors", "faiss-cpu", "faiss-gpu-cuvs", "faiss-gpu")
"""Packages whose versions are compared between nodes, because they affect results or their transfer."""

_REACHED_S = 5.0
_NODE_S = 120.0  # limit for a node to start a process and answer


class Node(NamedTuple):
    """A live node: Ray's id of the node, its address, and its resources."""

    id: str
    address: str
    n_cpus: float
    n_gpus: float


class ProcessLost(IdxError):
    """Loss of a process on the cluster, or of its node."""


def load_ray() -> ModuleType:
    """Import and return Ray, with its usage statistics off by default; raises ``MissingExtraError`` if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # a call after shutdown raises an error instead of starting a cluster
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of answers that came after the first error, which is reported
    os.environ.setdefault("RAY_worker_niceness", "0")  # workers have normal priority; Ray's default is 15
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("work on a Ray cluster", "ray") from error
    ray._private.ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = True  # a JVM in this process handles the faults of its null checks
    library: ModuleType = ray
    return library


@contextlib.contextmanager
def connect(address: str | None = None) -> Iterator[ModuleType]:
    """Connect to a cluster, compare its nodes with this process, and yield Ray. On exit, disconnect; this ends the actors started within.

    Args:
        address: HOST:PORT of the cluster's head; "auto" for the cluster of this machine; None or "local" to start Ray on this machine.

    Raises:
        InputError: this process is already connected, nothing answers at the address, or Ray refuses: this machine is not in the cluster,
            or has another version of Ray or Python.
        MissingExtraError, IdxError: see ``load_ray`` and ``check_versions``.
    """
    ray = load_ray()
    if ray.is_initialized():
        raise InputError("this process is connected to a Ray cluster already")
    is_local = address in (None, "", "local")
    options = {"address": "local", "include_dashboard": False} if is_local else {"address": _check_address(str(address))}
    try:
        ray.init(logging_level=logging.WARNING, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise InputError(
            f"Ray lets this process into no cluster at {options['address']} ({' '.join(str(error).split()):.300}): this machine must be "
            "one of its nodes ('ray start'), with the same versions of Ray and Python"
        ) from error
    try:
        check_versions()
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> str:
    """Return the address, or raise ``InputError`` if nothing listens there: Ray would retry for a minute, or end the process."""
    if address == "auto":
        return address
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise InputError(f"'{address}' is no address of a Ray cluster: use HOST:PORT of its head, auto, or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACHED_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"no Ray cluster can be reached at {address} ({error}): 'ray status' on its head says whether it runs") from error
    return address


def list_nodes(*, usable: bool = False) -> list[Node]:
    """Return the live nodes, sorted by address; with ``usable``, those with a CPU or GPU, or ``InputError`` is raised if there are none."""
    nodes = list[Node]()
    for info in load_ray().nodes():
        if info["Alive"]:
            address, resources = f"{info['NodeManagerAddress']}:{info['NodeManagerPort']}", info["Resources"]
            nodes.append(Node(info["NodeID"], address, resources.get("CPU", 0.0), resources.get("GPU", 0.0)))
    found = [node for node in nodes if not usable or node.n_cpus >= 1 or node.n_gpus >= 1]
    if not found:
        raise InputError(f"none of the {len(nodes)} nodes of the Ray cluster offers a processor: start one with 'ray start --num-cpus'")
    return sorted(found, key=lambda node: (node.address, node.id))


def pin_to_node(node: Node, *, soft: bool = False) -> Any:  # noqa: ANN401 - Ray's own type
    """Return Ray's scheduling strategy for work on a node. With ``soft``, the work moves to another node if this one is lost."""
    return load_ray().util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=soft)


class NodeActor:
    """Base class of Ray actors that tell their node."""

    def node(self) -> str:
        """Return the address of the node."""
        return self._node

    @functools.cached_property
    def _node(self) -> str:
        node_id = str(load_ray().get_runtime_context().get_node_id())
        return next((node.address for node in list_nodes() if node.id == node_id), node_id)


def fetch(task: str, reference: Any, timeout: float | None = None) -> Any:  # noqa: ANN401 - Ray's reference of any answer
    """Return the answer of remote work; the messages of all errors begin with ``task``.

    Raises:
        ProcessLost: the process, or its node, is lost, or does not answer in time.
        IdxError: the remote work raised an exception; an ``IdxError`` keeps its class.
    """
    ray = load_ray()
    try:
        return ray.get(reference, timeout=timeout)
    except ray.exceptions.RayTaskError as error:
        raise _translate(task, error.cause) from error
    except ray.exceptions.OutOfMemoryError as error:
        raise ProcessLost(f"{task} was lost: Ray ended it for want of memory on its node; give each process more of a node") from error
    except ray.exceptions.RayError as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise ProcessLost(f"{task} was lost ({message:.200})") from error


def _translate(task: str, cause: Exception) -> IdxError:
    if isinstance(cause, MissingExtraError):
        return InputError(f"{task}: {cause}")
    if isinstance(cause, IdxError):
        return type(cause)(f"{task}: {cause}")
    if isinstance(cause, OSError):
        return StorageError(f"{task}: {explain_os_error(cause, is_kept=True)}")
    return IdxError(f"{task}: {type(cause).__name__}: {cause}")


def check_versions() -> None:
    """Raise ``IdxError`` if a node does not answer, or has another Python, package or source code of idx than this process."""
    ray, distributions = load_ray(), COMPARED

    def versions() -> dict[str, str]:  # a nested function is sent by value: a node may lack idx
        import importlib.metadata
        import platform

        installed = {"python": platform.python_version()}
        for distribution in distributions:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                installed[distribution.split("-")[0]] = importlib.metadata.version(distribution)
        with contextlib.suppress(ImportError):  # the code too, because two checkouts of one version may differ
            from wikidx.base.compiled import ROOT, sources_hash

            folders = [ROOT / "wikidx" / package for package in ("base", "corpora", "indexer", "retrievers")]
            installed["idx's code"] = sources_hash(file for folder in folders for file in folder.rglob("*.py"))
        return installed

    remote, here = ray.remote(num_cpus=0, max_retries=0)(versions), versions()
    for node, call in [(node, remote.options(scheduling_strategy=pin_to_node(node)).remote()) for node in list_nodes()]:
        there = fetch(f"the check of node {node.address}", call, _NODE_S)
        for name in here | there:
            if there.get(name) != here.get(name):
                raise IdxError(
                    f"node {node.address} has {name} {there.get(name, 'not at all')}, here is {here.get(name, 'none')}: install the same "
                    "versions on all nodes"
                )
