"""What runs on the nodes of a Ray cluster while passages are embedded: encoders, and the ledger that says who makes which shard.

Plain classes, of which ``embedding`` makes actors.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.options import Resources, Share
from wikidx.indexer.embedding.pipeline import Job, Measured, PassageEncoder, embed_ranges, measured
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.page_checks import save_array

from .places import Place, shard_name

_REPORT_S = 0.5


class Delivered(NamedTuple):
    """A shard that a worker has handed over, and the ticket that it can be had for (``Place.hand_over``)."""

    rows: range
    ticket: str


class Loss(NamedTuple):
    """The shard that a lost worker was busy with, and how many workers have been lost over it."""

    rows: range
    n_times: int


class State(NamedTuple):
    """How far a job is.

    Attributes:
        delivered: the shards handed over since the last call.
        n_left: shards that are not handed over.
        n_waiting: of those, how many no worker has taken.
        n_passages: encoded, but for those of shards that were lost.
        n_tokens: encoded.
        by_node: node's id -> passages that it has encoded, lost ones too.
    """

    delivered: list[Delivered]
    n_left: int
    n_waiting: int
    n_passages: int
    n_tokens: int
    by_node: dict[str, int]


class Ledger:
    """Says who makes which shard, and what is done. A worker's shards are its own until it is said to be lost."""

    def __init__(self, todo: Sequence[range]) -> None:
        self._todo = deque(todo)
        self._n_left = len(self._todo)
        self._nodes = dict[str, str]()
        self._taken = dict[str, list[range]]()
        self._in_flight = Counter[str]()  # passages encoded, of shards that are not handed over
        self._delivered = list[Delivered]()
        self._losses = Counter[int]()
        self._n_finished = self._n_tokens = 0
        self._by_node = Counter[str]()

    def enter(self, worker: str, node: str) -> None:
        """Take note of a worker."""
        self._nodes[worker] = node
        self._taken.setdefault(worker, [])

    def node(self, worker: str) -> str | None:
        """Return a worker's node, None if it has not begun."""
        return self._nodes.get(worker)

    def take(self, worker: str) -> range | None:
        """Return the next shard for a worker; None if there is none, or the worker is taken for lost."""
        if worker not in self._taken or not self._todo:
            return None
        self._taken[worker].append(self._todo.popleft())
        return self._taken[worker][-1]

    def report(self, worker: str, n_passages: int, n_tokens: int) -> None:
        """Take note of what a worker has encoded."""
        if worker in self._taken:
            self._in_flight[worker] += n_passages
            self._n_tokens += n_tokens
            self._by_node[self._nodes[worker]] += n_passages

    def deliver(self, worker: str, delivered: Delivered) -> None:
        """Take note of a shard; from a worker that was taken for lost it counts for nothing, because another one makes it."""
        if delivered.rows in self._taken.get(worker, []):
            self._taken[worker].remove(delivered.rows)
            self._in_flight[worker] -= len(delivered.rows)
            self._n_finished += len(delivered.rows)
            self._n_left -= 1
            self._delivered.append(delivered)

    def lose(self, worker: str) -> Loss | None:
        """Take a worker for lost: its shards are for others, first the one that it was busy with, which is returned; None: it had none."""
        taken = self._taken.pop(worker, [])
        self._in_flight.pop(worker, None)
        self._todo.extendleft(reversed(taken))
        if not taken:
            return None
        self._losses[taken[0].start] += 1
        return Loss(taken[0], self._losses[taken[0].start])

    def state(self) -> State:
        """Return how far the job is."""
        delivered, self._delivered = self._delivered, []
        n_passages = self._n_finished + self._in_flight.total()
        return State(delivered, self._n_left, len(self._todo), n_passages, self._n_tokens, dict(self._by_node))


class Embedder:
    """Embeds shards with one encoder until there is none left.

    Args:
        worker: its name.
        job: what to do.
        place: where the files are.
        ledger: the ``Ledger``, as Ray hands it on.
    """

    def __init__(self, worker: str, job: Job, place: Place, ledger: Any) -> None:  # noqa: ANN401 - an actor
        self._worker, self._job, self._place, self._ledger = worker, job, place, ledger
        self._folder = Path()
        self._n_passages = self._n_tokens = 0
        self._reported = time.monotonic()

    def run(self) -> None:
        """Embed what the ledger gives; raises as ``pipeline.embed_ranges`` and ``Place`` do."""
        _get(self._ledger.enter.remote(self._worker, _node()))
        use_own_processors(self._job.resources.share)
        self._place.open()  # fetched once, if it must be, before anything else needs it
        self._folder = self._place.own_folder(self._worker)
        try:
            job = self._job._replace(reopen=self._place.open, write=self._write)
            embed_ranges(job, job.resources.devices[0], self._given(), self._report)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _given(self) -> Iterator[range]:
        while (rows := _get(self._ledger.take.remote(self._worker))) is not None:
            yield rows

    def _write(self, rows: range, vectors: Vectors) -> None:
        self._flush()
        save_array(self._folder / shard_name(rows), vectors)
        ticket = self._place.hand_over(self._folder / shard_name(rows))
        _get(self._ledger.deliver.remote(self._worker, Delivered(rows, ticket)))

    def _report(self, n_passages: int, n_tokens: int) -> None:
        self._n_passages += n_passages
        self._n_tokens += n_tokens
        if time.monotonic() - self._reported > _REPORT_S:
            self._flush()

    def _flush(self) -> None:
        self._ledger.report.remote(self._worker, self._n_passages, self._n_tokens)
        self._n_passages = self._n_tokens = 0
        self._reported = time.monotonic()


def use_own_processors(share: Share | None) -> None:
    """Have torch use the processors that an encoder has for its own: sums are rounded differently with another number of threads."""
    if share is not None and not share.n_gpus:
        with contextlib.suppress(ImportError):  # said when the model is loaded
            import torch

            torch.set_num_threads(share.n_cpus)


def time_sample(spec: EncoderSpec, found: Resources, shared_home: Path | None, passages: Sequence[Passage]) -> Measured:
    """Time an encoder on some passages; raises as ``PassageEncoder`` does."""
    if shared_home is not None:
        os.environ["IDX_HOME"] = str(shared_home)  # checkpoints may be there
    use_own_processors(found.share)
    return measured(PassageEncoder(spec, found), passages)


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _get(answer: Any) -> Any:  # noqa: ANN401 - what an actor answers
    import ray

    return ray.get(answer)
