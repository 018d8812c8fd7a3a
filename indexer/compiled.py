"""``kernel``: how the inner loops are compiled. They run without the GIL and are cached on disk, in machine code.

numba itself takes a cached kernel for fresh as long as the kernel's own file is unchanged, even if a kernel that it calls, in another file,
is not. Therefore the cache is a folder named by a hash of all files with kernels: whatever changes in them, nothing stale runs.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from numba import config, njit

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("indexer", "retrievers")
_PREFIX = "kernels-"


class Kernel(Protocol):
    """A compiled function, and the Python that it was. Its callers see no types: numba mixes int and np.int64, which mypy keeps apart."""

    py_func: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run it."""


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile a function of arrays and numbers when it is first called; divisions by zero give inf and nan, as numpy's do."""
    of_user = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_folder(of_user))  # numba looks at it here only; where it cannot write, it takes its own default
    try:
        compiled: Kernel = njit(nogil=True, cache=True, error_model="numpy")(function)
        return compiled
    finally:
        config.CACHE_DIR = of_user


@functools.cache
def _cache_folder(of_user: str) -> Path:
    """Return the folder for the sources as they are, below the one that NUMBA_CACHE_DIR names; those of earlier sources are removed."""
    base = Path(of_user) if of_user else Path(__file__).parent / "__pycache__"
    folder = base / f"{_PREFIX}{sources_hash(_ROOT)}"
    if not folder.exists():
        for old in base.glob(f"{_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
    return folder


def sources_hash(root: Path) -> str:
    """Return a hash of all files with kernels in a checkout or an installation."""
    hashed = hashlib.sha256()
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        content = path.read_bytes()
        if b"@kernel" in content:
            hashed.update(f"{path.relative_to(root).as_posix()}\n{len(content)}\n".encode() + content)
    return hashed.hexdigest()[:16]
