"""What kind of disk a folder is on."""

from __future__ import annotations

from pathlib import Path

_NETWORK = {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
_MOUNTS = Path("/proc/self/mounts")


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the name of the network file system that holds a path, None for a local one or where it cannot be told.

    Args:
        path: need not exist yet.
        mounts: the text of /proc/self/mounts; None reads it.
    """
    if mounts is None:
        if not _MOUNTS.exists():  # not Linux
            return None
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    resolved = path.resolve()
    best_depth, best_kind = -1, ""
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        folder = Path(point.replace("\\040", " "))
        if resolved.is_relative_to(folder) and len(folder.parts) >= best_depth:  # a later mount hides an earlier one
            best_depth, best_kind = len(folder.parts), kind
    return best_kind if best_kind in _NETWORK else None
