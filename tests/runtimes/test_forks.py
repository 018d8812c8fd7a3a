"""Forks beside threads that make the first calls of kernels, as a trainer's loaders of data do; and signals amid searches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

FORKS = """
import os, shutil, signal, sys, threading
from pathlib import Path
import numpy as np
from wikidx.base.compiled import compile_always, kernel
from wikidx.retrievers.opening import open_searcher

@kernel
def total(numbers):
    return numbers.sum()

def begin_and_fork(search, n_forks):
    for _ in range(4):
        threading.Thread(target=lambda: [search() for _ in range(1000)], daemon=True).start()
    return any([status_of(search) for _ in range(n_forks)])

def status_of(work):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    signal.alarm(60)  # what hangs is killed
    os._exit(not work())

searcher, way = open_searcher("sample", "bm25"), sys.argv[1]
search = lambda: len(searcher.search(["river"])[0]) if way != "compiled" else total(np.arange(9))
if way != "interpreted":
    compile_always()
if way == "loaded":
    os.waitpid(os.fork() or os._exit(not search()), 0)  # until all kernels are in the cache
for _ in range(int(sys.argv[2])):  # processes that have imported everything and called no kernel
    shutil.rmtree(Path(__file__).parent / "__pycache__", ignore_errors=True)
    if status := status_of(lambda: not begin_and_fork(search, int(sys.argv[3]))):
        sys.exit(status)
"""


@pytest.mark.parametrize(("way", "n_processes", "n_forks"), [("loaded", 4, 3), ("interpreted", 4, 3), ("compiled", 1, 3)])
def test_a_fork_beside_the_first_searches_waits_for_no_thread_that_it_lacks(
    way: str, n_processes: int, n_forks: int, sample_home: Path, tmp_path: Path
) -> None:
    """Later forks meet no first call: a child takes as long as the threads beside it."""
    (tmp_path / "forks.py").write_text(FORKS)
    command = [sys.executable, str(tmp_path / "forks.py"), way, str(n_processes), str(n_forks)]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == 0


INTERRUPTS = """
import signal
from wikidx.base.compiled import compile_always
from wikidx.retrievers.opening import open_searcher

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

searcher, n_stopped = open_searcher("sample", "bm25"), 0
compile_always()
groups = [[f"river {i} of Egypt", f"queen{i}"] for i in range(500)]
expected = searcher.search_groups(groups[:5], k=5).to_dict()
signal.signal(signal.SIGALRM, stop)
for i in range(200):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 * (1 + i % 40))
        searcher.search_groups(groups, k=5)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop:
        n_stopped += 1
assert searcher.search_groups(groups[:5], k=5).to_dict() == expected
assert n_stopped > 10
"""


def test_a_search_may_be_interrupted(sample_home: Path) -> None:
    assert subprocess.run([sys.executable, "-c", INTERRUPTS], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == 0
