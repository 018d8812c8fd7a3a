"""Embedding on a Ray cluster: passages go to encoders on its nodes, one per GPU or group of CPUs, and vectors come back.

The driver process must be connected to the cluster (``base.cluster.connect``). It reads the passages, and writes the vectors. Ray restarts
a lost encoder where there is room; the driver assigns its pending ranges again. Ray Data does neither: it reads sources on the nodes, and a
range of a lost actor waits until that actor has room again.

The vectors are byte-identical to those of one machine of the same kind whose torch uses as many threads as each encoder has CPUs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.home import home
from wikidx.base.cluster import NodeActor, ProcessLost, list_nodes, load_ray, node_address, remote_errors
from wikidx.base.errors import ArtifactMismatch, IdxError
from wikidx.base.machine.workers import map_ahead, worker_processes
from wikidx.base.progress import Progress
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens, weight_checksums
from wikidx.indexer.encoders.tokenizing import Tokenizer, concatenate
from wikidx.indexer.networks.batching import tokenizing_chunks

from .options import Resources
from .pipeline import Job, Report, TokenizedRows, encode_ranges, explain_device_errors

logger = logging.getLogger(__name__)

TRIES = 3  # the job fails when this many encoders were lost while encoding the same range

_AHEAD = 2  # pending ranges per encoder: one is tokenised or transferred while another is encoded
_POLL_S = 10.0  # seconds without an answer before a check that some node is large enough for an encoder


class Encoder(NodeActor):
    """The Ray actor that encodes passages on a node.

    Two threads may call ``encode`` at the same time: one of them uses the model, while the other tokenises.

    Args:
        spec: the encoder.
        weights: checksums of the weights that the node must have.
        resources: devices, precision and batch size.
        home: data home of the process that starts the actor; used if this folder exists on the actor's node.
    """

    def __init__(self, spec: EncoderSpec, weights: Mapping[str, str], resources: Resources, home: Path) -> None:
        self._spec, self._weights, self._resources, self._home = spec, weights, resources, home
        self._loading, self._computing = threading.Lock(), threading.Lock()
        self._exit_stack = contextlib.ExitStack()  # tokenising processes live as long as the actor

    def encode(self, rows: range, passages: Sequence[Passage]) -> tuple[Vectors, int]:
        """Return the vectors of a range, float32 (len(rows), dim), and its number of tokens.

        Raises:
            ArtifactMismatch: the node has other weights.
            IdxError: see ``embed_ranges``.
        """
        with explain_device_errors(self._resources.devices[0], self._resources, aftermath="; the finished vectors are kept"):
            with self._loading:  # here and not in the constructor, whose errors Ray hides
                tokenise, model = self._loaded
            tokens = concatenate(list(tokenise(passages[part.start : part.stop] for part in tokenizing_chunks(range(len(rows))))))
            with self._computing:
                encoded = encode_ranges(model, [TokenizedRows(rows, rows, tokens)], self._resources.batch_tokens, lambda *done: None)
                ((_, vectors),) = encoded
        return vectors, int(tokens.lengths().sum())

    @functools.cached_property
    def _loaded(self) -> tuple[Callable[[Iterable[Sequence[Passage]]], Iterable[Tokens]], Model]:
        if self._home.is_dir():
            os.environ["IDX_HOME"] = str(self._home)
        differing = sorted({name for name, _ in weight_checksums(self._spec).items() ^ self._weights.items()})
        if differing:
            raise ArtifactMismatch(f"another checkpoint of '{self._spec.name}' ({', '.join(differing)}): put the same files on all nodes")
        spec, (device, *_), n_tokenizing = self._spec, self._resources.devices, self._resources.n_tokenizing
        model, tokenizer = Model(spec, "passage", device, self._resources.precision.computed), Tokenizer(spec, "passage")
        if self._resources.ray is not None and not self._resources.ray.n_gpus:
            import torch

            torch.set_num_threads(self._resources.ray.n_cpus)  # their number affects the rounding of sums
        if not n_tokenizing:
            return functools.partial(map, tokenizer.passages), model
        submit = self._exit_stack.enter_context(worker_processes(n_tokenizing, "tokenises", _start_tokenizing, tokenizer))
        return lambda parts: map_ahead(submit, parts, n_tokenizing), model


def _start_tokenizing(tokenizer: Tokenizer) -> Callable[[Sequence[Passage]], Tokens]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are already as many processes as CPUs
    return tokenizer.passages


def embed_on_ray(job: Job, ranges: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
    """Encode ranges of rows on the cluster. Each encoder gets the resources ``job.resources.ray``.

    Args:
        job: the embedding job.
        ranges: ranges of rows to embed.
        report: called with the passages and tokens of each written range.
        node_progress: see ``EmbedProgress.node``.

    Raises:
        IdxError: a node has other weights; an encoder failed; or ``TRIES`` encoders were lost over one range.
        OSError: a disk error.
    """
    if ranges:
        work = _ClusterJob(job, ranges, report, node_progress)
        try:
            work.run()
        finally:
            work.stop()


class _RemoteEncoder:
    """An encoder on a node, and its pending calls. ``address`` is the node's address, or None until Ray has started the encoder."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - Ray's
        self.actor = actor
        self.await_start()

    def await_start(self) -> None:
        """Request the encoder's node, with no range; Ray retries this call until the encoder has started."""
        self.address: str | None = None
        self.calls: dict[Any, range] = {self.actor.node.options(max_task_retries=-1).remote(): range(0)}


