"""Embedding on a Ray cluster: passages go to encoders on its nodes, one per GPU or share of the CPUs, and vectors come back.

This process, which must be connected to the cluster (``nodes.connected``), checks the nodes before any work starts, reads passages and
writes vectors as a job on one machine does. Ray restarts a lost encoder where there is room; others redo its pending ranges.

The bytes are those of one machine of the same kind whose torch has as many threads as each encoder has CPUs.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wikidx.corpora.artifacts.home import home
from wikidx.corpora.errors import ArtifactMismatch, IdxError, InputError, MissingExtraError, StorageError
from wikidx.corpora.passage import Passage
from wikidx.corpora.progress import Progress
from wikidx.indexer.embedding.options import Resources, Share
from wikidx.indexer.embedding.pipeline import Job, Measured, Report
from wikidx.indexer.encoders.spec import EncoderSpec, weights_of

from .encoder import Encoder, set_up, time_sample
from .nodes import check_versions, load_ray, nodes, on_each_node

logger = logging.getLogger(__name__)

TRIES = 3  # lost encoders before a range is given up

_AHEAD = 2  # pending ranges per encoder: one is tokenised or transferred while the other is encoded
_LOOK_S = 10.0  # wait for an answer before checking whether nodes have room for an encoder
_TIMED_S = 300.0  # limit for a node to become free, and to load and time an encoder
_OUT_OF_MEMORY = ("OutOfMemory", "low on memory", "(OOM)")

_checked = set[frozenset[str]]()  # sets of nodes with equal versions, by Ray's unique ids


class Lost(IdxError):
    """A process on the cluster, or its node, is lost."""


def check_cluster() -> None:
    """Raise ``IdxError`` if a node has other versions, before any work starts; the message names it. The same nodes are checked once."""
    these = frozenset(node.id for node in nodes())
    if these not in _checked:
        check_versions()
        _checked.add(these)


def embed_on_ray(job: Job, todo: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
    """Encode ranges of rows on the cluster, with ``job.resources.share`` for each encoder.

    Args:
        job: the embedding job.
        todo: ranges to embed.
        report: called with the passages and tokens of each written range.
        node_progress: see ``EmbedProgress.node``.

    Raises:
        IdxError: a node has other versions or weights, found before work starts; an encoder failed; or too many were lost over one range.
        OSError: a disk error.
    """
    check_cluster()
    if todo:
        _check_weights(job.spec)
        work = _Work(job, todo, report, node_progress)
        try:
            work.do()
        finally:
            work.end()


def measured_on_ray(spec: EncoderSpec, found: Resources, passages: Sequence[Passage]) -> Measured:
    """Time an encoder on a node of the cluster; raises ``IdxError`` if that fails, or no node has room for it for minutes."""
    ray, share = load_ray(), _share(found)
    timing = ray.remote(num_cpus=share.n_cpus, num_gpus=share.n_gpus, max_retries=0)(time_sample)
    answer = timing.remote(spec, found, home(), list(passages))
    if not ray.wait([answer], timeout=_TIMED_S)[0]:
        ray.cancel(answer, force=True)
        raise IdxError(
            f"no node has timed an encoder within {_TIMED_S:g} s: other work may have taken the {share.n_cpus} processors and "
            f"{share.n_gpus} GPUs that it needs ('ray status' tells): try again when there is room"
        )
    with translated("timing an encoder on a node"):
        timed: Measured = ray.get(answer)
    return timed


class _Remote:
    """An encoder on a node, and its pending ranges; ``address`` is None until Ray has started it."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - Ray's
        self.actor = actor
        self.calls = dict[Any, range]()
        self.await_start()

    def await_start(self) -> None:
        """Request its node; Ray retries the call until the encoder has started."""
        self.address: str | None = None
        self.started = self.actor.node.options(max_task_retries=-1).remote()


