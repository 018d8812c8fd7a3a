"""Decorator ``kernel``, which compiles inner loops with numba. Kernels run without the GIL; their machine code is cached on disk.

Compilation takes up to 40 s of processor time, once. For little data, kernels that are not compiled or loaded yet run in Python within
``interpreted``, which takes less time. The results are the same.

numba reuses a cached kernel while the kernel's own file is unchanged, even if another file has changed that defines a called kernel
or a constant. Therefore the cache folder of a file's kernels is named by a hash of that file and of all project files that it imports,
directly or indirectly: no stale code runs. A change in other files recompiles nothing. Constants are frozen when a kernel is compiled;
values that tests vary are arguments.

A kernel that Python calls returns no named tuple: the exception of a signal's handler, as of Ctrl-C, ends the process where numba calls
its class.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import math
import os
import re
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import numpy.ma

try:
    warnings.filterwarnings("error", "Environment variable 'NUMBA_", RuntimeWarning)  # instead of a traceback in a warning
    from numba import config, njit, types
    from numba.core import event, serialize
    from numba.core.compiler_lock import global_compiler_lock
    from numba.extending import typeof_impl
except (ValueError, RuntimeWarning) as error:
    from wikidx.base.errors import InputError

    given = ", ".join(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_"))
    raise InputError(f"numba refuses the environment's {given}: {str(error).splitlines()[0].rstrip('.')}: correct or unset it") from error

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]  # the folder that contains ``wikidx``
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_PREFIX = "kernels-"

_STEP_S = 2e-6  # time of a kernel in Python, for each array element that it reads
_LOADING_S, _COMPILING_S = 0.4, 5.0  # limits on a process's time in Python, for kernels that are cached, and for others


class _Interpretation:
    """Processor time that this process has spent in interpreted kernels."""

    spent_s = 0.0


_interpretation = _Interpretation()
_thread = threading.local()  # its ``python_s``, within ``interpreted``: time in Python so far and, by estimate, of this block


class Kernel:
    """A function of arrays and numbers that runs as machine code or, for little data, in Python.

    Calls are not type-checked: numba mixes int and np.int64, which mypy distinguishes.

    Attributes:
        py_func: the function in Python, which calls compiled kernels.
        compiled: numba's function. Its first call compiles it or loads it from the cache.
    """

    def __init__(self, function: Callable[..., Any], compiled: Any, cache: Path | None) -> None:  # noqa: ANN401 - numba has no types
        self.py_func, self.compiled, self._cache = function, compiled, cache
        get_call_template = compiled.get_call_template
        compiled.get_call_template = lambda args, kws: get_call_template(tuple(map(types.unliteral, args)), kws)  # not once for each number

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run the function."""
        python_s = getattr(_thread, "python_s", None)
        if python_s is not None and not getattr(self.compiled, "overloads", None) and python_s < self._limit_s:
            return self._interpret(*arguments)
        return self.compiled(*arguments)

    def _interpret(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run the function in Python, which warns of overflows where machine code does not."""
        start_s = time.thread_time()
        try:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                return self.interpreted(*arguments)
        finally:
            _interpretation.spent_s += time.thread_time() - start_s

    @property
    @functools.cache  # noqa: B019 - kernels are never deleted; ``cached_property`` of Python 3.11 has a lock, which a fork may find taken
    def _limit_s(self) -> float:
        """Time in Python from which machine code saves time."""
        return _LOADING_S if self._cache and self._is_in(self._cache) else _COMPILING_S

    def can_be_compiled_elsewhere(self) -> bool:
        """Return whether there is a cache, and no machine code of the function in it."""
        return self._cache is not None and not self._is_in(self._cache)

    def _is_in(self, cache: Path) -> bool:
        return any(cache.rglob(f"*.{self.py_func.__name__}-*.nbi"))

    @property
    @functools.cache  # noqa: B019
    def interpreted(self) -> Callable[..., Any]:
        """The function in Python, which calls other kernels in Python too."""
        names = self.py_func.__globals__
        used = {name: names[name] for name in self.py_func.__code__.co_names if name in names}
        kernels = {name: value.interpreted for name, value in used.items() if isinstance(value, Kernel)}
        return FunctionType(self.py_func.__code__, {**names, **kernels})


@typeof_impl.register(Kernel)  # type: ignore[untyped-decorator]
def _type_of_kernel(kernel: Kernel, context: object) -> types.Dispatcher:
    """Return numba's type of a kernel, so that kernels can call kernels."""
    return types.Dispatcher(kernel.compiled)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Return a kernel that compiles the function on its first call. Divisions by zero give inf and nan, as in numpy."""
    user_folder = config.CACHE_DIR
    cache = _cache_folder(Path(function.__code__.co_filename), kernels_folder())
    config.CACHE_DIR = str(cache)  # numba reads the setting only now
    try:
        return Kernel(function, njit(nogil=True, cache=True, error_model="numpy")(function), cache)
    except RuntimeError:  # there is no folder for a cache that this user may write
        _warn_of_no_cache()
        return Kernel(function, njit(nogil=True, error_model="numpy")(function), None)
    finally:
        config.CACHE_DIR = user_folder


@functools.cache
def _warn_of_no_cache() -> None:
    logger.warning("compiled inner loops cannot be kept, so that each process compiles them: let IDX_CACHE name a folder to write to")


class interpreted:  # noqa: N801 - named like a function, as contextlib's are; a search enters several, and a generator takes longer
    """Context in which kernels run in Python if that takes less time than loading or compiling them. The results are the same.

    Kernels that are already compiled or loaded run as machine code. Other threads are not affected.

    Args:
        n_steps: estimate of the number of array elements that the kernels read.
    """

    __slots__ = ("_is_outermost", "_n_steps")

    def __init__(self, n_steps: int) -> None:
        self._n_steps = n_steps

    def __enter__(self) -> None:
        self._is_outermost = not hasattr(_thread, "python_s")
        if self._is_outermost:
            _thread.python_s = _interpretation.spent_s + self._n_steps * _STEP_S

    def __exit__(self, *error: object) -> None:
        if self._is_outermost:
            del _thread.python_s


def compile_always() -> None:
    """Never run kernels in Python from now on."""
    _interpretation.spent_s = math.inf


@contextlib.contextmanager
def interpret_always() -> Iterator[None]:
    """Run all kernels within ``interpreted`` in Python, and ``compile_always`` afterwards."""
    _interpretation.spent_s = -math.inf
    try:
        yield
    finally:
        compile_always()


class _CompilationListener(event.Listener):  # type: ignore[misc]
    """Listener that logs one line when this process compiles its first kernel."""

    has_logged = False

    def on_start(self, event: object) -> None:
        if not self.has_logged:
            self.has_logged = True
            logger.warning("compiling inner loops, once: up to a minute of a processor, longer where other programs compute")

    def on_end(self, event: object) -> None:
        pass


event.register("numba:compile", _CompilationListener())

# numba finds the types of results by this function, and goes on with a null pointer where a signal's handler raises an exception in it. A
# cache that is not written in Python runs no handlers.
serialize._numba_unpickle = functools.cache(serialize._numba_unpickle)

# A fork waits until no kernel is being compiled or loaded: the child would wait for ever for a thread that it lacks. One thing happens
# outside of this lock, an import of numpy.ma by the first call of a kernel, which has a lock of its own; hence it is imported above.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)


def kernels_folder() -> Path | None:
    """Return the folder of the kernels: the environment's IDX_CACHE or NUMBA_CACHE_DIR, or the user's; None: each next to its code."""
    if given := os.environ.get("IDX_CACHE") or config.CACHE_DIR:
        return Path(given).expanduser()
    folder = Path(__file__).parent
    if os.access(folder, os.W_OK) or os.access(folder / "__pycache__", os.W_OK):
        return None
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "idx"


@functools.cache
def _cache_folder(source: Path, folder: Path | None) -> Path:
    """Return the cache folder for a file's kernels, in ``folder`` if there is one, else next to the file.

    Outdated folders next to the file are removed.
    """
    prefix = f"{_PREFIX}{source.stem}-"
    name = prefix + sources_hash(_sources(source))
    cache = folder or source.parent / "__pycache__"
    if not folder and not (cache / name).exists():
        for old in cache.glob(f"{prefix}*"):
            shutil.rmtree(old, ignore_errors=True)
    return cache / name


def cache_folders() -> list[Path]:
    """Return the folders of kernels compiled so far, current and outdated."""
    if folder := kernels_folder():
        return sorted(folder.glob(f"{_PREFIX}*"))
    return sorted((ROOT / "wikidx").glob(f"*/**/__pycache__/{_PREFIX}*"))


def sources_hash(files: Iterable[Path]) -> str:
    """Return a hash of the names and contents of project files. A checkout and an installation give the same hash."""
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
    """Return the project files that a file imports: modules, and the ``__init__.py`` of packages."""
    candidates = (file for name in _imported_names(source) for file in (ROOT / f"{name}.py", ROOT / name / "__init__.py"))
    return {file for file in candidates if file.is_file()}


def _imported_names(source: Path) -> Iterator[str]:
    """Yield imported names as paths without suffix. ``from a import b`` yields ``a`` and ``a/b``, because b may be a module."""
    package = Path(os.path.relpath(source.parent, ROOT)).parts
    for dots, module, names in _IMPORT.findall(source.read_bytes()):
        parents = package[: len(package) - len(dots) + 1] if dots else ()
        base = "/".join((*parents, *filter(None, module.decode().split("."))))
        imported = [name.split()[0].decode().replace(".", "/") for name in names.strip(b"()").split(b",") if name.split()]
        yield from (base, *(f"{base}/{name}" for name in imported)) if base else imported
