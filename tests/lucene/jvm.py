"""Java in this process and in others, of the package ``arcadedb-embedded``, with the classes of Anserini's jar.

pyjnius is not thread-safe: one thread at a time.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any

_OPTIONS = ("-Xrs", "-Xmx4g", "-XX:-UsePerfData", "-Dsun.jnu.encoding=UTF-8", "--enable-native-access=ALL-UNNAMED")
_MODULES = "--add-modules=jdk.incubator.vector"


def require_java() -> None:
    """Skip a test, or the tests of a module, where Pyserini or the Java is not installed; make Java the one that Pyserini finds too."""
    import pytest  # benchmarks have none

    if not os.environ.get("CI") and not (_folder("pyserini") and _folder("arcadedb_embedded")):
        pytest.skip("needs pyserini and arcadedb-embedded", allow_module_level=True)
    os.environ["JAVA_HOME"] = str(java_home())


def java_home() -> Path:
    """Return the folder of the Java."""
    return Path(_folder("arcadedb_embedded"), "jre")


def check_installed() -> None:
    """Raise ``ImportError`` unless Pyserini and the Java are installed."""
    for package in ("pyserini", "arcadedb_embedded"):
        if not _folder(package):
            raise ImportError(f"{package} is not installed: pip install '.[test-full]'")


def java_class(name: str) -> Any:  # noqa: ANN401 - a class of pyjnius's making
    """Return a Java class of Anserini's jar or of the JDK, by its qualified name."""
    return _jnius().autoclass(name)


def index_collection(source: Path, index: Path, *options: str, heap_bytes: int = 1 << 30) -> Path:
    """Index the JSON files in ``source`` by Anserini's program, and return the index."""
    arguments = ["-collection", "JsonCollection", "-input", str(source), "-generator", "DefaultLuceneDocumentGenerator"]
    arguments += ["-index", str(index), *(options or ("-threads", "1"))]
    command = [str(java_home() / "bin" / "java"), *_OPTIONS, _MODULES, f"-Xmx{heap_bytes}", "-cp", str(_anserini_jar())]
    ran = subprocess.run([*command, "io.anserini.index.IndexCollection", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode or not any(index.glob("segments_*")):
        raise RuntimeError(f"IndexCollection failed: {ran.stdout[-2000:]} {ran.stderr[-2000:]}")
    return index


def read_json(value: Any) -> str:  # noqa: ANN401 - a Java object
    """Return a Java object as JSON. Its numbers convert back to exactly the same floats."""
    text: str = java_class("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString(value)
    return text


def java_text(text: str) -> str:
    """Return the text with "?" in place of lone surrogates, which cannot be passed to Java. Terms contain neither."""
    return text.encode("utf-16-le", "replace").decode("utf-16-le")


def _folder(package: str) -> str:
    spec = importlib.util.find_spec(package)
    return next(iter((spec and spec.submodule_search_locations) or ()), "")


def _anserini_jar() -> Path:
    return max(Path(_folder("pyserini"), "resources", "jars").glob("anserini-*-fatjar.jar"))


@functools.cache
def _jnius() -> Any:  # noqa: ANN401 - a module without types
    """Start Java, unless Pyserini has."""
    config = importlib.import_module("jnius_config")
    if not config.vm_running:
        os.environ["JAVA_HOME"] = str(java_home())
        config.set_options(*_OPTIONS, _MODULES)
        config.add_classpath(str(_anserini_jar()))
    jnius = importlib.import_module("jnius")
    jnius.autoclass("java.util.logging.LogManager").getLogManager().reset()  # silences Lucene on standard error
    return jnius
