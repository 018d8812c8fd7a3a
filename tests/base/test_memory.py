"""Available memory on a machine and in a container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wikidx.base.machine.memory import available_bytes, memory_bytes

GIB = 1 << 30


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that report a container's memory, none of which exists yet."""
    monkeypatch.setattr("wikidx.base.machine.memory._CGROUP", tmp_path)
    monkeypatch.setattr("wikidx.base.machine.memory._MEMINFO", tmp_path / "meminfo")
    return tmp_path


def test_memory_is_that_of_the_machine_or_less() -> None:
    assert 1 << 27 < memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_bytes() <= memory_bytes()


def test_where_nothing_is_known_all_memory_is_there(container: Path) -> None:
    assert available_bytes() == memory_bytes() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_machine_says_what_is_available(container: Path) -> None:
    (container / "meminfo").write_text("MemTotal: 8000000 kB\nMemFree: 1000 kB\nMemAvailable:    500000 kB\n")
    assert available_bytes() == 500_000 * 1024


def test_a_container_has_its_limit_less_what_it_uses_and_cannot_drop(container: Path) -> None:
    (container / "memory.max").write_text("1073741824\n")
    assert memory_bytes() == available_bytes() == GIB
    (container / "memory.current").write_text(f"{GIB // 2}\n")
    (container / "memory.stat").write_text(f"anon 5\ninactive_file {GIB // 8}\nactive_file 7\n")
    assert available_bytes() == GIB // 2 + GIB // 8
    (container / "memory.current").write_text(f"{2 * GIB}\n")
    assert available_bytes() == 0
    (container / "memory.max").write_text("max\n")
    assert available_bytes() == memory_bytes() > GIB


@pytest.mark.parametrize("limit", ["RLIMIT_DATA", "RLIMIT_AS"])
def test_a_limit_of_the_process_counts_less_what_it_uses(limit: str) -> None:
    program = f"""
import resource
from wikidx.base.machine.memory import available_bytes, memory_bytes
resource.setrlimit(resource.{limit}, ({GIB}, {GIB}))
before = available_bytes()
held = bytearray({GIB // 4})
print(memory_bytes(), before, available_bytes())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    memory, before, after = map(int, ran.stdout.split())
    assert memory == GIB
    assert GIB // 4 <= before - after < GIB // 3
    assert before < GIB
