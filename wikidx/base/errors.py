"""Errors for users. Every message says what happened, with the values, and what to do.

    IdxError                   base class: the command line prints the message as one line and exits with 2
    ├── InputError             the user's data or option is wrong
    │   ├── OptionError        an option has an invalid value; also a ValueError
    │   └── ArgumentError      a query or another argument of a search in Python is wrong; also a TypeError and a ValueError
    ├── ClosedError            a searcher, a model or another object is used after its ``close``; also a ValueError and a RuntimeError
    ├── UnknownNameError       no corpus, encoder, index or retriever has this name
    ├── MissingExtraError      an optional package is not installed
    ├── DownloadError          a file could not be downloaded completely and correctly
    ├── StorageError           a disk error: no space, read-only, not a directory
    ├── LockedError            another process holds the lock of an artifact
    └── ArtifactError          an artifact cannot be used
        ├── ArtifactMissing    the artifact does not exist
        ├── ArtifactCorrupt    the artifact's files do not match its manifest
        │   └── StagingCorrupt a build cannot resume from its staged files and starts again
        └── ArtifactMismatch   the artifact belongs to another corpus, source or format version
            └── PlugInMismatch a plug-in that made the artifact has not been named, or is another now

Wrong arguments of other functions (a wrong shape) raise ``ValueError`` or ``TypeError`` as usual.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

_NAME = "wikidx"
# Controls; marks that turn the direction of a text or that no reader sees; separators of lines; halves of surrogate pairs. The joiners of
# emoji, Persian and Hindi, and spaces without a width, are shown.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def escape_controls(text: str, escape: Callable[[str], str] = lambda letter: letter.encode("unicode_escape").decode()) -> str:
    """Return a foreign text with the characters escaped that a terminal would obey instead of showing, except tabs and line breaks."""
    return _OBEYED.sub(lambda match: escape(match[0]), text)


class IdxError(Exception):
    """Base class of all errors that a user can fix; the message is one line.

    A message may quote untrusted files; newlines and other control characters are shown as escapes.
    """

    def __str__(self) -> str:
        return escape_controls(super().__str__()).replace("\n", "\\n").replace("\t", "\\t")

    @classmethod
    def of(cls, error: Exception, path: Path | str, message: str) -> Self:
        """Return the error of this class for a file that could not be read.

        Raises:
            StorageError: the system refused to read it, which says nothing of its content. Libraries tell this by the system's words alone.
            MemoryError, RuntimeError: there was too little memory to read it.
        """
        if isinstance(error, MemoryError) or NO_THREAD in str(error):
            raise error
        if number := next((number for number in _OF_THE_SYSTEM if os.strerror(number) in str(error)), None):
            raise StorageError(explain_os_error(OSError(number, os.strerror(number), str(path)))) from error
        return cls(message)


class InputError(IdxError):
    """The user's data or option is wrong."""


class OptionError(InputError, ValueError):
    """An option has an invalid value, alone or in combination with others."""


class ArgumentError(InputError, TypeError, ValueError):
    """A query, or another argument of a search in Python, has a wrong type or value."""


class ClosedError(IdxError, ValueError, RuntimeError):
    """A searcher, a model or another object is used after its ``close``."""


class UnknownNameError(IdxError):
    """A name is unknown."""


class MissingExtraError(IdxError, ImportError):
    """A package of an optional extra is not installed; ``verb`` suits a feature in the plural."""

    def __init__(self, feature: str, extra: str, verb: str = "needs") -> None:
        super().__init__(f"{feature} {verb} the extra '{extra}': pip install {install_argument(extra)}")
        self._feature, self.extra, self._verb = feature, extra, verb

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        return type(self), (self._feature, self.extra, self._verb)  # otherwise pickle would call the class with the message alone


def require_packages(feature: str, extra: str, *packages: str) -> None:
    """Raise ``MissingExtraError`` unless packages of an optional extra can be imported."""
    try:
        for package in packages:
            importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error


def install_argument(extra: str) -> str:
    """Return the arguments of ``pip install`` that add an extra to the installed idx."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # idx is importable, but not installed
        origin = {}
    if "dir_info" in origin:
        folder = Path(url2pathname(urlsplit(origin["url"]).path))
        constraints = f"--constraint '{folder}/constraints.txt' " if (folder / "constraints.txt").is_file() else ""
        return f"{constraints}{'--editable ' if origin['dir_info'].get('editable') else ''}'{folder}[{extra}]'"
    repository = f"{vcs}+" if (vcs := origin.get("vcs_info", {}).get("vcs")) else ""
    source = f" @ {repository}{origin['url']}" if origin else ""
    return f"'{_NAME}[{extra}]{source}'"


_REMEDIES = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or have the quota raised,",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EIO: "check the disk, its space and its quota,",
    errno.ENOMEM: "free memory, or raise the limit of memory (ulimit -v),",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit of open files (ulimit -n)"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it accessible, or name another place,"),
}
_OF_THE_SYSTEM = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT)
NO_THREAD = "can't start new thread"
"""Python's message if there is no memory for the stack of a thread."""
_FULL_DISK_BYTES = 64 << 20  # one write of a library may need this much


def explain_os_error(error: OSError, *, is_kept: bool = False) -> str:
    """Return an error of the system with its file and a remedy; ``is_kept``: the work done until then is kept."""
    remedy = _REMEDIES.get(error.errno or 0, "fix the cause" if is_kept else "")
    advice = f": {remedy} and run the same command again" if remedy else ""
    place = error.filename or (isinstance(error, FileNotFoundError) and "the working folder")  # only ``getcwd`` names no file
    return f"{error.strerror or error}{f': {place}' if place else ''}{'; finished parts are kept' * is_kept}{advice}"


@contextlib.contextmanager
def named_errors(place: Path | str, temporary: Path | None = None) -> Iterator[None]:
    """Name a file in errors of the system that name none, as those of writing, or only the temporary file in its place."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(place)
        raise


def find_write_error(path: Path, error: Exception) -> OSError:
    """Return the error of the system behind a failed write to a file by a library, which may call it an input/output error."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    size = max((file.stat().st_size for file in path.parent.glob(f"{path.name}*")), default=0)
    if limit != resource.RLIM_INFINITY and size + _FULL_DISK_BYTES > limit:
        return OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    if (n_free := shutil.disk_usage(path.parent).free) < _FULL_DISK_BYTES:
        return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({n_free / 1e6:.1f} MB free)", str(path))
    return OSError(errno.EIO, str(error), str(path))


class DownloadError(IdxError):
    """A file could not be downloaded completely and correctly."""


class StorageError(IdxError):
    """A disk error."""


class LockedError(IdxError):
    """Another process holds the lock of an artifact."""


class ArtifactError(IdxError):
    """An artifact cannot be used."""


class ArtifactMissing(ArtifactError):
    """The artifact does not exist."""


class ArtifactCorrupt(ArtifactError):
    """The artifact's files do not match its manifest."""


class StagingCorrupt(ArtifactCorrupt):
    """A build cannot resume from its staged files."""


class ArtifactMismatch(ArtifactError):
    """The artifact belongs to another corpus, source or format version."""


class PlugInMismatch(ArtifactMismatch):
    """A plug-in that made the artifact has not been named, or is another now."""
