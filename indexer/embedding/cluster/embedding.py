"""Embedding on a Ray cluster: passages go to encoders on its nodes, one per GPU or group of CPUs, and vectors come back.

The driver process must be connected to the cluster (``nodes.connect``). It checks the nodes before work starts, reads the passages, and
writes the vectors. Ray restarts a lost encoder where there is room; the driver assigns its pending ranges again.

The vectors are byte-identical to those of one machine of the same kind whose torch uses as many threads as each encoder has CPUs.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wikidx.base.artifacts.home import home
from wikidx.base.errors import ArtifactMismatch, IdxError, InputError, MissingExtraError, StorageError, explain_os_error
from wikidx.base.progress import Progress
from wikidx.indexer.embedding.pipeline import Job, Report
from wikidx.indexer.encoders.spec import EncoderSpec, weight_checksums

from .encoder import Encoder, configure_node
from .nodes import call_each_node, check_versions, list_nodes, load_ray

logger = logging.getLogger(__name__)

TRIES = 3  # the job fails when this many encoders were lost while encoding the same range

_AHEAD = 2  # pending ranges per encoder: one is tokenised or transferred while another is encoded
_POLL_S = 10.0  # seconds without an answer before a check that some node is large enough for an encoder
_OUT_OF_MEMORY = ("OutOfMemory", "low on memory", "(OOM)")

_checked = set[frozenset[str]]()  # sets of Ray's ids of nodes whose versions are equal


class ProcessLost(IdxError):
    """Loss of a process on the cluster, or of its node."""


def check_cluster() -> None:
    """Raise ``IdxError`` if a node has other versions than this process. The same set of nodes is checked only once."""
    node_ids = frozenset(node.id for node in list_nodes())
    if node_ids not in _checked:
        check_versions()
        _checked.add(node_ids)


def embed_on_ray(job: Job, ranges: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
    """Encode ranges of rows on the cluster. Each encoder gets the resources ``job.resources.ray``.

    Args:
        job: the embedding job.
        ranges: ranges of rows to embed.
        report: called with the passages and tokens of each written range.
        node_progress: see ``EmbedProgress.node``.

    Raises:
        IdxError: a node has other versions or weights, which is checked before work starts; an encoder failed; or ``TRIES`` encoders were
            lost over one range.
        OSError: a disk error.
    """
    check_cluster()
    if ranges:
        _check_weights(job.spec)
        work = _ClusterJob(job, ranges, report, node_progress)
        try:
            work.run()
        finally:
            work.stop()


class _RemoteEncoder:
    """An encoder on a node, and its pending ranges. ``address`` is the node's address, or None until Ray has started the encoder."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - Ray's
        self.actor = actor
        self.calls = dict[Any, range]()
        self.await_start()

    def await_start(self) -> None:
        """Request the encoder's node id; Ray retries this call until the encoder has started."""
        self.address: str | None = None
        self.started = self.actor.node.options(max_task_retries=-1).remote()


