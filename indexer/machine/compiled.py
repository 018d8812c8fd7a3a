"""``kernel``: compilation of the inner loops. They run without the GIL and are cached on disk as machine code.

numba considers a cached kernel fresh if the kernel's own file is unchanged, even if a kernel that it calls or a constant that it uses, in
another file, has changed. Therefore the cache folder of a file's kernels is named by a hash of that file and of all that it imports from
this project, directly or not: no stale code runs, and a change elsewhere recompiles nothing. Constants are frozen when a kernel is
compiled; values that tests vary are arguments.
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
    """A compiled function, and its Python original. Its callers see no types: numba mixes int and np.int64, which mypy distinguishes."""

    py_func: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run it."""


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile a function of arrays and numbers on its first call; divisions by zero give inf and nan, as in numpy."""
    of_user = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_folder(Path(function.__code__.co_filename), of_user))  # numba reads it only here
    try:
        compiled: Kernel = njit(nogil=True, cache=True, error_model="numpy")(function)
        return compiled
    finally:
        config.CACHE_DIR = of_user


@functools.cache
def _cache_folder(source: Path, of_user: str) -> Path:
    """Return the folder for a file's kernels: below NUMBA_CACHE_DIR if that is set, or beside the file, where older ones are removed."""
    prefix = f"{_PREFIX}{source.stem}-"
    name = prefix + sources_hash(_sources(source))
    if of_user:
        return Path(of_user) / name
    here = source.parent / "__pycache__"
    if not (here / name).exists():
        for old in here.glob(f"{prefix}*"):
            shutil.rmtree(old, ignore_errors=True)
    return here / name


def sources_hash(files: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files of this project, in a checkout or an installation."""
    hashed = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        hashed.update(f"{os.path.relpath(path, ROOT)}\n{len(content)}\n".encode() + content)
    return hashed.hexdigest()[:16]


def _sources(source: Path) -> set[Path]:
    """Return a file and all files of this project that it imports, directly or not."""
    waiting, seen = [source], {source}
    while waiting:
        new = _imported(waiting.pop()) - seen
        seen |= new
        waiting += new
    return seen


@functools.cache
def _imported(source: Path) -> set[Path]:
    """Return the files of this project that a file imports: modules, and packages by their ``__init__``."""
    candidates = (file for name in _imported_names(source) for file in (ROOT / f"{name}.py", ROOT / name / "__init__.py"))
    return {file for file in candidates if file.is_file()}


def _imported_names(source: Path) -> Iterator[str]:
    """Yield imported names, as paths without suffix: of ``from a import b`` both ``a`` and ``a/b``, as b may be a module."""
    package = Path(os.path.relpath(source.parent, ROOT)).parts
    for dots, module, names in _IMPORT.findall(source.read_bytes()):
        above = package[: len(package) - len(dots) + 1] if dots else ()
        base = "/".join((*above, *filter(None, module.decode().split("."))))
        imported = [name.split()[0].decode().replace(".", "/") for name in names.strip(b"()").split(b",") if name.split()]
        yield from (base, *(f"{base}/{name}" for name in imported)) if base else imported
