"""Pyserini, 1.x or 2.x, and the user's Java, in this process. No other module loads them.

pyjnius, through which Pyserini calls Java, is not thread-safe: if two threads call the same method, a call may silently use the other
thread's object. All work on Java objects runs on a single thread; parallel work must run inside Java. Java does not survive a fork.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from wikidx.base.errors import IdxError, MissingExtraError
from wikidx.base.machine.failures import first_line

Result = TypeVar("Result")

_VECTOR_MODULE = "jdk.incubator.vector"  # Pyserini starts Java with it; a Java that lacks it ends the process
_OLDEST_JAVA = 21
_OPTIONS = (
    "-Xrs",  # Python continues to handle SIGINT and SIGTERM
    "-XX:-UsePerfData",  # no files in /tmp
    "-Dsun.jnu.encoding=UTF-8",  # paths in UTF-8 whatever the locale, as in Python
)
_MAX_CLAUSES = 2**31 - 1
_KEY = "OPENAI_API_KEY"
_LUCENE = "org.apache.lucene.index"

_java_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="java")
_started_in: int | None = None  # id of the process that has started Java


class JavaError(IdxError):
    """A Java exception, as one line."""


def call_in_java(work: Callable[[Any], Result]) -> Result:
    """Return ``work(pyserini.search.lucene)``, computed on the thread that uses Java objects. The first call loads Pyserini.

    Raises:
        MissingExtraError: Pyserini is not installed.
        JavaError: ``work`` raised a Java exception.
        IdxError: there is no usable Java, Pyserini cannot be loaded, or Java was started before a fork.
    """
    if _started_in not in (None, os.getpid()):
        raise IdxError(
            f"Java was started in process {_started_in} and does not outlive the fork into {os.getpid()}: "
            "open Lucene indexes after the fork, or start processes with multiprocessing's 'spawn'"
        )
    if importlib.util.find_spec("pyserini") is None:
        raise MissingExtraError("Lucene", "lucene")
    _check_java()  # before there is a thread, which a forked process would lack
    return _java_thread.submit(_run, work).result()


def let_go(searcher: Any) -> None:  # noqa: ANN401 - a LuceneSearcher
    """Close the files of a searcher, without waiting for it: a finalizer may run on the Java thread itself."""
    if _started_in == os.getpid():
        _java_thread.submit(searcher.close)
        _java_thread.submit(searcher.index_reader.reader.close)


class LuceneReader:
    """An open Lucene directory, to be examined. Methods raise ``JavaError`` for corrupt files.

    Attributes:
        n_documents: number of documents, deleted ones included.
        n_deleted: number of deleted documents.
        n_searchable: number of documents with at least one term.
    """

    def __init__(self, path: Path) -> None:
        self._reader, counts = call_in_java(lambda _: _open_reader(path))
        self.n_documents, self.n_deleted, self.n_searchable = counts

    def close(self) -> None:
        """Close the files."""
        call_in_java(lambda _: self._reader.reader.close())

    def ids(self, first: int, end: int) -> list[str]:
        """Return the stored ids of the documents from ``first`` to before ``end``; "" for a document without an id."""
        convert = self._reader.convert_internal_docid_to_collection_docid
        return call_in_java(lambda _: [convert(document) or "" for document in range(first, end)])

    def lengths(self, documents: Sequence[int]) -> list[int]:
        """Return the length byte of each document: its number of terms as Lucene encodes it. ``documents`` must ascend."""

        def read(_: object) -> list[int]:
            norms = _java_class(f"{_LUCENE}.MultiDocValues").getNormValues(self._reader.reader, "contents")
            return [norms.longValue() if norms.advanceExact(document) else 0 for document in documents]

        return call_in_java(read)

    def contents_options(self) -> str:
        """Return the index options of the searched field, such as DOCS_AND_FREQS; "" if there is none."""

        def read(_: object) -> str:
            info = _java_class(f"{_LUCENE}.FieldInfos").getMergedFieldInfos(self._reader.reader).fieldInfo("contents")
            return "" if info is None else str(info.getIndexOptions().toString())

        return call_in_java(read)


def _open_reader(path: Path) -> tuple[Any, tuple[int, int, int]]:
    index = importlib.import_module("pyserini.index.lucene").LuceneIndexReader(str(path))
    return index, (index.reader.maxDoc(), index.reader.numDeletedDocs(), index.reader.getDocCount("contents"))


def _java_class(name: str) -> Any:  # noqa: ANN401 - a class of pyjnius's making
    return importlib.import_module("jnius").autoclass(name)


def _run(work: Callable[[Any], Result]) -> Result:
    pyserini = _load()
    try:
        return work(pyserini)
    except importlib.import_module("jnius").JavaException as error:
        trace = [line for line in getattr(error, "stacktrace", None) or [str(error)] if line]
        causes = [cause for before, cause in zip(trace, trace[1:], strict=False) if before == "Caused by:"]
        raise JavaError(" ".join([*trace[:1], *causes][-1].split())) from error


@functools.cache
def _load() -> Any:  # noqa: ANN401 - a module without types
    """Start Java and import Pyserini, which demands a key of OpenAI's for that, whatever its value."""
    global _started_in
    _started_in = os.getpid()
    config = importlib.import_module("jnius_config")
    if not config.vm_running:
        config.add_options(*_OPTIONS)
    is_needed = _KEY not in os.environ
    try:
        os.environ.setdefault(_KEY, "unused")
        pyserini = importlib.import_module("pyserini.search.lucene")
        _java_class("java.util.logging.LogManager").getLogManager().reset()  # silences Lucene on standard error
        _java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(_MAX_CLAUSES)
    except Exception as error:  # whatever one of its hundred imports raises, such as a failed download of its tables
        raise IdxError(f"Pyserini cannot be loaded: {type(error).__name__}: {first_line(error)}") from error
    finally:
        if is_needed:
            os.environ.pop(_KEY, None)
    return pyserini


@functools.cache
def _check_java() -> None:
    """Raise ``IdxError`` unless the Java that pyjnius will start is new enough and has the module that Pyserini asks for."""
    try:
        program = str(Path(importlib.import_module("jnius_config.env").get_java_setup().home, "bin", "java"))
        command = [program, f"--add-modules={_VECTOR_MODULE}", "-version"]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    except Exception as error:  # pyjnius raises a plain Exception where it finds none
        found = f"none was found ({first_line(error)})"
    else:
        version = re.search(r'version "(\d+)', ran.stdout)
        if ran.returncode == 0 and version and int(version[1]) >= _OLDEST_JAVA:
            return
        found = f"{program} is version {version[1]}" if version else f"{program} says: {' '.join(ran.stdout.split())[-200:]}"
    raise IdxError(f"Pyserini needs Java {_OLDEST_JAVA} or newer, with the module {_VECTOR_MODULE}; {found}: install one and set JAVA_HOME")
