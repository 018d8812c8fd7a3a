"""Download one file of a corpus over HTTP(S): resumable, verified, and published under its name only when complete.

While ``<name>`` is being downloaded it is in ``<name>.part``, and ``<name>.part.json`` records the server's version of the file. A verified
file has a record ``<name>.json`` with its size and checksums. This module does not interpret contents and holds no locks: two processes
must not download the same file into the same folder at once.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import logging
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from wikidx.corpora.artifacts.durable import file_digests, json_value, sync, write_durably
from wikidx.corpora.errors import DownloadError, InputError, StorageError
from wikidx.corpora.passage import SourceFile
from wikidx.corpora.progress import Progress, silent

ATTEMPTS = 5
TIMEOUT_S = 60.0
MAX_PAUSE_S = 60.0
CHUNK_BYTES = 1 << 20

_CONTENT_RANGE = re.compile(r"bytes (?:(?P<start>\d+)-\d+|\*)/(?P<total>\d+|\*)", re.ASCII)

logger = logging.getLogger(__name__)


def mirrored(url: str) -> str:
    """Return ``url`` with scheme and host replaced by ``IDX_MIRROR``, if that environment variable is set.

    Raises:
        InputError: ``IDX_MIRROR`` is not an http or https address.
    """
    mirror = os.environ.get("IDX_MIRROR", "")
    if not mirror:
        return url
    if urlsplit(mirror).scheme not in ("http", "https"):
        raise InputError(f"IDX_MIRROR is '{mirror}': give an address that begins with http:// or https://, or unset it")
    return mirror.rstrip("/") + urlsplit(url)._replace(scheme="", netloc="").geturl()


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this machine: its path, its sha256, and its origin (a path or an address)."""

    path: Path
    sha256: str
    origin: str


def download(source: SourceFile, folder: Path, *, progress: Progress = silent, pause_s: float = 2.0) -> LocalFile:
    """Return the verified file ``folder / source.name``, downloading its missing part.

    If neither md5 nor sha256 is published, a file is checked against the sha256 of its first download (in its record).

    Args:
        source: the file.
        folder: created if missing.
        progress: called with the bytes downloaded and the total; decreases only if the server forces a restart.
        pause_s: wait before the second attempt without progress, doubled before each further one.

    Raises:
        DownloadError: the server refuses, does not answer, or sends a file of another size or checksum.
        StorageError: too little space, or the folder is not writable.
        InputError: ``IDX_MIRROR`` is wrong.
    """
    final = folder / source.name
    record = _read_record(_beside(final))
    if final.exists():
        if record is None or not record.vouches_for(final, source):
            record = _write_record(final, source, _checked(final, source, record))
        return LocalFile(final, record.sha256, source.url)
    part = _Part(folder / f"{source.name}.part")
    with _disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _check_space(part, source.n_bytes)
    _fetch(source, part, progress, pause_s)
    sha256 = _checked(part.path, source, record)
    with _disk(final):
        sync(part.path)
        os.replace(part.path, final)
        sync(folder)
    part.discard()
    _write_record(final, source, sha256)
    return LocalFile(final, sha256, source.url)


def verify(path: Path, source: SourceFile, progress: Progress = silent) -> str:
    """Check size and published checksums of ``path``, whatever its origin, and return its sha256.

    Raises:
        DownloadError: it is not the file that ``source`` describes.
        StorageError: it cannot be read.
    """
    with _disk(path):
        size = path.stat().st_size
    if source.n_bytes not in (None, size):
        raise DownloadError(f"{path} is not {source.name}: expected {source.n_bytes} bytes, got {size}: fetch it again from {source.url}")
    algorithms = ("sha256",) if source.md5 is None else ("md5", "sha256")
    with _disk(path):
        seen = file_digests(path, algorithms, lambda done: progress(done, size))
    for algorithm in algorithms:
        expected = getattr(source, algorithm)
        if expected is not None and expected.lower() != seen[algorithm]:
            what = f"{path} is not {source.name}: expected {algorithm} {expected}, got {seen[algorithm]}"
            raise DownloadError(f"{what}: fetch it again from {source.url}")
    return seen["sha256"]


@dataclass(frozen=True, slots=True)
class _Record:
    """State of a file at the time of its verification, stored beside it as JSON."""

    url: str
    bytes: int
    sha256: str
    md5: str | None
    at: str

    def vouches_for(self, path: Path, source: SourceFile) -> bool:
        """Return whether ``path`` is unchanged and ``source`` requires no further check."""
        pairs = ((source.n_bytes, self.bytes), (source.md5, self.md5), (source.sha256, self.sha256))
        is_checked = all(wanted is None or wanted == seen for wanted, seen in pairs)
        return is_checked and self.url == source.url and self.bytes == path.stat().st_size


