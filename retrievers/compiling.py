"""Compilation of the kernels of BM25 and of exact search, by their use in processes of their own, which leave them in the cache.

Such a process is ``python -m wikidx.retrievers.compiling bm25``, ``exact``, or ``search``: of BM25, what a search takes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any

from wikidx.base.errors import IdxError

_TEXT = 10 * "A river runs through the desert, and the other one to the sea. "  # so long that the texts have a vocabulary of phrases


def is_needed() -> bool:
    """Return whether BM25's kernels are not in the cache, and can be put there."""
    from wikidx.indexer.indexes.postings.selection import select_candidates

    return select_candidates.can_be_compiled_elsewhere()


def compile_kernels(*kinds: str) -> None:
    """Compile kernels, each kind in a process, which ends with this one, and wait for them.

    Raises:
        IdxError: a process failed; its own lines say why.
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-m", __name__]
    try:
        processes = [subprocess.Popen([*command, kind], stdin=reading, stdout=subprocess.DEVNULL) for kind in kinds]
        statuses = [process.wait() for process in processes]
    finally:
        os.close(reading)
        os.close(writing)
    if any(statuses):
        raise IdxError("the inner loops cannot be compiled: the lines above say why")


def _use_bm25() -> None:
    from wikidx.base.compiled import compile_always

    compile_always()
    _search(3_000)


def _search(n_texts: int = 100) -> None:
    """Build an index of some texts, by default of so few that Python builds it, and compile the kernels that search it."""
    from wikidx.base.compiled import compile_always
    from wikidx.retrievers.build_and_open import build
    from wikidx.retrievers.options import SearchOptions

    with tempfile.TemporaryDirectory() as folder:
        os.environ["IDX_HOME"] = folder
        with build((f"{n}: {_TEXT}" for n in range(n_texts)), show_progress=False) as searcher:
            compile_always()
            searcher.search_groups([["a river", "a desert"]], SearchOptions(k=1, depth=10, rerank="primary"))


def _use_exact_search() -> None:
    import numpy as np

    from wikidx.base.compiled import compile_always
    from wikidx.indexer.indexes.exact.cpu import CpuEngine

    compile_always()
    for dtype, components in ((np.float32, np.float32), (np.float16, np.float32), (np.int8, np.int32)):
        queries: Any = np.ones((1, 4 if dtype is np.int8 else 8), components)
        CpuEngine(np.ones((2, 8), dtype), np.empty(0, np.int64)).search(queries, 1)


_TASKS = {"bm25": _use_bm25, "search": _search, "exact": _use_exact_search}


def _end_with_parent() -> None:
    """End this process when its standard input is closed, as it is when the process that started it has ended."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one gets it, too
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _TASKS[sys.argv[1]]()
