"""Resumable, verified download of one file over HTTP(S).

An unfinished download is ``<name>.part``; ``<name>.part.json`` records the server's version of the file. A complete, verified file is
``<name>``; ``<name>.json`` records its size and checksums. This module takes no locks: the caller must prevent concurrent downloads of the
same file into the same folder.
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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from wikidx.base.artifacts.durable import file_digests, parse_json, sync, write_durably
from wikidx.base.errors import DownloadError, InputError, StorageError
from wikidx.base.progress import Progress, silent

from .retrying import is_transient, retry_after_s

ATTEMPTS = 5
TIMEOUT_S = 60.0
MAX_PAUSE_S = 60.0
CHUNK_BYTES = 1 << 20
MAX_UNPUBLISHED_BYTES = 1 << 30  # of a file without a published size
_PROGRESS_BYTES = 1 << 16  # fewer in an attempt are none: a server could send a byte at a time for ever

_CONTENT_RANGE = re.compile(r"bytes (?:(?P<start>\d{1,18})-\d+|\*)/(?P<total>\d{1,18}|\*)", re.ASCII)

logger = logging.getLogger(__name__)


def apply_mirror(url: str) -> str:
    """Return ``url`` with its scheme and host replaced by the value of the environment variable ``IDX_MIRROR``, if set.

    Raises:
        InputError: ``IDX_MIRROR`` is not an http or https address.
    """
    mirror = os.environ.get("IDX_MIRROR", "")
    if not mirror:
        return url
    if urlsplit(mirror).scheme not in ("http", "https"):
        raise InputError(f"IDX_MIRROR is '{mirror}': give an address that begins with http:// or https://, or unset it")
    return mirror.rstrip("/") + urlsplit(url)._replace(scheme="", netloc="").geturl()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a corpus: local name, address, published size and checksums (None: not published)."""

    name: str
    url: str
    n_bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this machine: its path, its sha256, and its origin (a path or an address)."""

    path: Path
    sha256: str
    origin: str


def download(source: SourceFile, folder: Path, *, progress: Progress = silent, pause_s: float = 2.0) -> LocalFile:
    """Download the missing part of the file ``folder / source.name``, and return the verified file.

    A file without a published md5 or sha256 is checked against the sha256 recorded at its first download.

    Args:
        source: name, address, size and checksums of the file.
        folder: the destination, created if missing.
        progress: called with (bytes downloaded, total bytes); the first number falls only if the server forces a restart.
        pause_s: seconds to wait after a failed attempt, doubled after each further failure without progress, up to ``MAX_PAUSE_S``.

    Raises:
        DownloadError: the server refuses, does not answer, or sends a file of another size or checksum.
        StorageError: the disk has too little space, or the folder is not writable.
        InputError: ``IDX_MIRROR`` is invalid.
    """
    final = folder / source.name
    record = _read_record(_record_path(final))
    if final.exists():
        if record is None or not record.covers(final, source):
            record = _write_record(final, source, _verify_checksum(final, source, record))
        return LocalFile(final, record.sha256, source.url)
    part = _PartialFile(folder / f"{source.name}.part")
    with _disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _check_space(part, source.n_bytes)
    _fetch(source, part, progress, pause_s)
    sha256 = _verify_checksum(part.path, source, record)
    with _disk(final):
        sync(part.path)
        os.replace(part.path, final)
        sync(folder)
    part.discard()
    _write_record(final, source, sha256)
    return LocalFile(final, sha256, source.url)


def verify(path: Path, source: SourceFile, progress: Progress = silent) -> str:
    """Check a file against the published size and checksums, and return its sha256.

    Raises:
        DownloadError: the file differs from ``source``.
        StorageError: the file cannot be read.
    """
    with _disk(path):
        size = path.stat().st_size
    if source.n_bytes not in (None, size):
        raise DownloadError(f"{path} is not {source.name}: expected {source.n_bytes} bytes, got {size}: fetch it again from {source.url}")
    algorithms = ("sha256",) if source.md5 is None else ("md5", "sha256")
    with _disk(path):
        actual = file_digests(path, algorithms, lambda done: progress(done, size))
    for algorithm in algorithms:
        expected = getattr(source, algorithm)
        if expected is not None and expected.lower() != actual[algorithm]:
            message = f"{path} is not {source.name}: expected {algorithm} {expected}, got {actual[algorithm]}"
            raise DownloadError(f"{message}: fetch it again from {source.url}")
    return actual["sha256"]


@dataclass(frozen=True, slots=True)
class _Record:
    """Record of a file's verification, stored next to the file as JSON; ``at`` is the time (ISO 8601)."""

    url: str
    bytes: int
    sha256: str
    md5: str | None
    at: str

    def covers(self, path: Path, source: SourceFile) -> bool:
        """Return whether the record proves that ``path`` is ``source``: same address, size and published checksums."""
        pairs = ((source.n_bytes, self.bytes), (source.md5, self.md5), (source.sha256, self.sha256))
        is_checked = all(published is None or published == recorded for published, recorded in pairs)
        return is_checked and self.url == source.url and self.bytes == path.stat().st_size