def _beside(path: Path) -> Path:
    """Return the path of the notes on ``path``: a file's record, a part's version."""
    return Path(f"{path}.json")


def _read_record(path: Path) -> _Record | None:
    if not path.exists():
        return None
    with _disk(path):
        text = path.read_bytes()
    try:
        return _Record(**json_value(text))
    except (ValueError, TypeError) as error:
        raise DownloadError(f"{path} is not a download record ({error}): delete it to have the file verified again") from error


def _write_record(final: Path, source: SourceFile, sha256: str) -> _Record:
    record = _Record(source.url, final.stat().st_size, sha256, source.md5, datetime.now(UTC).isoformat(timespec="seconds"))
    with _disk(_beside(final)):
        write_durably(_beside(final), (json.dumps(asdict(record), indent=1) + "\n").encode())
    return record


def _checked(path: Path, source: SourceFile, record: _Record | None) -> str:
    """Return the sha256 of ``path``, a complete part or the file itself, checked against the published one or else its first download's."""
    final = path.with_name(source.name)
    try:
        sha256 = verify(path, source)
    except DownloadError as error:
        if path != final:
            _Part(path).discard()
        done = "delete it first" if path == final else "it was deleted; if that fails again, the server has another file"
        raise DownloadError(f"{error} ({done})") from error
    is_published = source.md5 is not None or source.sha256 is not None
    if record is not None and not is_published and record.sha256 != sha256:
        # A part stays: if the user accepts the new file, nothing has to be downloaded again.
        raise DownloadError(
            f"{path} is not the {source.name} of the first download: expected sha256 {record.sha256}, got {sha256}; "
            f"delete {_beside(final)} to accept the new file, or {path} to fetch it again from {source.url}"
        )
    return sha256


class _Interrupted(Exception):
    """An attempt failed in a way that a retry may fix."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class _Version:
    """Identity of a file's version as reported by its server."""

    etag: str | None = None
    modified: str | None = None
    total: int | None = None

    def is_other(self, seen: _Version) -> bool:
        """Return whether anything known on both sides differs."""
        pairs = ((self.etag, seen.etag), (self.modified, seen.modified), (self.total, seen.total))
        return any(ours is not None and theirs is not None and ours != theirs for ours, theirs in pairs)


