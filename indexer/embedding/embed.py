"""Embedding of a store's passages on one device, several, or a cluster; an interrupted build resumes after the finished ranges."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wikidx.base.cluster import list_nodes
from wikidx.base.errors import InputError
from wikidx.base.machine.devices import count_gpus, gpu_numbers, resolve_device, resolve_gpus
from wikidx.base.machine.threads import n_threads
from wikidx.base.machine.workers import map_ahead, worker_processes
from wikidx.base.net.request_threads import RequestThreads
from wikidx.base.progress import Progress, silent
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.plugged import PluggedEncoder
from wikidx.indexer.encoders.served import BATCH_TOKENS, ServedEncoder
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.networks.batching import tokenizing_chunks
from wikidx.indexer.networks.network_size import network_demand
from wikidx.indexer.vectors.file import GPU_RANGE_ROWS, VectorFile

from .options import EmbedOptions, Precision, RayResources, Resources
from .pipeline import Job, Report, embed_ranges

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.sharedctypes import Synchronized

_PROCESS_BYTES = 0.8e9  # memory of a process with torch, besides its network
_TOKENIZING_BYTES = 0.4e9  # memory of each process that tokenises for a GPU
_RANGES_HELD = 2  # ranges in memory: one range being computed, and a copy being written
_POLL_S = 0.2
_MAX_TOKENIZING = 12  # processes per GPU
_CPU_BATCH_TOKENS = 1_024  # fits into the caches
_GPU_BATCH_TOKENS = 32_768


class EmbedProgress(NamedTuple):
    """Progress callbacks of ``embed``.

    Attributes:
        passages: called with (passages done, all passages).
        tokens: called with (tokens encoded since the start of ``embed``, None).
        node: returns the callback of a cluster's node, given the node's address; called with (passages encoded there, None).
    """

    passages: Progress = silent
    tokens: Progress = silent
    node: Callable[[str], Progress] = lambda node: silent


def embed(job: Job, file: VectorFile, progress: EmbedProgress) -> None:
    """Encode the passages of a store that have no vectors in a file yet.

    Args:
        job: the embedding job; it writes to the file.
        file: output file of the vectors.
        progress: see ``EmbedProgress``.

    Raises:
        IdxError: a vector is not finite; a process was killed; a device has too little memory; a server does not answer, refuses a
            passage, or gives an answer that cannot be used.
        InputError, MissingExtraError: the checkpoint, a device or a package is missing.
        OSError: a disk error.

    If one of several devices fails, the others stop as well. Each device then loses its current range, as in an interruption.
    """
    ranges = file.unfinished_ranges()
    n_done, n_tokens = file.n_rows - sum(map(len, ranges)), 0

    def report(n_more_passages: int, n_more_tokens: int) -> None:
        nonlocal n_done, n_tokens
        n_done, n_tokens = n_done + n_more_passages, n_tokens + n_more_tokens
        progress.passages(n_done, file.n_rows)
        progress.tokens(n_tokens, None)

    report(0, 0)
    if job.resources.ray is not None:
        from .cluster import embed_on_ray

        embed_on_ray(job, ranges, report, progress.node)
    elif job.spec.is_served:
        _embed_by_server(job, ranges, report)
    elif not job.spec.has_network:
        _embed_by_plug_in(job, ranges, report)
    elif len(job.resources.devices) == 1:
        embed_ranges(job, job.resources.devices[0], iter(ranges), report)
    elif ranges:
        _embed_on_several(job, ranges, report)


def _embed_by_server(job: Job, ranges: Iterable[range], report: Report) -> None:
    """Encode ranges of rows by a server, to which the passages of a range are sent while the range before is written."""
    store = job.reopen()
    with RequestThreads(2) as ahead, contextlib.closing(ServedEncoder(job.spec, job.resources.batch_tokens)) as encoder:

        def encode(rows: range) -> Future[tuple[range, Vectors]]:
            passages = list(store.read(rows.start, rows.stop))
            return ahead.submit(lambda: (rows, encoder.encode_passages(passages)))

        for rows, vectors in map_ahead(encode, ranges, 1):
            job.write(rows, vectors)
            report(len(rows), 0)


def _embed_by_plug_in(job: Job, ranges: Iterable[range], report: Report) -> None:
    """Encode ranges of rows by a plug-in's code, some passages at a time."""
    store, encoder = job.reopen(), PluggedEncoder(job.spec, job.resources.devices[0])
    for rows in ranges:
        chunks = [encoder.encode_passages(list(store.read(part.start, part.stop))) for part in tokenizing_chunks(rows)]
        job.write(rows, np.concatenate(chunks))
        report(len(rows), 0)