def _record_path(path: Path) -> Path:
    """Return the path of the record of a complete or partial file."""
    return Path(f"{path}.json")


def _read_record(path: Path) -> _Record | None:
    if not path.exists():
        return None
    with _disk(path):
        text = path.read_bytes()
    try:
        return _Record(**parse_json(text))
    except (ValueError, TypeError) as error:
        raise DownloadError(f"{path} is not a download record ({error}): delete it to have the file verified again") from error


def _write_record(final: Path, source: SourceFile, sha256: str) -> _Record:
    record = _Record(source.url, final.stat().st_size, sha256, source.md5, datetime.now(UTC).isoformat(timespec="seconds"))
    with _disk(_record_path(final)):
        write_durably(_record_path(final), (json.dumps(asdict(record), indent=1) + "\n").encode())
    return record


def _verify_checksum(path: Path, source: SourceFile, record: _Record | None) -> str:
    """Verify a complete file and return its sha256.

    Without a published checksum, the sha256 must equal that of the first download, which is in ``record``.
    """
    final = path.with_name(source.name)
    try:
        sha256 = verify(path, source)
    except DownloadError as error:
        if path != final:
            _PartialFile(path).discard()
        remedy = "delete it first" if path == final else "it was deleted; if that fails again, the server has another file"
        raise DownloadError(f"{error} ({remedy})") from error
    is_published = source.md5 is not None or source.sha256 is not None
    if record is not None and not is_published and record.sha256 != sha256:
        # The file is kept: if the user accepts it, nothing is downloaded again.
        raise DownloadError(
            f"{path} is not the {source.name} of the first download: expected sha256 {record.sha256}, got {sha256}; "
            f"delete {_record_path(final)} to accept the new file, or {path} to fetch it again from {source.url}"
        )
    return sha256


