"""State of the process that a connection to a Ray cluster leaves unchanged."""

from __future__ import annotations

import ctypes
import signal
from typing import Any

import pytest

from wikidx.indexer.embedding.cluster.nodes import connect

pytest.importorskip("ray", reason="needs the extra 'ray'")


def handler_of(number: int) -> int | None:
    """Return the address of a signal's handler, the first field of C's struct sigaction."""
    action = ctypes.create_string_buffer(1_024)
    assert ctypes.CDLL(None).sigaction(number, None, action) == 0
    return ctypes.c_void_p.from_buffer(action).value


@pytest.mark.slow  # Ray and Java: ten seconds
def test_faults_are_handled_as_before(cluster: Any) -> None:  # noqa: ANN401 - Ray's own type
    """Ray's own handlers, and none after its end, would end a process at the first null check of the Java in it (Lucene)."""
    before = handler_of(signal.SIGSEGV)
    assert before  # pytest's own
    with connect(cluster.address):
        assert handler_of(signal.SIGSEGV) == before
    assert handler_of(signal.SIGSEGV) == before