class _Work:
    """The encoders of a job, and the ranges not assigned to any."""

    def __init__(self, job: Job, todo: Sequence[range], report: Report, node_progress: Callable[[str], Progress]) -> None:
        self._ray, self._job, self._store, self._share = load_ray(), job, job.reopen(), _share(job.resources)
        self._todo, self._n_lost = deque(todo), Counter[range]()
        self._report, self._node_progress = report, node_progress
        self._by_node, self._progress = Counter[str](), dict[str, Progress]()
        remote = self._ray.remote(
            num_cpus=self._share.n_cpus,
            num_gpus=self._share.n_gpus,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_AHEAD,
            scheduling_strategy="SPREAD",
        )(Encoder)
        self._encoders = [_Remote(remote.remote(job.spec, job.resources, home())) for _ in job.resources.devices[: len(todo)]]

    def do(self) -> None:
        """Assign ranges and write the results until none is left."""
        while self._todo or any(encoder.calls for encoder in self._encoders):
            for encoder in self._encoders:
                self._hand_out(encoder)
            asked = {call: encoder for encoder in self._encoders for call in encoder.calls}
            asked |= {encoder.started: encoder for encoder in self._encoders if encoder.address is None}
            answered, _ = self._ray.wait(list(asked), timeout=_LOOK_S)
            for call in answered:
                self._take(asked[call], call)
            if not answered and all(encoder.address is None for encoder in self._encoders):
                self._check_room()

    def end(self) -> None:
        """End the encoders."""
        for encoder in self._encoders:
            self._ray.kill(encoder.actor)

    def _hand_out(self, encoder: _Remote) -> None:
        """Assign ranges to an encoder with room; a range that was lost before goes alone, to show which range crashes encoders."""
        while self._todo and encoder.address is not None:
            rows = self._todo[0]
            if len(encoder.calls) >= (1 if any(self._n_lost[one] for one in (rows, *encoder.calls.values())) else _AHEAD):
                return
            self._todo.popleft()
            encoder.calls[encoder.actor.encode.remote(rows, list(self._store.read(rows.start, rows.stop)))] = rows

    def _take(self, encoder: _Remote, call: Any) -> None:  # noqa: ANN401 - Ray's
        """Process an answer: a started encoder, or vectors. The first loss reported for an encoder counts for all its pending ranges."""
        address = encoder.address
        try:
            with translated(f"node {address}" if address else "an encoder that could not start"):
                answer = self._ray.get(call)
        except Lost as lost:
            if address is None:  # Ray has given up restarting it
                raise
            self._lose(encoder, str(lost))
            return
        if address is None:
            encoder.address = next((node.address for node in nodes() if node.id == answer), answer)
            return
        rows, (vectors, n_tokens) = encoder.calls.pop(call), answer
        self._job.write(rows, vectors)
        self._report(len(rows), n_tokens)
        self._by_node[address] += len(rows)
        if address not in self._progress:
            self._progress[address] = self._node_progress(address)
        self._progress[address](self._by_node[address], None)

    def _lose(self, encoder: _Remote, reason: str) -> None:
        """Return a lost encoder's pending ranges to the queue."""
        logger.info("%s", reason)
        in_hand = list(encoder.calls.values())
        encoder.calls.clear()
        encoder.await_start()
        self._todo.extendleft(reversed(in_hand))
        self._n_lost.update(in_hand)
        for rows in in_hand:
            if self._n_lost[rows] >= TRIES:
                raise IdxError(
                    f"{TRIES} encoders were lost over rows {rows.start:,} to {rows.stop - 1:,}, the last one so: {reason}; "
                    "the finished vectors are kept"
                )

    def _check_room(self) -> None:
        """Check that a node has room for an encoder: Ray would wait for one for ever."""
        share, found = self._share, nodes()
        if not any(node.n_cpus >= share.n_cpus and node.n_gpus >= share.n_gpus for node in found):
            raise IdxError(
                f"none of the {len(found)} nodes that are left has {share.n_cpus} processors and {share.n_gpus} GPUs for an encoder: "
                "start some and run the same command again; the finished vectors are kept"
            )


def _share(found: Resources) -> Share:
    if found.share is None:
        raise ValueError("the resources are this machine's, not a cluster's")
    return found.share


def _check_weights(spec: EncoderSpec) -> None:
    """Check that every node has the weights of this machine."""
    here, there = weights_of(spec), home()

    def found() -> dict[str, str]:
        set_up(there, None)
        return weights_of(spec)

    for node, weights in on_each_node(found).items():
        differing = sorted(name for name in here.keys() | weights.keys() if here.get(name) != weights.get(name))
        if differing:
            raise ArtifactMismatch(
                f"node {node.address} has another checkpoint of '{spec.name}' than this machine ({', '.join(differing)}): "
                "put the same files on all nodes"
            )


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate Ray's exceptions for remote work.

    Raises:
        Lost: the process, or its node, is lost.
        IdxError: an exception of the work, with its location.
    """
    ray = load_ray()
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OSError) and not isinstance(error.cause, IdxError):
            named = f": {error.cause.filename}" if error.cause.filename else ""
            raise StorageError(f"{where}: {error.cause.strerror or error.cause}{named}; what is finished is kept") from error
        if isinstance(error.cause, MissingExtraError):
            raise InputError(f"{where}: {error.cause}") from error
        if isinstance(error.cause, IdxError):
            raise type(error.cause)(f"{where}: {error.cause}") from error
        raise
    except ray.exceptions.RayError as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ray.exceptions.OutOfMemoryError) or any(words in said for words in _OUT_OF_MEMORY):
            raise Lost(
                f"{where} ran out of memory, and Ray ended a process there: give each encoder more of a node (--ray-cpus), or say "
                "--batch-tokens with a smaller number"
            ) from error
        raise Lost(f"{where} was lost ({said:.200})") from error
