"""The data home: its path, allowed names, and file system."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from wikidx.base.errors import InputError

UNNAMED = re.compile("unnamed-[0-9a-f]{8}")
"""Pattern of the generated names of unnamed corpora, which lists omit; see ``unnamed``."""

RESERVED_NAMES = frozenset({"passages", "vectors", "indexes", "downloads", "checkpoints", "encoders", "questions"})

_MAX_NAME = 100  # characters; with the suffixes that idx adds, a name must fit into the 255 bytes that file systems allow
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_NETWORK = {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
_MOUNTS = Path("/proc/self/mounts")


def home() -> Path:
    """Return the data home: ``$IDX_HOME``, else ``~/.idx``; raise ``InputError`` if it is a file, or a home that nobody has."""
    given = os.environ.get("IDX_HOME") or "~/.idx"
    try:
        path = Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"{given} is not known, because this user has no home: set IDX_HOME to a folder") from error
    if os.path.isfile(path):
        raise InputError(f"{path} is a file, and data is kept in a folder: set IDX_HOME to one")
    return path


def utf8_path(path: Path) -> str:
    """Return a path for a library that takes only texts in UTF-8, also if the locale has another encoding of file names, such as ASCII.

    Raises:
        InputError: the file's name is not UTF-8.
    """
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{os.fsencode(path)!r} is not UTF-8: rename it") from error


def check_name(name: str) -> str:
    """Validate and return a user's name for a corpus.

    Raises:
        InputError: the name has other characters than ``a-z 0-9 . _ -``, begins with ``. _ -``, is too long, or is reserved.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"'{name}' cannot be a name: use lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit")
    if len(name) > _MAX_NAME:
        raise InputError(f"'{name[:20]}…' cannot be a name: it has {len(name)} letters, {_MAX_NAME} are possible")
    if name in RESERVED_NAMES:
        raise InputError(f"'{name}' is a reserved name: choose another one with --name")
    return name


def check_new_name(name: str) -> str:
    """Validate and return a user's name for a new corpus; raises as ``check_name``, and for a name like those of unnamed corpora."""
    if UNNAMED.fullmatch(name):
        raise InputError(f"'{name}' cannot be a name: idx gives such names to corpora without one, and deletes them; choose another one")
    return check_name(name)


def split_name(name: str) -> tuple[str, int | None]:
    """Return the corpus and the limit in a name on disk: ``<corpus>@<limit>`` for a subset, else ``<corpus>`` (limit None).

    Raises:
        InputError: ``name`` is invalid.
    """
    corpus, separator, limit = name.partition("@")
    check_name(corpus)
    if separator and not (limit.isascii() and limit.isdecimal() and len(limit) < _MAX_NAME and int(limit) > 0):
        raise InputError(f"'{name}' cannot be a name: '@' precedes the number of passages of a subset")
    return corpus, int(limit) if separator else None


def corpus_path(name: str) -> Path:
    """Return the directory of a corpus in the data home, existing or not; raises as ``split_name`` does."""
    split_name(name)
    return home() / name


def downloads_path(corpus: str) -> Path:
    """Return the directory of a corpus's downloaded files."""
    return home() / "downloads" / corpus


def corpus_names() -> list[str]:
    """Return the sorted names of the folders in the data home that are named like a corpus, without unnamed corpora."""

    def is_corpus(folder: Path) -> bool:
        try:
            split_name(folder.name)
        except InputError:
            return False
        return folder.is_dir() and not UNNAMED.fullmatch(folder.name)

    return [folder.name for folder in list_folder(home()) if is_corpus(folder)]


def list_folder(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder; none if it does not exist. ``Path.glob`` would find nothing where it may not look, either."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def free_disk_bytes() -> int:
    """Return the free space, in bytes, on the disk of the data home."""
    folder = home()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the name of the network file system of ``path``; None if the file system is local or unknown.

    Args:
        path: a path, which may be missing.
        mounts: content of /proc/self/mounts; None: read that file.
    """
    if mounts is None:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace") if _MOUNTS.exists() else ""  # not Linux
    columns = [line.split(" ") for line in mounts.splitlines()]
    points = {Path(point.replace("\\040", " ")): kind for _, point, kind, *_ in columns}  # a later mount hides an earlier one
    place = path.resolve()
    file_system = next((points[folder] for folder in (place, *place.parents) if folder in points), "")
    return file_system if file_system in _NETWORK else None
