"""A Ray cluster of several nodes on this machine, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conftest import ROOT

NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}

# A node that is gone is noticed after a second or two instead of half a minute.
_HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 6}
_STARTED_S = 120.0  # in which all nodes must have come; Ray's own 30 s are too few on a busy machine


@contextmanager
def environment_of_nodes() -> Iterator[None]:
    """Set the environment that the nodes' processes inherit; it is restored at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # otherwise other tests running in parallel starve them
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # of which Ray warns otherwise
        patch.setenv("PYTHONPATH", str(ROOT))  # they find this checkout
        yield


@contextmanager
def cluster_of(n_nodes: int) -> Iterator[Any]:  # noqa: ANN401 - Ray's own type
    """Start a head without work and nodes of one CPU each; stop them at the end."""
    with environment_of_nodes():
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "_system_config": _HEALTH}, shutdown_at_exit=True)
        try:
            for _ in range(n_nodes):
                cluster.add_node(wait=False, **NODE)
            cluster.wait_for_nodes(timeout=_STARTED_S)
            yield cluster
        finally:
            cluster.shutdown()
