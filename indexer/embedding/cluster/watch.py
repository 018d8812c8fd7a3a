"""The encoders of a job on a Ray cluster, watched: a lost one is replaced, what it was busy with given to another one."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.corpora.errors import IdxError, InputError, MissingExtraError, StorageError
from wikidx.corpora.progress import Progress
from wikidx.indexer.embedding.options import Share
from wikidx.indexer.embedding.pipeline import Job, Report

from .nodes import load_ray, nodes, pinned
from .places import Place, shard_name
from .worker import Delivered, Embedder, Ledger, Loss, State

logger = logging.getLogger(__name__)

TRIES = 3  # encoders that may be lost over one shard, or one in the place of the other before they have any

_POLL_S = 0.3
_LOOK_S = 10.0
_FETCHING = 4  # shards fetched from an exchange at once
_OUT_OF_MEMORY = ("OutOfMemory", "low on memory", "(OOM)")


class Lost(IdxError):
    """A process on the cluster, or its node, is gone."""


class Watch:
    """The encoders of a job, and what is heard of them."""

    def __init__(self, job: Job, todo: list[range], place: Place, folder: Path) -> None:
        self._ray, self._job, self._place, self._folder = load_ray(), job, place, folder
        self._share = job.resources.share or Share(1, 0, None)
        here, found = self._ray.get_runtime_context().get_node_id(), nodes()
        self._addresses = {node.id: node.address for node in found}
        self._looked = time.monotonic()
        pin = next((pinned(node) for node in found if node.id == here), "DEFAULT")  # softly Ray may put it elsewhere, to be lost there
        self._ledger = self._ray.remote(num_cpus=0)(Ledger).options(scheduling_strategy=pin).remote(todo)
        self._fetching = ThreadPoolExecutor(_FETCHING)
        self._fetched = list[Future[None]]()
        self._workers = dict[str, Any]()  # name -> actor
        self._running = dict[Any, str]()  # future -> name
        self._idle = list[str]()
        self._n_vain = dict[str, int]()  # name -> how many were lost in its place, one after the other, that had no shard
        self._n_started = 0
        self._token = secrets.token_hex(4)  # of a build that was given up encoders may still be writing
        for _ in job.resources.devices[: len(todo)]:
            self._start()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in (*self._workers.values(), self._ledger):
            self._ray.kill(actor)
        self._fetching.shutdown(cancel_futures=True)

    def follow(self, report: Report, node_progress: Callable[[str], Progress]) -> None:
        """Watch until every shard is at its place."""
        n_passages = n_tokens = 0
        progress = dict[str, Progress]()
        while True:
            self._hear()
            state: State = self._asked(self._ledger.state.remote())
            report(state.n_passages - n_passages, state.n_tokens - n_tokens)
            n_passages, n_tokens = state.n_passages, state.n_tokens
            for node, n_encoded in state.by_node.items():
                address = self._address(node)
                if address not in progress:
                    progress[address] = node_progress(address)
                progress[address](n_encoded, None)
            self._receive(state.delivered)
            if not state.n_left:
                break
            self._employ(state.n_waiting)
            self._look()
        for fetched in self._fetched:
            fetched.result()

    def _hear(self) -> None:
        """Wait a moment for encoders that end, in one way or another."""
        if not self._running:
            time.sleep(_POLL_S)
            return
        ended, _ = self._ray.wait(list(self._running), timeout=_POLL_S)
        for future in ended:
            worker = self._running.pop(future)
            node = self._asked(self._ledger.node.remote(worker))
            try:
                with translated(f"node {self._address(node)}" if node else "an encoder that could not start"):
                    self._ray.get(future)
            except Lost as lost:
                self._replace(worker, str(lost))
            else:
                self._idle.append(worker)

    def _replace(self, worker: str, reason: str) -> None:
        logger.info("%s: %s", worker, reason)
        self._ray.kill(self._workers.pop(worker))  # it may only be out of reach
        loss: Loss | None = self._asked(self._ledger.lose.remote(worker))
        n_vain, over = self._n_vain.pop(worker) + 1, "one after the other while they had no shard"
        if loss is not None:
            n_vain, over = 0, f"over rows {loss.rows.start:,} to {loss.rows.stop - 1:,}"
        if (n_times := loss.n_times if loss is not None else n_vain) >= TRIES:
            raise IdxError(f"{n_times} encoders were lost {over}, the last one so: {reason}; the finished shards are kept")
        self._start(n_vain)

    def _employ(self, n_waiting: int) -> None:
        """Have idle encoders go on where shards came back from one that was lost."""
        for _ in range(min(n_waiting, len(self._idle))):
            self._run(self._idle.pop())

    def _look(self) -> None:
        """Look now and then whether an encoder still has room anywhere: for one that waits in vain Ray would wait for ever."""
        if time.monotonic() - self._looked < _LOOK_S:
            return
        self._looked, share, found = time.monotonic(), self._share, nodes()
        self._addresses |= {node.id: node.address for node in found}
        if not any(node.n_cpus >= share.n_cpus and node.n_gpus >= share.n_gpus for node in found):
            raise IdxError(
                f"none of the {len(found)} nodes that are left has {share.n_cpus} processors and {share.n_gpus} GPUs for an encoder: "
                "start some and run the same command again; the finished shards are kept"
            )

    def _start(self, n_vain: int = 0) -> None:
        self._n_started += 1
        worker, share = f"encoder-{self._n_started}-{self._token}", self._share
        actor = self._ray.remote(num_cpus=share.n_cpus, num_gpus=share.n_gpus, scheduling_strategy="SPREAD")(Embedder)
        self._workers[worker] = actor.remote(worker, self._job, self._place, self._ledger)
        self._n_vain[worker] = n_vain
        self._run(worker)

    def _run(self, worker: str) -> None:
        self._running[self._workers[worker].run.remote()] = worker

    def _receive(self, delivered: list[Delivered]) -> None:
        for rows, ticket in delivered:
            self._fetched.append(self._fetching.submit(take_in, self._job, self._place, self._folder, Delivered(rows, ticket)))
        for fetched in [fetched for fetched in self._fetched if fetched.done()]:
            fetched.result()
            self._fetched.remove(fetched)

    def _asked(self, answer: Any) -> Any:  # noqa: ANN401 - what the ledger answers
        try:
            with translated("the process that shares out the work"):
                return self._ray.get(answer)
        except Lost as lost:
            raise IdxError(f"{lost}: run the same command again, it goes on from the finished shards") from lost

    def _address(self, node: str) -> str:
        return self._addresses.get(node, node)


def take_in(job: Job, place: Place, folder: Path, delivered: Delivered) -> None:
    """Fetch the vectors of some rows that were handed over, into a folder, and write them."""
    path = folder / shard_name(delivered.rows)
    place.receive(path, delivered.ticket)
    job.write(delivered.rows, np.load(path))
    path.unlink()


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate what Ray raises for work that was done elsewhere.

    Raises:
        Lost: the process, or its node, is gone.
        IdxError: what the work raised, with where it was done.
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
