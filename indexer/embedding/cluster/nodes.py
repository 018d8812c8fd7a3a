"""Connection to a Ray cluster, its nodes, and checks of the nodes before work starts. Ray is imported on first use.

A command must run on a machine of the cluster, where ``ray start`` was run. Without an address, Ray is started on this machine alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from wikidx.base.errors import IdxError, InputError, MissingExtraError

Result = TypeVar("Result")
Versions = Mapping[str, str | None]

COMPARED = ("wikidx", "ray", "numpy", "numba", "torch", "tokenizers", "safetensors", "faiss")
"""Packages whose versions are compared between nodes, because they affect results or their transfer."""

CODE = "code"
"""Key of the hash of idx's own code. The hash is compared too, because two checkouts of one version may differ."""

_REACHED_S = 5.0
_NODE_S = 120.0  # limit for a node to start a process and answer
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_SIGACTION_BYTES = 1_024  # more than the size of C's struct sigaction on any platform


class Node(NamedTuple):
    """A live node: Ray's id of the node, its address, and its resources."""

    id: str
    address: str
    n_cpus: float
    n_gpus: float


def load_ray() -> ModuleType:
    """Import and return Ray, with its usage statistics off by default.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # a call after shutdown raises an error instead of starting a cluster
    os.environ.setdefault("RAY_worker_niceness", "0")  # workers have normal priority; Ray's default is 15
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("work on a Ray cluster", "ray") from error
    library: ModuleType = ray
    return library


@contextlib.contextmanager
def connect(address: str | None = None) -> Iterator[ModuleType]:
    """Connect to a cluster and yield Ray. On exit, disconnect; this ends the actors that were started in the context.

    Args:
        address: HOST:PORT of the cluster's head; "auto" for the cluster of this machine; None or "local" to start Ray on this machine.

    Raises:
        InputError: this process is already connected, nothing answers at the address, or this machine is not in the cluster.
        IdxError: the cluster runs another version of Ray or Python.
        MissingExtraError: Ray is not installed.
    """
    ray = load_ray()
    if ray.is_initialized():
        raise InputError("this process is connected to a Ray cluster already")
    cluster = _check_address(address)
    try:
        options: dict[str, Any] = {"address": "local", "include_dashboard": False} if cluster is None else {"address": cluster}
        with _preserve_fault_handlers():
            ray.init(logging_level=logging.WARNING, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _connection_error(cluster, str(error)) from error
    try:
        yield ray
    finally:
        with _preserve_fault_handlers():
            ray.shutdown()


@contextlib.contextmanager
def _preserve_fault_handlers() -> Iterator[None]:
    """Preserve the process's fault handlers, which Ray replaces. A JVM in this process needs its own: its null checks cause faults."""
    libc = ctypes.CDLL(None)
    before = {number: ctypes.create_string_buffer(_SIGACTION_BYTES) for number in _FAULTS}
    for number, action in before.items():
        libc.sigaction(number, None, action)
    try:
        yield
    finally:
        for number, action in before.items():
            libc.sigaction(number, action, None)


def _check_address(address: str | None) -> str | None:
    """Return the address in Ray's form, or raise ``InputError`` if nothing listens there.

    Without this check, Ray would retry for a minute, or end the process.
    """
    if address in (None, "", "local"):
        return None
    if address == "auto":
        return address
    host, _, port = str(address).rpartition(":")
    if "://" in str(address) or not host or not port.isdecimal():
        raise InputError(f"'{address}' is no address of a Ray cluster: use HOST:PORT of its head, auto, or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACHED_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"no Ray cluster can be reached at {address} ({error}): 'ray status' on its head says whether it runs") from error
    return address


def _connection_error(cluster: str | None, message: str) -> IdxError:
    """Return the error for Ray's refusal of a connection."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "no reason given")
    location = "on this machine" if cluster is None else f"at {cluster}"
    if "ersion mismatch" in message:
        return IdxError(f"the Ray cluster {location} runs other versions ({' '.join(message.split())}): install the same ones everywhere")
    if cluster == "auto":
        return InputError(f"this machine is in no Ray cluster that runs ({line}): run 'ray start' on it, or name the head's HOST:PORT")
    return InputError(
        f"the Ray cluster {location} does not let this process in ({line}): this machine must be one of its nodes ('ray start')"
    )


def list_nodes() -> list[Node]:
    """Return the live nodes of the connected cluster, sorted by address."""
    nodes = [
        Node(str(info["NodeID"]), _address_of(info), info["Resources"].get("CPU", 0.0), info["Resources"].get("GPU", 0.0))
        for info in load_ray().nodes()
        if info["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.address, node.id))


def _address_of(info: Mapping[str, Any]) -> str:
    return f"{info['NodeManagerAddress']}:{info['NodeManagerPort']}"


def pin_to_node(node: Node, *, soft: bool = False) -> Any:  # noqa: ANN401 - Ray's own type
    """Return Ray's scheduling strategy for work on a node. With ``soft``, the work moves to another node if this one is lost."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=soft)


def call_each_node(task: Callable[[], Result]) -> dict[Node, Result]:
    """Call a function once on every node.

    Args:
        task: function without arguments. Ray sends a nested function by value, and imports a module's function on the node.

    Raises:
        IdxError: a node does not answer, or the function raises; the message names the node.
    """
    ray = load_ray()
    remote = ray.remote(num_cpus=0, max_retries=0)(task)
    calls = {node: remote.options(scheduling_strategy=pin_to_node(node)).remote() for node in list_nodes()}
    ray.wait(list(calls.values()), num_returns=len(calls), timeout=_NODE_S)
    results = dict[Node, Result]()
    for node, reply in calls.items():
        try:
            results[node] = ray.get(reply, timeout=0.1)
        except ray.exceptions.GetTimeoutError as error:
            raise IdxError(f"node {node.address} did not answer within {_NODE_S:g} s: 'ray status' tells its state") from error
        except ray.exceptions.RayTaskError as error:
            raise IdxError(f"node {node.address}: {_reason(error.cause)}") from error
        except ray.exceptions.RayError as error:
            raise IdxError(f"node {node.address} failed: {_reason(error)}") from error
    return results


def _reason(error: BaseException) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def check_versions(expected: Versions | None = None) -> None:
    """Compare the packages and the source code of idx on all nodes with those of this process.

    Args:
        expected: versions by package name, and under "python" and ``CODE``; None: the versions of this process.

    Raises:
        IdxError: a node differs; the message names the node and both versions.
    """
    names, code = COMPARED, CODE

    def versions() -> dict[str, str | None]:  # a nested function is sent by value: a node may lack idx
        import importlib.metadata
        import platform

        installed: dict[str, str | None] = {"python": platform.python_version(), **dict.fromkeys(names)}
        for name in names:
            for distribution in ("faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs") if name == "faiss" else (name,):
                with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                    installed[name] = importlib.metadata.version(distribution)
        try:
            from wikidx.base.compiled import ROOT, sources_hash

            installed[code] = sources_hash(
                file for package in ("corpora", "indexer", "retrievers") for file in (ROOT / package).rglob("*.py")
            )
        except ImportError:
            installed[code] = None
        return installed

    here = versions() if expected is None else expected
    for node, installed in call_each_node(versions).items():
        for name, version in here.items():
            if installed.get(name) != version:
                raise IdxError(
                    f"node {node.address} has {'idx with ' * (name == CODE)}{name} {installed.get(name) or 'not at all'}, here is "
                    f"{version or 'none'}: install the same versions on all nodes"
                )
