"""How the processes of shards are: asked again and again by a thread that does not wait for those that are slow to say."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from indexer.cluster.nodes import load_ray, nodes

from .replicas import Health, Replica, ReplicatedShard

_LOG = logging.getLogger("idx.server")

_LATE_S = 3.0  # without a word, after which others are asked rather
_LOST_S = 10.0  # ... and after which nobody waits any more
_ANSWER_S = 0.5  # in which most say how they are


def look(shards: Sequence[ReplicatedShard]) -> None:
    """Ask all replicas how they are: those that Ray has started again are asked from then on, those that do not answer no more."""
    ray, now = load_ray(), time.monotonic()
    asked = dict[Any, tuple[ReplicatedShard, Replica]]()
    for shard in shards:
        for replica in shard.replicas:
            if replica.asked is None:
                replica.asked = replica.handle.state.options(concurrency_group="state").remote(), now
            asked[replica.asked[0]] = shard, replica
    done, waiting = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)
    for reference in done:
        shard, replica = asked[reference]
        replica.asked = None
        _set(shard, replica, *_answered(replica, reference))
    for reference in waiting:
        shard, replica = asked[reference]
        silent_s = time.monotonic() - replica.asked[1] if replica.asked is not None else 0.0
        if silent_s >= _LOST_S:
            _set(shard, replica, Health.LOST, f"it has said nothing for {silent_s:.0f} s")
        elif silent_s >= _LATE_S and replica.health is Health.READY:
            _set(shard, replica, Health.LATE, f"it has said nothing for {silent_s:.0f} s")


def _answered(replica: Replica, reference: Any) -> tuple[Health, str]:  # noqa: ANN401 - Ray's
    """Take what a replica says of itself."""
    ray = load_ray()
    try:
        replica.state = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return Health.LOST, str(error.cause)
    except ray.exceptions.RayError as error:
        return Health.LOST, str(error)
    if replica.state.node != replica.node.id:  # its node was lost, and Ray has started it elsewhere
        replica.node = next((node for node in nodes() if node.id == replica.state.node), replica.node)
    return Health.READY, ""


def _set(shard: ReplicatedShard, replica: Replica, health: Health, reason: str) -> None:
    """Note how a replica is, and say so if that is new."""
    before, replica.health = replica.health, health
    if health is before:
        return
    where = f"shard {shard.number}, replica {replica.number} on node {replica.node.address}"
    if health is Health.READY:
        _LOG.warning("%s answers again", where)
    else:
        _LOG.warning("%s is %s: %s", where, health.value, reason)