class _ClusterJob:
    """The encoders of a job, and the ranges not yet assigned."""

    def __init__(self, job: Job, ranges: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
        if job.resources.ray is None:
            raise ValueError("the resources are this machine's, not a cluster's")
        self._ray, self._job, self._store, self._resources = load_ray(), job, job.reopen(), job.resources.ray
        self._ranges, self._n_lost = deque(ranges), Counter[range]()
        self._report, self._node_progress, self._by_node = report, functools.cache(node_progress), Counter[str]()
        options = {"num_cpus": self._resources.n_cpus, "num_gpus": self._resources.n_gpus, "max_restarts": -1, "max_concurrency": _AHEAD}
        remote = self._ray.remote(scheduling_strategy="SPREAD", **options)(Encoder)
        arguments = job.spec, weight_checksums(job.spec), job.resources, home()
        self._encoders = [_RemoteEncoder(remote.remote(*arguments)) for _ in job.resources.devices[: len(ranges)]]

    def run(self) -> None:
        """Assign ranges and write their vectors until no range is left."""
        while self._ranges or any(rows for encoder in self._encoders for rows in encoder.calls.values()):
            for encoder in self._encoders:
                self._assign_ranges(encoder)
            calls = {call: encoder for encoder in self._encoders for call in encoder.calls}
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
        """Assign up to ``_AHEAD`` ranges to an encoder; only one while a range that has lost an encoder, and may again, is unfinished."""
        while self._ranges and encoder.address is not None and len(encoder.calls) < (1 if self._n_lost else _AHEAD):
            rows = self._ranges.popleft()
            encoder.calls[encoder.actor.encode.remote(rows, list(self._store.read(rows.start, rows.stop)))] = rows

    def _handle_reply(self, encoder: _RemoteEncoder, call: Any) -> None:  # noqa: ANN401 - Ray's
        """Process an answer: the node of a started encoder, or vectors. If the encoder is lost, its pending ranges return to the queue."""
        rows = encoder.calls[call]
        try:
            with remote_errors(f"node {encoder.address}" if rows else "an encoder that could not start"):
                reply = self._ray.get(call)
        except ProcessLost as lost:
            if not rows:  # Ray has given up restarting it
                raise
            self._requeue(encoder, str(lost))
            return
        del encoder.calls[call]
        if encoder.address is None:
            encoder.address = node_address(reply)
            return
        vectors, n_tokens = reply
        self._job.write(rows, vectors)
        self._n_lost.pop(rows, None)
        self._report(len(rows), n_tokens)
        self._by_node[encoder.address] += len(rows)
        self._node_progress(encoder.address)(self._by_node[encoder.address], None)

    def _requeue(self, encoder: _RemoteEncoder, reason: str) -> None:
        """Return a lost encoder's pending ranges to the queue."""
        logger.info("%s", reason)
        pending = list(encoder.calls.values())
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
