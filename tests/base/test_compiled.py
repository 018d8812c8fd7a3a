"""The cache of compiled kernels: a kernel never runs with an earlier version of one that it calls."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import wikidx.base.compiled
from tests.conftest import ROOT
from wikidx.base import compiled
from wikidx.base.compiled import compile_always, interpreted, kernel

CALLED = "from wikidx.made.compiled import kernel\n\n\n@kernel\ndef inner(x):\n    return x + {}\n"
CALLER = """
from wikidx.made.called import inner
from wikidx.made.compiled import kernel


@kernel
def outer(x):
    return inner(x)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package ``wikidx.made`` of two kernels, one calling the other in another file."""
    package = tmp_path / "wikidx" / "made"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:1]):
        (folder / "__init__.py").touch()
    shutil.copy(wikidx.base.compiled.__file__, package / "compiled.py")
    (package / "caller.py").write_text(CALLER)
    return package


def outer_of_10(package: Path) -> str:
    code = "from wikidx.made.caller import outer; print(outer(10), sum(outer.compiled.stats.cache_hits.values()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=package.parents[1], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_changed_callee_in_another_file_is_compiled_anew_and_an_unchanged_one_is_not(package: Path) -> None:
    (package / "called.py").write_text(CALLED.format(1))
    assert [outer_of_10(package), outer_of_10(package)] == ["11 0", "11 1"]
    (package / "called.py").write_text(CALLED.format(2))
    assert outer_of_10(package) == "12 0"
    assert len(list((package / "__pycache__").glob("kernels-caller-*"))) == 1
    (package / "another.py").write_text("import wikidx.made.caller\n")  # which no kernel uses
    assert outer_of_10(package) == "12 1"


@pytest.mark.parametrize(
    "statement",
    [
        "import wikidx.made.called",
        "from wikidx.made import called",
        "from . import called",
        "from .called import (\n    inner,\n)",
        "from wikidx.made import (\n    called,\n)",
    ],
)
def test_every_form_of_import_is_followed(package: Path, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "called.py").touch()
    (package / "caller.py").write_text(statement + "\n")
    monkeypatch.setattr(wikidx.base.compiled, "ROOT", package.parents[1])
    assert package / "called.py" in wikidx.base.compiled._sources(package / "caller.py")


def test_the_environment_says_where_kernels_are_kept(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "called.py").write_text(CALLED.format(1))
    monkeypatch.setenv("IDX_CACHE", str(tmp_path / "of idx"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "of numba"))
    assert [outer_of_10(package), outer_of_10(package)] == ["11 0", "11 1"]
    assert len(list((tmp_path / "of idx").glob("kernels-caller-*/**/*.nbi"))) == 1
    assert not (tmp_path / "of numba").exists()


HASH_PRIME = np.uint64(0x9E3779B97F4A7C15)


def new_kernel() -> compiled.Kernel:
    """A kernel that calls another one; neither is compiled."""

    @kernel
    def outer(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return times_prime(x) + np.uint64(1)

    return outer


@kernel
def times_prime(x: np.uint64) -> np.uint64:
    return x * HASH_PRIME


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been interpreted in this process, and what is in the cache is as good as not there."""
    monkeypatch.setattr(compiled._interpretation, "spent_s", 0.0)
    monkeypatch.setattr(compiled, "_LOADING_S", compiled._COMPILING_S)


@pytest.mark.usefixtures("budget")
def test_little_data_is_interpreted_and_much_data_is_not() -> None:
    outer, expected = new_kernel(), (3 * int(HASH_PRIME) + 1) % 2**64
    with interpreted(1000):
        assert outer(np.uint64(3)) == expected
        with interpreted(10**9):  # in the block of a caller that knows better
            assert outer(np.uint64(3)) == expected
    assert not outer.compiled.overloads
    with interpreted(10**9):
        assert outer(np.uint64(3)) == expected
    assert outer.compiled.overloads