class _StoppedError(Exception):
    """Signal to stop: another device has failed, or the user has interrupted the build."""


class _SharedState(NamedTuple):
    """State shared by the processes of all devices.

    Attributes:
        job: the embedding job.
        ranges: ranges of rows to embed.
        next_range: index of the next range.
        is_stopped: true to stop all processes. It has no lock, which a killed process would never release.
        reports: counts of passages and tokens, sent to the parent process.
    """

    job: Job
    ranges: list[range]
    next_range: Synchronized[int]
    is_stopped: ctypes.c_bool
    reports: Queue[tuple[int, int]]

    def take_ranges(self) -> Iterator[range]:
        while not self.is_stopped.value:
            if not self.next_range.get_lock().acquire(timeout=_POLL_S):
                continue  # if a killed process holds the lock, ``is_stopped`` will be set
            number = self.next_range.value
            self.next_range.value += 1
            self.next_range.get_lock().release()
            if number >= len(self.ranges):
                return
            yield self.ranges[number]

    def report(self, n_passages: int, n_tokens: int) -> None:
        if self.is_stopped.value:
            raise _StoppedError
        self.reports.put((n_passages, n_tokens))

    def stop(self) -> None:
        """Stop every device after its current batch; its range may take minutes."""
        self.is_stopped.value = True


def _embed_on_several(job: Job, ranges: list[range], report: Report) -> None:
    context = get_context("spawn")
    state = _SharedState(job, ranges, context.Value("q", 0), context.RawValue(ctypes.c_bool, False), context.Queue())
    devices = job.resources.devices
    with worker_processes(len(devices), "embeds", _start_embedding, state) as embed_on:
        try:
            running = set(map(embed_on, devices))
            while running:
                done, running = wait(running, timeout=0)
                for future in done:
                    future.result()  # raises the device's exception
                _forward_reports(state.reports, report)
        finally:
            state.stop()


def _forward_reports(reports: Queue[tuple[int, int]], report: Report) -> None:
    """Forward the devices' progress for a fraction of a second."""
    until = time.monotonic() + _POLL_S
    with contextlib.suppress(queue.Empty):
        while (seconds := until - time.monotonic()) > 0:
            report(*reports.get(timeout=seconds))


def _start_embedding(state: _SharedState) -> Callable[[str], None]:
    """Return the main function of a device's process; its argument is the device."""
    state.reports.cancel_join_thread()  # unread reports must not keep this process from exiting

    def embed_on(device: str) -> None:
        with contextlib.suppress(_StoppedError):
            embed_ranges(state.job, device, state.take_ranges(), state.report)

    return embed_on


