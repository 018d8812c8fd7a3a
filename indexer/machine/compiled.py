"""Decorator ``kernel``, which compiles inner loops. They run without the GIL and are cached on disk as machine code.

numba reuses a cached kernel while the kernel's own file is unchanged, even if a called kernel or a used constant in another file
has changed. Therefore the cache folder of a file's kernels is named by a hash of the file and of all project files that it
imports, directly or indirectly: no stale code runs, and a change in other files recompiles nothing. Constants are frozen when a
kernel is compiled; values that tests vary are arguments.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from numba import config, njit

ROOT = Path(__file__).parents[3]  # the folder that contains ``wikidx``
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_PREFIX = "kernels-"


class Kernel(Protocol):
    """A compiled function and its Python original. Calls are not type-checked: numba mixes int and np.int64, which mypy distinguishes."""

    py_func: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run the compiled function."""


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile a function of arrays and numbers on its first call; divisions by zero give inf and nan, as in numpy."""
    user_folder = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_folder(Path(function.__code__.co_filename), user_folder))  # numba reads it only here
    try:
        compiled: Kernel = njit(nogil=True, cache=True, error_model="numpy")(function)
        return compiled
    finally:
        config.CACHE_DIR = user_folder


@functools.cache
def _cache_folder(source: Path, user_folder: str) -> Path:
    """Return the cache folder for a file's kernels, in NUMBA_CACHE_DIR if set, else next to the file; remove older folders there."""
    prefix = f"{_PREFIX}{source.stem}-"
    name = prefix + sources_hash(_sources(source))
    if user_folder:
        return Path(user_folder) / name
    cache = source.parent / "__pycache__"
    if not (cache / name).exists():
        for old in cache.glob(f"{prefix}*"):
            shutil.rmtree(old, ignore_errors=True)
    return cache / name


def cache_folders() -> list[Path]:
    """Return the folders of kernels compiled so far, current and outdated."""
    if config.CACHE_DIR:
        return sorted(Path(config.CACHE_DIR).glob(f"{_PREFIX}*"))
    return sorted(folder for cache in Path(__file__).parents[1].rglob("__pycache__") for folder in cache.glob(f"{_PREFIX}*"))


def sources_hash(files: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files of this project, in a checkout or an installation."""
    digest = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{os.path.relpath(path, ROOT)}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _sources(source: Path) -> set[Path]:
    """Return a file and all files of this project that it imports, directly or indirectly."""
    pending, seen = [source], {source}
    while pending:
        new = _imported_files(pending.pop()) - seen
        seen |= new
        pending += new
    return seen


@functools.cache
def _imported_files(source: Path) -> set[Path]:
    """Return the files of this project that a file imports: modules, and packages by their ``__init__``."""
    candidates = (file for name in _imported_names(source) for file in (ROOT / f"{name}.py", ROOT / name / "__init__.py"))
    return {file for file in candidates if file.is_file()}


def _imported_names(source: Path) -> Iterator[str]:
    """Yield imported names as paths without suffix; ``from a import b`` yields ``a`` and ``a/b``, because b may be a module."""
    package = Path(os.path.relpath(source.parent, ROOT)).parts
    for dots, module, names in _IMPORT.findall(source.read_bytes()):
        parents = package[: len(package) - len(dots) + 1] if dots else ()
        base = "/".join((*parents, *filter(None, module.decode().split("."))))
        imported = [name.split()[0].decode().replace(".", "/") for name in names.strip(b"()").split(b",") if name.split()]
        yield from (base, *(f"{base}/{name}" for name in imported)) if base else imported