@pytest.mark.usefixtures("budget")
def test_a_process_that_has_interpreted_for_long_compiles() -> None:
    outer, end_s = new_kernel(), time.thread_time() + 0.01
    with interpreted(1000):
        while time.thread_time() < end_s:
            outer(np.uint64(3))
    assert 0.001 < compiled._interpretation.spent_s < 0.02
    assert not outer.compiled.overloads
    compiled._interpretation.spent_s += compiled._COMPILING_S
    with interpreted(1000):
        outer(np.uint64(3))
    assert outer.compiled.overloads


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("reason", ["it is loaded", "a server", "outside of the block", "another thread"])
def test_machine_code_runs(reason: str) -> None:
    outer = new_kernel()
    if reason == "it is loaded":
        outer(np.uint64(3))
    if reason == "a server":
        compile_always()
    outer.py_func = lambda x: x / None  # cannot be interpreted
    with interpreted(1000) if reason != "outside of the block" else contextlib.nullcontext():
        if reason == "another thread":
            with ThreadPoolExecutor(1) as threads:
                threads.submit(outer, np.uint64(3)).result()
        else:
            outer(np.uint64(3))
    assert outer.compiled.overloads


def test_compilation_is_announced_once_in_a_process(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = compiled._CompilationListener()
    for _ in range(2):
        listener.on_start(None)
    assert [record.message for record in caplog.records] == [
        "compiling inner loops, once: up to a minute of a processor, longer where other programs compute"
    ]


@pytest.mark.usefixtures("budget")
def test_a_kernel_in_the_cache_is_loaded_where_others_still_run_in_python(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other kernels the process has imported: each is looked for by itself."""
    monkeypatch.setattr(compiled, "_LOADING_S", 0.4)
    cached, other = (compiled.Kernel(new_kernel().py_func, new_kernel().compiled, package / name) for name in ("cached", "other"))
    (package / "cached" / "folder").mkdir(parents=True)
    (package / "cached" / "folder" / "test_compiled.new_kernel.locals.outer-1.py311.nbi").touch()
    compiled._interpretation.spent_s = 0.5
    with interpreted(1000):
        assert cached(np.uint64(3)) == other(np.uint64(3))
    assert cached.compiled.overloads
    assert not other.compiled.overloads


@pytest.mark.parametrize(
    ("command", "name", "value", "reason"),
    [
        ("list", "NUMBA_NUM_THREADS", "0", "must be > 0: correct or unset it"),
        ("doctor", "NUMBA_NUM_THREADS", "two", "could not be parsed: correct or unset it"),
        ("list", "NUMBA_OPT", "x", "could not be parsed: correct or unset it"),
    ],
)
def test_a_variable_that_numba_refuses_is_told_in_one_line(command: str, name: str, value: str, reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wikidx", command], env={**os.environ, name: value}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{name}={value}" in done.stderr
    assert done.stderr.endswith(f"{reason}\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody who can write nowhere")
def test_kernels_are_made_where_no_cache_can_be_written() -> None:
    code = f"""
import os
from wikidx.base.compiled import kernel
os.environ["HOME"] = "/nonexistent"
os.setgid(65534)
os.setuid(65534)
names = {{"kernel": kernel}}
exec(compile("@kernel\\ndef double(x):\\n    return 2 * x", {wikidx.__file__!r}, "exec"), names)
print(names["double"].interpreted(21))
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "IDX_CACHE")}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert (ran.stdout, ran.stderr.count("IDX_CACHE")) == ("42\n", 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody who may not write next to the code")
def test_kernels_of_code_that_may_not_be_written_are_kept_in_the_users_folder() -> None:
    with tempfile.TemporaryDirectory() as folder:
        code = f"""
import os
from numba import njit
from wikidx.base.compiled import kernel, kernels_folder
njit(lambda x: x)(1)  # imports all of numba, which the other user may not
os.chown({folder!r}, 65534, 65534)
os.setgid(65534)
os.setuid(65534)
names = {{"kernel": kernel}}
exec(compile("@kernel\\ndef double(x):\\n    return 2 * x", {wikidx.__file__!r}, "exec"), names)
print(names["double"](21), kernels_folder())
"""
        environment = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "IDX_CACHE")}
        environment["XDG_CACHE_HOME"] = folder
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
        assert ran.stdout == f"42 {folder}/idx\n"
        assert len(list(Path(folder).glob("idx/kernels-*/**/*.nbi"))) == 1