def resolve_resources(options: EmbedOptions, spec: EncoderSpec) -> Resources:
    """Resolve the options on this machine, or on the connected cluster.

    Raises:
        InputError: there are no GPUs for "all" or "cuda", or too few CPUs; or a cluster is to compute a served encoder.
        MissingExtraError: the options request a cluster, and Ray is not installed.
    """
    if spec.is_served:
        if options.on_ray:
            raise InputError(f"--ray is for a checkpoint: '{spec.name}' is computed by its server")
        return Resources(("cpu",), _precision(options.dtype, spec, on_gpu=False), options.batch_tokens or BATCH_TOKENS, 0)
    if not spec.has_network:
        devices = _devices(options.device)
        if options.on_ray or len(devices) > 1:
            raise InputError(
                f"'{spec.name}' is computed by the code of a plug-in, which runs on one device of this machine: choose it by --device"
            )
        return Resources(devices, _precision(options.dtype, spec, on_gpu=False), 1, 0)
    ray, n_encoders = None, 0
    if options.on_ray:
        ray, n_encoders = _ray_resources(options.ray_cpus, options.device)
    devices = _devices(options.device) if ray is None else ("cuda" if ray.n_gpus else "cpu",) * n_encoders
    on_gpu = devices[0] != "cpu"
    batch_tokens = options.batch_tokens or (_GPU_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS)
    n_processors = n_threads() // len(devices) if ray is None else ray.n_cpus
    n_tokenizing = max(1, min(_MAX_TOKENIZING, n_processors - 1)) if on_gpu else 0
    return Resources(devices, _precision(options.dtype, spec, on_gpu=on_gpu), batch_tokens, n_tokenizing, ray)


def embedding_bytes(encoder: EncoderSpec, resources: Resources) -> float:
    """Return the memory of the processes that embed on the devices of this machine."""
    tokens, width, dtype = resources.batch_tokens, encoder.max_passage_tokens, resources.precision.computed
    network = network_demand(encoder.folder("passage"), encoder.name, n_tokens=tokens, width=width, dtype=dtype)
    range_bytes = GPU_RANGE_ROWS * encoder.dim * np.dtype(np.float32).itemsize
    each = _PROCESS_BYTES + network.n_bytes + _RANGES_HELD * range_bytes + resources.n_tokenizing * _TOKENIZING_BYTES
    return len(resources.devices) * each


def _ray_resources(cpus: int | None, device: str) -> tuple[RayResources, int]:
    """Return the resources of each encoder on the cluster, and the number of encoders that fit on its nodes."""
    nodes = list_nodes(usable=True)
    with_gpus = [node for node in nodes if node.n_gpus >= 1]
    if device == "cuda" and not with_gpus:
        raise InputError(f"--device cuda: none of the {len(nodes)} nodes of the Ray cluster has a GPU: use cpu, or auto")
    if with_gpus and device != "cpu":
        n_cpus = min(int(node.n_cpus // node.n_gpus) for node in with_gpus)
        return RayResources(n_cpus, 1), sum(int(node.n_gpus) for node in with_gpus)
    sizes = [int(node.n_cpus) for node in nodes if node.n_cpus >= 1]
    if not sizes:
        raise InputError(f"none of the {len(nodes)} nodes of the Ray cluster offers a processor: start one with 'ray start --num-cpus'")
    n_cpus = cpus or min(sizes)
    n_encoders = sum(size // n_cpus for size in sizes)
    if not n_encoders:
        raise InputError(f"--ray-cpus {n_cpus}: the largest node of the Ray cluster has {max(sizes)}")
    return RayResources(n_cpus, 0), n_encoders


def _devices(device: str) -> tuple[str, ...]:
    if device in ("cpu", "mps", "cuda"):  # torch chooses the GPU for "cuda"
        return (device,)
    if device == "auto":
        return (resolve_device(device),) if count_gpus() else ("cpu",)
    numbers = resolve_gpus(device, count_gpus()) if device == "all" else gpu_numbers(device, 0)
    return tuple(f"cuda:{number}" for number in numbers) or ("cpu",)


def _precision(dtype: str | None, spec: EncoderSpec, *, on_gpu: bool) -> Precision:
    if dtype == "float32" or (dtype is None and not on_gpu):
        return Precision("float32", "float32")
    if dtype == "bfloat16":
        return Precision("bfloat16", "float16")
    return Precision(spec.gpu_dtype if on_gpu else "float32", "float16")
