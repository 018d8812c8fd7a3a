"""Errors reach the user whole, whichever process raised them."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import read_rows
from wikidx.base.errors import ArtifactCorrupt, InputError, MissingExtraError, StagingCorrupt, StorageError, explain_os_error


def test_a_missing_extra_is_named_across_processes() -> None:
    error = pickle.loads(pickle.dumps(MissingExtraError("the encoder 'gtr'", "dense")))
    assert isinstance(error, MissingExtraError)
    assert str(error) == str(MissingExtraError("the encoder 'gtr'", "dense"))
    assert error.extra == "dense"


@pytest.mark.parametrize(("origin", "told"), read_rows("base/extras.jsonl"))
def test_an_extra_is_installed_from_where_the_package_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, object] | None, told: str
) -> None:
    (tmp_path / "constraints.txt").touch()
    written = None if origin is None else json.dumps(origin).replace("{folder}", str(tmp_path))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: SimpleNamespace(read_text=lambda file: written))
    command = str(MissingExtraError("ROUGE", "eval"))
    assert command == f"ROUGE needs the extra 'eval': pip install {told.replace('{folder}', str(tmp_path))}"


def test_what_a_message_quotes_can_neither_end_its_line_nor_steer_a_terminal() -> None:
    error = InputError("'a\nb\x1b[2J\u2028\x85\udcff\u202e\u2066\u200f\u061c' is no name, é and می\u200cخواهم are")
    assert str(error) == "'a\\nb\\x1b[2J\\u2028\\x85\\udcff\\u202e\\u2066\\u200f\\u061c' is no name, é and می\u200cخواهم are"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EMFILE, ": raise the limit of open files (ulimit -n) and run the same command again"),
        (errno.EACCES, ": make it accessible, or name another place, and run the same command again"),
        (errno.ENOMEM, ": free memory, or raise the limit of memory (ulimit -v), and run the same command again"),
        (errno.ENOSPC, ": free space there and run the same command again"),
        (errno.EDQUOT, ": free space there, or have the quota raised, and run the same command again"),
        (errno.EROFS, ": make it accessible, or name another place, and run the same command again"),
        (errno.ENAMETOOLONG, ""),
    ],
)
def test_what_the_system_refuses_is_told_with_a_remedy_and_is_not_called_corrupt(number: int, remedy: str) -> None:
    words = os.strerror(number)
    told, refusal = f"{words}: /f{remedy}", OSError(number, words, "/f")
    assert explain_os_error(refusal) == told
    for error in (refusal, RuntimeError(f"could not open /f: {words} (os error {number})")):
        is_refused = number in (errno.EMFILE, errno.EACCES, errno.ENOMEM)
        with pytest.raises(StorageError, match=re.escape(told)) if is_refused else nullcontext():
            assert isinstance(StagingCorrupt.of(error, "/f", "damaged"), StagingCorrupt)


def test_damage_is_called_corrupt_and_lack_of_memory_is_not() -> None:
    for error in (OSError(errno.EIO, "Input/output error"), FileNotFoundError(errno.ENOENT, "No such file"), EOFError("cut off")):
        assert isinstance(ArtifactCorrupt.of(error, "/f", "damaged"), ArtifactCorrupt)
    for lack in (MemoryError(), RuntimeError("can't start new thread")):
        with pytest.raises(type(lack)):
            ArtifactCorrupt.of(lack, "/f", "damaged")
