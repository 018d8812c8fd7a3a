from __future__ import annotations

from pathlib import Path

import pytest

from wikidx.corpora.artifacts.home import network_file_system

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


def test_this_machines_mounts_can_be_read(tmp_path: Path) -> None:
    assert network_file_system(tmp_path) in (None, "9p", "nfs", "nfs4")
