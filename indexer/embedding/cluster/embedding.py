"""Embedding on a Ray cluster: the shards of a job as work for encoders on its nodes, one a GPU or a share of the processors.

This process, which must be connected to the cluster (``nodes.connected``), compares the nodes before any work starts, starts the
encoders and watches them. What a lost one was busy with is given to another one, and a new one takes its place where there is room.

The bytes are those of one machine of the same kind whose torch has as many threads as each encoder has processors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence

from wikidx.corpora.artifacts.home import home
from wikidx.corpora.errors import ArtifactMismatch, IdxError
from wikidx.corpora.passage import Passage
from wikidx.corpora.progress import Progress
from wikidx.corpora.store import PassageStore
from wikidx.indexer.embedding.options import ClusterOptions, Resources
from wikidx.indexer.embedding.pipeline import Job, Measured, Report
from wikidx.indexer.encoders.spec import EncoderSpec, weights_of
from wikidx.indexer.vectors.file import VectorFile

from .nodes import check_shared, check_versions, load_ray, nodes, on_each_node
from .places import Exchanged, Place, check_exchange, exchanged, shard_name, shared_home
from .watch import Watch, take_in, translated
from .worker import Delivered, time_sample

_TIMED_S = 300.0  # in which a node must have become free, and have loaded and timed an encoder

_checked = set[tuple[frozenset[str], str]]()  # nodes, by ids that Ray uses once, and what they were found to share


def check_cluster(options: ClusterOptions) -> None:
    """Find what would stop the work, before any starts: versions, and that files reach all nodes. The same nodes are asked once.

    Raises:
        IdxError: a node has other versions, or does not see the data home or the exchange; the message names it.
        InputError, MissingExtraError, StorageError: the exchange cannot be used here.
    """
    these = frozenset(node.id for node in nodes()), options.exchange or str(home())
    if these in _checked:
        return
    check_versions()
    if options.exchange is not None:
        check_exchange(options.exchange)
    else:
        home().mkdir(parents=True, exist_ok=True)
        check_shared(home())
    _checked.add(these)


def embed_on_ray(job: Job, file: VectorFile, report: Report, node_progress: Callable[[str], Progress]) -> None:
    """Encode shards on the cluster; ``job.resources.share`` says what each encoder gets.

    Args:
        job: what to do.
        file: where the vectors go.
        report: called with the passages and tokens encoded since the last call; passages below 0 where some were lost.
        node_progress: see ``EmbedProgress.node``.

    Raises:
        IdxError: a node has other versions, passages or weights, or does not see the files, found before work starts; an encoder failed;
            or too many were lost over one shard.
        StorageError: shards cannot be written or fetched.
    """
    share = job.resources.share
    if share is None:
        raise ValueError("the job is for this machine, not for a cluster")
    check_cluster(ClusterOptions(cpus=share.n_cpus, exchange=share.exchange))
    store, weights = job.reopen(), weights_of(job.spec)
    place, left = _place(job, file, store, weights, report)
    try:
        if left:
            _check_nodes(place, job.spec, weights, opens_store=not share.exchange)
            with Watch(job, left, place, file.folder) as watch:
                watch.follow(report, node_progress)
    finally:
        place.end({shard_name(rows) for rows in file.unfinished()})


def measured_on_ray(spec: EncoderSpec, found: Resources, passages: Sequence[Passage]) -> Measured:
    """Time an encoder on a node of the cluster; raises ``IdxError`` if that cannot be done there, or none has room for it for minutes."""
    ray, share = load_ray(), found.share
    if share is None:
        raise ValueError("the resources are this machine's, not a cluster's")
    timing = ray.remote(num_cpus=share.n_cpus, num_gpus=share.n_gpus, max_retries=0)(time_sample)
    answer = timing.remote(spec, found, None if share.exchange else home(), list(passages))
    if not ray.wait([answer], timeout=_TIMED_S)[0]:
        ray.cancel(answer, force=True)
        raise IdxError(
            f"no node has timed an encoder within {_TIMED_S:g} s: other work may have taken the {share.n_cpus} processors and "
            f"{share.n_gpus} GPUs that it needs ('ray status' tells): try again when there is room"
        )
    with translated("timing an encoder on a node"):
        timed: Measured = ray.get(answer)
    return timed


def _place(job: Job, file: VectorFile, store: PassageStore, weights: dict[str, str], report: Report) -> tuple[Place, list[range]]:
    """Return where the files are, and which shards are left when those have been fetched that an exchange still has."""
    share = job.resources.share
    if share is None or share.exchange is None:
        return shared_home(store, file.folder), file.unfinished()
    decisive = [store.fingerprint, weights, job.spec.name, job.resources.precision, file.range_rows]
    place = exchanged(share.exchange, store, hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:24])
    return place, list(_not_waiting(job, place, file, report))


def _not_waiting(job: Job, place: Exchanged, file: VectorFile, report: Report) -> Iterator[range]:
    waiting = place.waiting()
    for rows in file.unfinished():
        if shard_name(rows) in waiting:
            take_in(job, place, file.folder, Delivered(rows, waiting[shard_name(rows)]))
            report(len(rows), 0)
        else:
            yield rows


def _check_nodes(place: Place, spec: EncoderSpec, weights: dict[str, str], *, opens_store: bool) -> None:
    """Check that every node has the passages, where they are shared, and the weights."""

    def found() -> dict[str, str]:
        if opens_store:
            place.open()
        return weights_of(spec)

    for node, there in on_each_node(found).items():
        differing = sorted(name for name in weights.keys() | there.keys() if weights.get(name) != there.get(name))
        if differing:
            raise ArtifactMismatch(
                f"node {node.address} has another checkpoint of '{spec.name}' than this machine ({', '.join(differing)}): "
                "put the same files on all nodes"
            )
