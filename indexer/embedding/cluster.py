"""Embedding on a Ray cluster: passages go to encoders on its nodes, one per GPU or group of CPUs, and vectors come back.

The driver process must be connected to the cluster (``base.cluster.connect``). It reads the passages, and writes the vectors. Ray restarts
a lost encoder where there is room; the driver assigns its pending ranges again. With Ray's own retries, and with Ray Data, a range of a
lost actor waits until that actor has room again. The vectors are byte-identical to those of one machine of the same kind whose torch uses
as many threads as each encoder has CPUs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.home import home
from wikidx.base.cluster import NodeActor, ProcessLost, fetch, list_nodes, load_ray
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
    """The Ray actor that encodes passages on a node, which must have weights of these checksums, and uses this data home if it is there.

    Two threads may call ``encode`` at the same time: one of them uses the model, while the other tokenises.
    """

    def __init__(self, spec: EncoderSpec, weights: Mapping[str, str], resources: Resources, home: Path) -> None:
        self._spec, self._weights, self._resources, self._home = spec, weights, resources, home
        self._loading, self._computing = threading.Lock(), threading.Lock()
        self._exit_stack = contextlib.ExitStack()  # tokenising processes live as long as the actor

    def encode(self, rows: range, passages: Sequence[Passage]) -> tuple[Vectors, int]:
        """Return the vectors of a range, float32 (len(rows), dim), and its number of tokens; raises as ``embed_on_ray`` does."""
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
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # in the processes, which are already as many as CPUs
        submit = self._exit_stack.enter_context(worker_processes(n_tokenizing, "tokenises", attrgetter("passages"), tokenizer))
        return lambda parts: map_ahead(submit, parts, n_tokenizing), model


def embed_on_ray(job: Job, ranges: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
    """Encode ranges of rows on the cluster by encoders with the resources ``job.resources.ray`` each.

    ``report`` is called with the passages and tokens of each written range; for ``node_progress`` see ``EmbedProgress.node``.

    Raises:
        IdxError: a node has other weights; an encoder failed, see ``embed_ranges``; or ``TRIES`` encoders were lost over one range.
        OSError: a disk error.
    """
    if ranges:
        _ClusterJob(job, ranges, report, node_progress).run()


class _ClusterJob:
    """The encoders of a job, their pending calls, and the ranges that are not assigned."""

    def __init__(self, job: Job, ranges: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
        assert job.resources.ray is not None
        self._ray, self._job, self._store, self._resources = load_ray(), job, job.reopen(), job.resources.ray
        self._ranges, self._n_lost = deque(ranges), Counter[range]()
        self._report, self._node_progress, self._by_node = report, functools.cache(node_progress), Counter[str]()
        options = {"num_cpus": self._resources.n_cpus, "num_gpus": self._resources.n_gpus, "max_restarts": -1, "max_concurrency": _AHEAD}
        remote = self._ray.remote(scheduling_strategy="SPREAD", **options)(Encoder)
        arguments = job.spec, weight_checksums(job.spec), job.resources, home()
        self._encoders = [remote.remote(*arguments) for _ in job.resources.devices[: len(ranges)]]
        self._addresses: dict[Any, str] = {}  # of the started encoders' nodes
        self._calls: dict[Any, tuple[Any, range]] = {}  # the pending calls' encoders and ranges, by Ray's references

    def run(self) -> None:
        """Start the encoders, assign ranges and write their vectors until no range is left, and end the encoders."""
        try:
            for encoder in self._encoders:
                self._await_start(encoder)
            while self._ranges or any(rows for _, rows in self._calls.values()):
                self._assign_ranges()
                ready, _ = self._ray.wait(list(self._calls), timeout=_POLL_S)
                for call in ready:
                    self._handle_reply(call, *self._calls.pop(call))
                if not ready and not self._addresses:
                    self._check_room()
        finally:
            for encoder in self._encoders:
                self._ray.kill(encoder)

    def _await_start(self, encoder: Any) -> None:  # noqa: ANN401 - Ray's
        """Request an encoder's node, with no range; Ray retries this call until the encoder has started."""
        self._calls[encoder.node.options(max_task_retries=-1).remote()] = encoder, range(0)

    def _assign_ranges(self) -> None:
        """Assign ``_AHEAD`` ranges to each started encoder; only one while a range that lost an encoder, and may again, is unfinished."""
        n_pending = Counter(encoder for encoder, _ in self._calls.values())
        for encoder in self._addresses:
            while self._ranges and n_pending[encoder] < (1 if self._n_lost else _AHEAD):
                rows = self._ranges.popleft()
                self._calls[encoder.encode.remote(rows, list(self._store.read(rows.start, rows.stop)))] = encoder, rows
                n_pending[encoder] += 1

    def _handle_reply(self, call: Any, encoder: Any, rows: range) -> None:  # noqa: ANN401 - Ray's
        """Process an answer: the node of a started encoder, or vectors. If the encoder is lost, its pending ranges return to the queue."""
        node = self._addresses.get(encoder, "")
        try:
            reply = fetch(f"node {node}" if rows else "an encoder that could not start", call)
        except ProcessLost as lost:
            if not rows:  # Ray has given up restarting it
                raise
            self._requeue(encoder, rows, str(lost))
            return
        if not rows:
            self._addresses[encoder] = reply
            return
        vectors, n_tokens = reply
        self._job.write(rows, vectors)
        self._n_lost.pop(rows, None)
        self._report(len(rows), n_tokens)
        self._by_node[node] += len(rows)
        self._node_progress(node)(self._by_node[node], None)

    def _requeue(self, encoder: Any, rows: range, reason: str) -> None:  # noqa: ANN401 - Ray's
        """Return this range and the others of a lost encoder to the queue."""
        logger.info("%s", reason)
        others = [call for call, (owner, _) in self._calls.items() if owner is encoder]
        pending = [rows, *(self._calls.pop(call)[1] for call in others)]
        del self._addresses[encoder]
        self._await_start(encoder)
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