class _RetryableError(Exception):
    """A failure that a retry may fix, after ``wait_s`` seconds if the server requests a wait."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class _Version:
    """ETag, modification date and size that a server reports for a file; None: not reported."""

    etag: str | None = None
    modified: str | None = None
    total: int | None = None

    def differs_from(self, actual: _Version) -> bool:
        """Return whether the versions differ in a value that both report."""
        pairs = ((self.etag, actual.etag), (self.modified, actual.modified), (self.total, actual.total))
        return any(mine is not None and other is not None and mine != other for mine, other in pairs)


@dataclass(frozen=True, slots=True)
class _PartialFile:
    """A partly downloaded file, and the record of its version."""

    path: Path

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self) -> _Version | None:
        try:
            return _Version(**parse_json(_record_path(self.path).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):  # the record was never written, or a power failure truncated it
            return None

    def discard(self) -> None:
        with _disk(self.path):
            self.path.unlink(missing_ok=True)  # before its record: a record without a file is harmless
            _record_path(self.path).unlink(missing_ok=True)


def _fetch(source: SourceFile, part: _PartialFile, progress: Progress, pause_s: float) -> None:
    """Send requests until the file is complete, or until ``ATTEMPTS`` consecutive attempts have made no progress."""
    url = apply_mirror(source.url)
    # Only a size above the previous maximum is progress: otherwise a server that ignores Range and always disconnects is retried forever.
    furthest, failures = part.size(), 0
    is_complete = furthest > 0 and furthest == source.n_bytes
    while not is_complete:
        try:
            is_complete = _attempt(url, source, part, progress)
        except _RetryableError as error:
            failures = 0 if part.size() >= furthest + _PROGRESS_BYTES else failures + 1
            furthest = furthest if failures else part.size()
            if failures == ATTEMPTS:
                message = f"{url}: {ATTEMPTS} attempts without progress, the last: {error}"
                raise DownloadError(f"{message}; {part.size()} bytes are kept: run the command again") from error
            wait_s = min(error.wait_s if error.wait_s is not None else pause_s * 2 ** max(failures - 1, 0), MAX_PAUSE_S)
            logger.warning("%s: %s; trying again in %.0f s", url, error, wait_s)
            time.sleep(wait_s)
    progress(part.size(), part.size())


def _attempt(url: str, source: SourceFile, part: _PartialFile, progress: Progress) -> bool:
    """Request the missing part once.

    Returns:
        True if the file is complete. False if the response did not continue the partial file, which is then discarded: the next request
        is for the whole file.
    """
    known, offset = part.version(), part.size()
    if known is None and source.md5 is None and source.sha256 is None:
        offset = 0  # start again, because bytes of two versions could be mixed unnoticed
    published = _Version(total=source.n_bytes)
    expected = known or published
    with contextlib.closing(_request(url, offset, expected)) as response:
        actual = _version_of(response)
        if offset and response.status in (206, 416):
            is_same = actual.total is not None and not expected.differs_from(actual) and not published.differs_from(actual)
            if is_same and response.status == 416 and actual.total == offset:
                return True
            if not is_same or _content_range(response, "start") != offset:
                part.discard()
                return False
        else:
            _check_response(response, url, published)
            offset = 0
        try:
            _receive(response, part, replace(actual, total=source.n_bytes or actual.total), offset, progress)
        except DownloadError:
            part.discard()
            raise
    return True


def _receive(response: http.client.HTTPResponse, part: _PartialFile, version: _Version, offset: int, progress: Progress) -> None:
    """Write the response body after the first ``offset`` bytes of the partial file."""
    done = reported = offset
    most = MAX_UNPUBLISHED_BYTES if version.total is None else version.total
    with _disk(part.path), part.path.open("ab" if offset else "wb") as file:
        if not offset:  # opening the file has removed the old bytes, so that they are never attributed to this version
            _record_path(part.path).write_text(json.dumps(asdict(version)))
        _check_space(part, version.total)
        progress(done, version.total)
        while chunk := _read(response):
            file.write(chunk)
            done += len(chunk)
            if done > most:
                raise DownloadError(f"{response.url} sends more than {most:,} bytes: the server has another file")
            if done - reported >= CHUNK_BYTES:
                progress(done, version.total)
                reported = done
    if version.total is not None and done < version.total:
        raise _RetryableError(f"the connection ended after {done} of {version.total} bytes")


def _request(url: str, offset: int, version: _Version) -> http.client.HTTPResponse:
    headers = {"User-Agent": "wikidx", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        is_strong = version.etag is not None and not version.etag.startswith("W/")  # If-Range needs a strong ETag: RFC 9110, 13.1.5
        headers |= {"If-Range": condition} if (condition := version.etag if is_strong else version.modified) else {}
    with _network(url):
        try:
            response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            response = error  # also a response: the caller interprets its status
    return cast(http.client.HTTPResponse, response)


def _read(response: http.client.HTTPResponse) -> bytes:
    with _network(response.url):
        return response.read1(CHUNK_BYTES)  # not read(), which would lose the bytes before a connection reset


@contextlib.contextmanager
def _network(url: str) -> Iterator[None]:
    """Translate network exceptions to ``_RetryableError`` or, if no retry can help, to ``DownloadError``."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:  # the exceptions of urllib, socket and ssl are subclasses of OSError
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError | http.client.InvalidURL):
            raise DownloadError(f"{url} cannot be opened ({cause}): check the address, IDX_MIRROR and the system's certificates") from error
        raise _RetryableError(f"{type(cause).__name__}: {cause}") from error


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Translate file-system exceptions to ``StorageError``."""
    try:
        yield
    except OSError as error:
        advice = "free some space or" if error.errno == errno.ENOSPC else "check the path and its permissions or"
        raise StorageError(f"{path}: {error.strerror or error}: {advice} choose another folder") from error


def _check_response(response: http.client.HTTPResponse, url: str, published: _Version) -> None:
    """Raise an error unless the response is the whole file in its published size."""
    if is_transient(response.status):
        raise _RetryableError(f"status {response.status} {response.reason}", retry_after_s(cast(Mapping[str, str], response.headers)))
    if response.status != 200:
        raise DownloadError(f"{url}: status {response.status} {response.reason}: check the address, or set IDX_MIRROR to a server with it")
    actual = _version_of(response)
    if published.total is None and (actual.total or 0) > MAX_UNPUBLISHED_BYTES:
        raise DownloadError(f"{url} has {actual.total:,} bytes, expected at most {MAX_UNPUBLISHED_BYTES:,}: the server has another file")
    if published.differs_from(actual):
        raise DownloadError(f"{url} has {actual.total} bytes, expected {published.total}: the server has another file")


def _version_of(response: http.client.HTTPResponse) -> _Version:
    length = response.headers.get("Content-Length", "") if response.status == 200 else ""
    total = int(length) if length.isdecimal() and len(length) < 19 else _content_range(response, "total")
    return _Version(response.headers.get("ETag"), response.headers.get("Last-Modified"), total)


def _content_range(response: http.client.HTTPResponse, field: str) -> int | None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    return int(match[field]) if match and match[field] and match[field] != "*" else None


def _check_space(part: _PartialFile, total: int | None) -> None:
    """Raise ``StorageError`` if the rest of a file of ``total`` bytes does not fit on the disk."""
    with _disk(part.path):
        free = shutil.disk_usage(part.path.parent).free
        missing = (total or 0) - part.size()
    if missing > free:
        message = f"{part.path.parent} has {free / 1e9:.3f} GB free, but {part.path.stem} needs {missing / 1e9:.3f} GB more"
        raise StorageError(f"{message}: free some space or choose another folder")
