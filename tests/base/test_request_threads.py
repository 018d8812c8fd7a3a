"""Threads for requests: whoever waits for a call that is cancelled is told, and a forked process has threads of its own."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import CancelledError, Future, as_completed

import pytest

from wikidx.base.errors import ClosedError
from wikidx.base.net.request_threads import RequestThreads


def test_results_and_errors_come_back() -> None:
    with RequestThreads(2) as threads:
        assert list(threads.map(abs, range(-5, 5))) == [abs(n) for n in range(-5, 5)]
        with pytest.raises(ZeroDivisionError):
            threads.submit(divmod, 1, 0).result()
    with pytest.raises(ClosedError, match="the connection is closed"):
        threads.submit(abs, 1)


def test_a_call_that_has_not_begun_ends_with_the_threads_and_one_that_has_goes_on() -> None:
    may_end, ended = threading.Event(), list[Future[bool]]()
    threads = RequestThreads(1)
    jobs = [threads.submit(may_end.wait, 30) for _ in range(3)]
    waiting = threading.Thread(target=lambda: ended.extend(as_completed(jobs)))
    waiting.start()
    threads.shutdown()
    may_end.set()
    waiting.join(30)
    assert (len(ended), jobs[0].result()) == (3, True)
    with pytest.raises(CancelledError):
        jobs[1].result()


def test_a_fork_has_threads_of_its_own() -> None:
    with RequestThreads(1) as threads:
        assert threads.submit(abs, -1).result() == 1
        child = os.fork()
        if not child:
            signal.alarm(20)  # what hangs is killed
            os._exit(threads.submit(abs, -7).result())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