class _ClusterJob:
    """The encoders of a job, and the ranges not yet assigned."""

    def __init__(self, job: Job, ranges: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
        if job.resources.ray is None:
            raise ValueError("the resources are this machine's, not a cluster's")
        self._ray, self._job, self._store, self._resources = load_ray(), job, job.reopen(), job.resources.ray
        self._ranges, self._n_lost = deque(ranges), Counter[range]()
        self._report, self._node_progress = report, node_progress
        self._by_node, self._progress = Counter[str](), dict[str, Progress]()
        remote = self._ray.remote(
            num_cpus=self._resources.n_cpus,
            num_gpus=self._resources.n_gpus,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_AHEAD,
            scheduling_strategy="SPREAD",
        )(Encoder)
        self._encoders = [_RemoteEncoder(remote.remote(job.spec, job.resources, home())) for _ in job.resources.devices[: len(ranges)]]

    def run(self) -> None:
        """Assign ranges and write their vectors until no range is left."""
        while self._ranges or any(encoder.calls for encoder in self._encoders):
            for encoder in self._encoders:
                self._assign_ranges(encoder)
            calls = {call: encoder for encoder in self._encoders for call in encoder.calls}
            calls |= {encoder.started: encoder for encoder in self._encoders if encoder.address is None}
            ready, _ = self._ray.wait(list(calls), timeout=_POLL_S)
            for call in ready:
                self._handle_reply(calls[call], call)
            if not ready and all(encoder.address is None for encoder in self._encoders):
                self._check_room()

    def stop(self) -> None:
        """End the encoders."""
        for encoder in self._encoders:
            self._ray.kill(encoder.actor)

    def _assign_ranges(self, encoder: _RemoteEncoder) -> None:
        """Assign up to ``_AHEAD`` ranges to an encoder. A range that has lost an encoder is assigned alone: it may crash encoders."""
        while self._ranges and encoder.address is not None:
            rows = self._ranges[0]
            if len(encoder.calls) >= (1 if any(self._n_lost[lost] for lost in (rows, *encoder.calls.values())) else _AHEAD):
                return
            self._ranges.popleft()
            encoder.calls[encoder.actor.encode.remote(rows, list(self._store.read(rows.start, rows.stop)))] = rows

    def _handle_reply(self, encoder: _RemoteEncoder, call: Any) -> None:  # noqa: ANN401 - Ray's
        """Process an answer: the node of a started encoder, or vectors. If the encoder is lost, its pending ranges return to the queue."""
        address = encoder.address
        try:
            with ray_errors(f"node {address}" if address else "an encoder that could not start"):
                reply = self._ray.get(call)
        except ProcessLost as lost:
            if address is None:  # Ray has given up restarting it
                raise
            self._requeue(encoder, str(lost))
            return
        if address is None:
            encoder.address = next((node.address for node in list_nodes() if node.id == reply), reply)
            return
        rows, (vectors, n_tokens) = encoder.calls.pop(call), reply
        self._job.write(rows, vectors)
        self._report(len(rows), n_tokens)
        self._by_node[address] += len(rows)
        if address not in self._progress:
            self._progress[address] = self._node_progress(address)
        self._progress[address](self._by_node[address], None)

    def _requeue(self, encoder: _RemoteEncoder, reason: str) -> None:
        """Return a lost encoder's pending ranges to the queue."""
        logger.info("%s", reason)
        pending = list(encoder.calls.values())
        encoder.calls.clear()
        encoder.await_start()
        self._ranges.extendleft(reversed(pending))
        self._n_lost.update(pending)
        for rows in pending:
            if self._n_lost[rows] >= TRIES:
                raise IdxError(
                    f"{TRIES} encoders were lost over rows {rows.start:,} to {rows.stop - 1:,}, the last one so: {reason}; "
                    "the finished vectors are kept"
                )

    def _check_room(self) -> None:
        """Raise ``IdxError`` unless some node is large enough for an encoder. Ray would wait indefinitely for such a node."""
        needed, nodes = self._resources, list_nodes()
        if not any(node.n_cpus >= needed.n_cpus and node.n_gpus >= needed.n_gpus for node in nodes):
            raise IdxError(
                f"none of the {len(nodes)} nodes that are left has {needed.n_cpus} processors and {needed.n_gpus} GPUs for an encoder: "
                "start some and run the same command again; the finished vectors are kept"
            )


def _check_weights(spec: EncoderSpec) -> None:
    """Raise ``ArtifactMismatch`` unless every node has this machine's weights."""
    expected, data_home = weight_checksums(spec), home()

    def local_checksums() -> dict[str, str]:
        configure_node(data_home, None)
        return weight_checksums(spec)

    for node, weights in call_each_node(local_checksums).items():
        differing = sorted(name for name in expected.keys() | weights.keys() if expected.get(name) != weights.get(name))
        if differing:
            raise ArtifactMismatch(
                f"node {node.address} has another checkpoint of '{spec.name}' than this machine ({', '.join(differing)}): "
                "put the same files on all nodes"
            )


@contextlib.contextmanager
def ray_errors(task: str) -> Iterator[None]:
    """Translate Ray's exceptions for remote work.

    Raises:
        ProcessLost: the process, or its node, is lost.
        IdxError: the remote work raised an ``IdxError``, an ``OSError`` or a ``MissingExtraError``; the message begins with ``task``.
    """
    ray = load_ray()
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OSError) and not isinstance(error.cause, IdxError):
            raise StorageError(f"{task}: {explain_os_error(error.cause, is_kept=True)}") from error
        if isinstance(error.cause, MissingExtraError):
            raise InputError(f"{task}: {error.cause}") from error
        if isinstance(error.cause, IdxError):
            raise type(error.cause)(f"{task}: {error.cause}") from error
        raise
    except ray.exceptions.RayError as error:
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ray.exceptions.OutOfMemoryError) or any(words in message for words in _OUT_OF_MEMORY):
            raise ProcessLost(
                f"{task} ran out of memory, and Ray ended a process there: give each encoder more of a node (--ray-cpus), or use "
                "--batch-tokens with a smaller number"
            ) from error
        raise ProcessLost(f"{task} was lost ({message:.200})") from error
