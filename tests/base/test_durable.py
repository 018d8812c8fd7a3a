from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import ROOT, file_limit
from wikidx.base.artifacts.durable import parse_json, write_durably
from wikidx.base.errors import explain_os_error


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "9" * 5_000, b"\xff", "", "1 2"], ids=range(6))
def test_what_is_none_is_a_value_error(content: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own words
        parse_json(content)


@pytest.mark.parametrize("has_target", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, has_target: bool) -> None:
    (tmp_path / "far").mkdir()
    target, link, second = tmp_path / "far" / "target", tmp_path / "link", tmp_path / "second"
    if has_target:
        target.write_bytes(b"old")
    link.symlink_to(target)
    second.symlink_to("link")
    write_durably(second, b"new")
    assert (link.is_symlink(), second.is_symlink(), target.read_bytes()) == (True, True, b"new")
    assert not [*tmp_path.rglob("*.tmp"), *tmp_path.rglob(".*")]


def test_the_permissions_of_a_file_stay(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o640)
    write_durably(tmp_path / "file", b"new")
    assert ((tmp_path / "file").read_bytes(), stat.S_IMODE((tmp_path / "file").stat().st_mode)) == (b"new", 0o640)


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_pipe_is_written_and_stays(tmp_path: Path, is_linked: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    read = list[bytes]()
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_durably(tmp_path / "link" if is_linked else pipe, b"content")
    reader.join(10)
    assert (read, pipe.is_fifo()) == ([b"content"], True)


@pytest.mark.parametrize(("minor", "error"), [(3, None), (7, errno.ENOSPC)])  # nodes as /dev/null and /dev/full are
def test_a_device_is_written_and_stays(tmp_path: Path, minor: int, error: int | None) -> None:
    node = tmp_path / "node"
    try:
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, minor))
        node.open("wb").close()
    except OSError as refusal:
        pytest.skip(f"devices cannot be made here: {refusal}")
    with contextlib.ExitStack() as stack:
        raised = stack.enter_context(pytest.raises(OSError, match=str(node))) if error else None
        write_durably(node, b"content")
    assert raised is None or raised.value.errno == error
    assert node.is_char_device()
    assert list(tmp_path.iterdir()) == [node]


@pytest.mark.parametrize("name", ["out", "link", "/proc/self/fd/1"])
def test_what_this_process_prints_stays_beside_what_is_written_to_its_output(tmp_path: Path, name: str) -> None:
    script = "import sys, pathlib; from wikidx.base.artifacts.durable import write_durably; "
    script += "print('before'); write_durably(pathlib.Path(sys.argv[1]), b'report\\n'); print('after')"
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(
            [sys.executable, "-c", script, name], stdout=out, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
        )
    assert (tmp_path / "out").read_text() == "before\nreport\nafter\n"


@pytest.mark.parametrize("limit", [0, 3])
def test_a_failure_names_the_file_keeps_its_content_and_leaves_no_other(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"old")
    with file_limit(limit), pytest.raises(OSError, match="File too large") as raised:
        write_durably(path, b"content")
    advice = "raise the limit of file sizes (ulimit -f) and run the same command again"
    assert explain_os_error(raised.value) == f"File too large: {path}: {advice}"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_written_where_the_outputs_are_closed_by_number(tmp_path: Path) -> None:
    """As daemons do, whose objects of the outputs stay open."""
    (tmp_path / "file").write_bytes(b"old")
    code = "import os, sys; from pathlib import Path; from wikidx.base.artifacts.durable import write_durably; os.closerange(1, 3)"
    code += "; write_durably(Path(sys.argv[1]), b'new'); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "file"], check=True, cwd=ROOT)
    assert (tmp_path / "file").read_bytes() == b"new"
