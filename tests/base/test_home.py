from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from wikidx.base.artifacts.home import home, network_file_system
from wikidx.base.errors import InputError
from wikidx.corpora.resolving import require_built

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/export /mnt/my\\040share nfs4 rw 0 0
/dev/sdb1 /mnt/my\\040share/local xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/me/.idx", None), ("/mnt/my share", "nfs4"), ("/mnt/my share/a/b", "nfs4"), ("/mnt/my share/local/x", None), ("/mnt/my", None)],
)
def test_the_innermost_mount_decides(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind


def test_a_file_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    assert home() == tmp_path / "home"
    home().write_text("")
    with pytest.raises(InputError, match="home is a file, and data is kept in a folder: set IDX_HOME to one"):
        home()


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", "~nobody-of-this-name/idx")
    with pytest.raises(
        InputError, match=r"^~nobody-of-this-name/idx is not known, because this user has no home: set IDX_HOME to a folder$"
    ):
        home()


def test_a_home_that_may_not_be_read_is_not_taken_for_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:  # unlike ``tmp_path``, in a folder that everybody may enter
        monkeypatch.setenv("IDX_HOME", folder)
        home().chmod(0)
        try:
            os.seteuid(user or 65534)  # root may read everything
            with pytest.raises(PermissionError, match=folder):
                require_built("sample")
        finally:
            os.seteuid(user)
            home().chmod(0o700)