@dataclass(frozen=True, slots=True)
class _Part:
    """The partial file, with the version that it belongs to."""

    path: Path

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self) -> _Version | None:
        try:
            return _Version(**json_value(_beside(self.path).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):  # never written, or cut off by a power failure
            return None

    def discard(self) -> None:
        with _disk(self.path):
            self.path.unlink(missing_ok=True)  # first: a version without a part is harmless
            _beside(self.path).unlink(missing_ok=True)


def _fetch(source: SourceFile, part: _Part, progress: Progress, pause_s: float) -> None:
    """Send requests until the last byte has arrived, or until ``ATTEMPTS`` attempts in a row made no progress."""
    url = mirrored(source.url)
    # Progress is a byte beyond the furthest so far: a server that ignores Range and always disconnects must not be retried for ever.
    furthest, failures = part.size(), 0
    is_complete = furthest > 0 and furthest == source.n_bytes
    while not is_complete:
        try:
            is_complete = _attempt(url, source, part, progress)
        except _Interrupted as stop:
            failures = 0 if part.size() > furthest else failures + 1
            furthest = max(furthest, part.size())
            if failures == ATTEMPTS:
                what = f"{url}: {ATTEMPTS} attempts without progress, the last: {stop}"
                raise DownloadError(f"{what}; {part.size()} bytes are kept: run the command again") from stop
            wait_s = stop.wait_s if stop.wait_s is not None else pause_s * 2 ** max(failures - 1, 0)
            logger.warning("%s: %s; trying again in %.0f s", url, stop, wait_s)
            time.sleep(min(wait_s, MAX_PAUSE_S))
    progress(part.size(), part.size())


def _attempt(url: str, source: SourceFile, part: _Part, progress: Progress) -> bool:
    """Request the missing part once.

    Returns:
        Whether the file is complete. If not, an existing part that did not match is discarded, so that the next request is for the whole.
    """
    known, offset = part.version(), part.size()
    if known is None and source.md5 is None and source.sha256 is None:
        offset = 0  # otherwise a rest of another version would go unnoticed
    published = _Version(total=source.n_bytes)
    expected = known or published
    with contextlib.closing(_ask(url, offset, expected)) as answer:
        seen = _version_of(answer)
        if offset and answer.status in (206, 416):
            is_same = seen.total is not None and not expected.is_other(seen) and not published.is_other(seen)
            if is_same and answer.status == 416 and seen.total == offset:
                return True
            if not is_same or _content_range(answer, "start") != offset:
                part.discard()
                return False
        else:
            _check_whole(answer, url, published)
            offset = 0
        _receive(answer, part, replace(seen, total=source.n_bytes or seen.total), offset, progress)
    return True


def _receive(answer: http.client.HTTPResponse, part: _Part, version: _Version, offset: int, progress: Progress) -> None:
    """Append the response body to the part, whose first ``offset`` bytes stay."""
    done = told = offset
    with _disk(part.path), part.path.open("ab" if offset else "wb") as file:
        if not offset:  # after the old bytes are gone, so that they are never attributed to this version
            _beside(part.path).write_text(json.dumps(asdict(version)))
        _check_space(part, version.total)
        progress(done, version.total)
        while chunk := _read(answer):
            file.write(chunk)
            done += len(chunk)
            if done - told >= CHUNK_BYTES:
                progress(done, version.total)
                told = done
    if version.total is not None and done < version.total:
        raise _Interrupted(f"the connection ended after {done} of {version.total} bytes")


def _ask(url: str, offset: int, version: _Version) -> http.client.HTTPResponse:
    headers = {"User-Agent": "wikidx", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        is_strong = version.etag is not None and not version.etag.startswith("W/")  # a weak ETag is no condition: RFC 9110, 13.1.5
        headers |= {"If-Range": condition} if (condition := version.etag if is_strong else version.modified) else {}
    with _network(url):
        try:
            answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            answer = error  # a response like any other: statuses are interpreted in one place
    return cast(http.client.HTTPResponse, answer)


def _read(answer: http.client.HTTPResponse) -> bytes:
    with _network(answer.url):
        return answer.read1(CHUNK_BYTES)  # not read(), which would lose the bytes before a connection reset


@contextlib.contextmanager
def _network(url: str) -> Iterator[None]:
    """Translate exceptions of urllib, http.client, socket and ssl; all but ``HTTPException`` are kinds of ``OSError``."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError | http.client.InvalidURL):
            raise DownloadError(f"{url} cannot be opened ({cause}): check the address, IDX_MIRROR and the system's certificates") from error
        raise _Interrupted(f"{type(cause).__name__}: {cause}") from error


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Translate exceptions of the file system."""
    try:
        yield
    except OSError as error:
        what = "free some space or" if error.errno == errno.ENOSPC else "check the path and its permissions or"
        raise StorageError(f"{path}: {error.strerror or error}: {what} choose another folder") from error


def _check_whole(answer: http.client.HTTPResponse, url: str, published: _Version) -> None:
    """Accept a response with the whole file in its published size; raise otherwise."""
    if answer.status in (408, 429) or answer.status >= 500:
        wait_s = answer.headers.get("Retry-After", "")  # its other form, a date, is rare and ignored
        raise _Interrupted(f"status {answer.status} {answer.reason}", float(wait_s) if wait_s.isdecimal() else None)
    if answer.status != 200:
        raise DownloadError(f"{url}: status {answer.status} {answer.reason}: check the address, or set IDX_MIRROR to a server that has it")
    seen = _version_of(answer)
    if published.is_other(seen):
        raise DownloadError(f"{url} has {seen.total} bytes, expected {published.total}: the server has another file")


def _version_of(answer: http.client.HTTPResponse) -> _Version:
    length = answer.headers.get("Content-Length", "") if answer.status == 200 else ""
    total = int(length) if length.isdecimal() else _content_range(answer, "total")
    return _Version(answer.headers.get("ETag"), answer.headers.get("Last-Modified"), total)


def _content_range(answer: http.client.HTTPResponse, field: str) -> int | None:
    found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
    return int(found[field]) if found and found[field] and found[field] != "*" else None


def _check_space(part: _Part, total: int | None) -> None:
    """Raise an error if the missing part of a file of ``total`` bytes does not fit on the disk."""
    with _disk(part.path):
        free = shutil.disk_usage(part.path.parent).free
        missing = (total or 0) - part.size()
    if missing > free:
        what = f"{part.path.parent} has {free / 1e9:.3f} GB free, but {part.path.stem} needs {missing / 1e9:.3f} GB more"
        raise StorageError(f"{what}: free some space or choose another folder")
