"""``kernel``: how the inner loops are compiled. They run without the GIL and are cached on disk, in machine code.

numba itself takes a cached kernel for fresh as long as the kernel's own file is unchanged, even if a kernel that it calls or a constant
that it uses, in another file, is not. Therefore the cache is a folder named by a hash of all sources: whatever changes in them, nothing
stale runs. Constants are frozen when a kernel is compiled; what a test would vary is an argument.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from numba import config, njit

ROOT = Path(__file__).parents[1]
_PACKAGES = ("indexer", "retrievers")  # those with kernels
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
    """Return the folder for the sources as they are: below the one that NUMBA_CACHE_DIR names, or here, where earlier ones are removed."""
    name = f"{_PREFIX}{sources_hash(ROOT)}"
    if of_user:
        return Path(of_user) / name
    here = Path(__file__).parent / "__pycache__"
    if not (here / name).exists():
        for old in here.glob(f"{_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
    return here / name


def sources_hash(root: Path, packages: Sequence[str] = _PACKAGES) -> str:
    """Return a hash of packages, in a checkout or an installation."""
    hashed = hashlib.sha256()
    for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
        content = path.read_bytes()
        hashed.update(f"{path.relative_to(root).as_posix()}\n{len(content)}\n".encode() + content)
    return hashed.hexdigest()[:16]
