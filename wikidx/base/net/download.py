"""Resumable, verified download of one file over HTTP(S).

An unfinished download is ``<name>.part``, and ``<name>.part.etag`` the server's strong ETag of the file, if it has one (RFC 9110, 8.8.3). A
complete, verified file is ``<name>``; ``<name>.json`` records its size and checksums. This module takes no locks: the caller must prevent
concurrent downloads of the same file into the same folder.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from wikidx.base.artifacts.building import system_errors
from wikidx.base.artifacts.durable import file_digests, parse_json, sync, write_durably
from wikidx.base.errors import DownloadError, IdxError, InputError, StorageError
from wikidx.base.progress import Progress, silent

from .retrying import FINAL, TRANSIENT, Retries, Verdict, is_transient, retry_after_s

ATTEMPTS = 5
TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20
MAX_UNPUBLISHED_BYTES = 1 << 30  # of a file without a published size
_PROGRESS_BYTES = 1 << 16  # fewer in an attempt are none: a server could send a byte at a time for ever

_CONTENT_RANGE = re.compile(r"bytes (?:(?P<start>\d{1,18})-\d+/.*|\*/(?P<total>\d{1,18}))", re.ASCII)


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
        pause_s: maximum pause after a failed attempt, in seconds, doubled after each further failure without progress.

    Raises:
        DownloadError: the server refuses, does not answer, or sends a file of another size or checksum.
        StorageError: the disk has too little space, or the folder is not writable.
        InputError: ``IDX_MIRROR`` is invalid.
    """
    final = folder / source.name
    with system_errors(final):
        record = _read_record(_record_path(final))
        if final.exists():
            if record is None or not record.covers(final, source):
                record = _write_record(final, source, _verify_checksum(final, source, record))
            return LocalFile(final, record.sha256, source.url)
        part = _PartialFile(folder / f"{source.name}.part")
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(source, part, progress, pause_s)
        sha256 = _verify_checksum(part.path, source, record)
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
    with system_errors(path):
        size = path.stat().st_size
        if source.n_bytes not in (None, size):
            raise DownloadError(
                f"{path} is not {source.name}: expected {source.n_bytes} bytes, got {size}: fetch it again from {source.url}"
            )
        algorithms = ("sha256",) if source.md5 is None else ("md5", "sha256")
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
    """Return the path of the record of a complete file."""
    return Path(f"{path}.json")


def _read_record(path: Path) -> _Record | None:
    if not path.exists():
        return None
    try:
        return _Record(**parse_json(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise DownloadError(f"{path} is not a download record ({error}): delete it to have the file verified again") from error


def _write_record(final: Path, source: SourceFile, sha256: str) -> _Record:
    record = _Record(source.url, final.stat().st_size, sha256, source.md5, datetime.now(UTC).isoformat(timespec="seconds"))
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


class _RetryableError(DownloadError):
    """A failure that a retry may fix, after ``pause_s`` seconds if the server requests a pause."""

    def __init__(self, reason: str, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


def _judge(error: IdxError) -> Verdict:
    return Verdict(TRANSIENT, error.pause_s) if isinstance(error, _RetryableError) else Verdict(FINAL)


@dataclass(frozen=True, slots=True)
class _PartialFile:
    """A partly downloaded file, and the strong ETag of the version of which it is a part."""

    path: Path

    @property
    def etag_path(self) -> Path:
        return Path(f"{self.path}.etag")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def etag(self) -> str | None:
        return self.etag_path.read_text(errors="replace") if self.etag_path.exists() else None

    def keep_etag(self, etag: str) -> None:
        """Record the ETag of the version that is being received, unless it is a weak one, which two versions may share, or none."""
        self.etag_path.unlink(missing_ok=True)
        if etag.isascii() and etag.startswith('"'):
            write_durably(self.etag_path, etag.encode())

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)  # before its ETag: that is harmless without a file
        self.etag_path.unlink(missing_ok=True)


def _fetch(source: SourceFile, part: _PartialFile, progress: Progress, pause_s: float) -> None:
    """Send requests until the file is complete, or until ``ATTEMPTS`` consecutive attempts have made no progress."""
    url = apply_mirror(source.url)
    retries = Retries(ATTEMPTS - 1, pause_s, _judge, threading.Event().wait)
    # Only a size above the previous maximum is progress: otherwise a server that ignores Range and always disconnects is retried forever.
    furthest = part.size()
    is_complete = furthest > 0 and furthest == source.n_bytes

    def attempt() -> bool:
        nonlocal furthest
        try:
            return _attempt(url, source, part, progress)
        except _RetryableError:
            if part.size() < furthest + _PROGRESS_BYTES:
                raise
        furthest = part.size()
        time.sleep(pause_s)
        return False

    try:
        while not is_complete:
            is_complete = retries.send(attempt)
    except _RetryableError as error:
        raise DownloadError(f"{url}: {error}; {part.size()} bytes are kept: run the command again") from error
    progress(part.size(), part.size())


def _attempt(url: str, source: SourceFile, part: _PartialFile, progress: Progress) -> bool:
    """Request the missing part once.

    Returns:
        True if the file is complete. False if the response did not continue the partial file, which is then discarded: the next request
        is for the whole file.
    """
    etag, offset = part.etag(), part.size()
    if etag is None and source.md5 is None and source.sha256 is None:
        offset = 0  # start again, because bytes of two versions could be mixed unnoticed
    with contextlib.closing(_request(url, offset, etag)) as response:
        if offset and response.status in (206, 416):
            if response.status == 416 and _content_range(response, "total") == offset:
                return True
            if _content_range(response, "start") != offset or etag not in (None, response.headers.get("ETag", etag)):
                part.discard()
                return False
        else:
            offset = 0
        _receive(response, part, offset, _expected_bytes(response, url, offset, source.n_bytes), progress)
    return True


def _receive(response: http.client.HTTPResponse, part: _PartialFile, offset: int, total: int | None, progress: Progress) -> None:
    """Write the response body after the first ``offset`` bytes of the partial file."""
    done = reported = offset
    most = MAX_UNPUBLISHED_BYTES if total is None else total
    with part.path.open("ab" if offset else "wb") as file:
        if not offset:  # opening the file has removed the old bytes, so that they are never attributed to this version
            part.keep_etag(response.headers.get("ETag", ""))
        _check_space(part, total)
        progress(done, total)
        while chunk := _read(response):
            file.write(chunk)
            done += len(chunk)
            if done > most:
                part.discard()
                raise DownloadError(f"{response.url} sends more than {most:,} bytes: the server has another file")
            if done - reported >= CHUNK_BYTES:
                progress(done, total)
                reported = done
    if total is not None and done < total:
        raise _RetryableError(f"the connection ended after {done} of {total} bytes")


def _expected_bytes(response: http.client.HTTPResponse, url: str, offset: int, published: int | None) -> int | None:
    """Return the size of the whole file, or None if it is unknown; raise an error unless the response has its bytes from ``offset`` on."""
    if is_transient(response.status):
        raise _RetryableError(f"status {response.status} {response.reason}", retry_after_s(cast(Mapping[str, str], response.headers)))
    if response.status not in (200, 206):
        raise DownloadError(f"{url}: status {response.status} {response.reason}: check the address, or set IDX_MIRROR to a server with it")
    length = response.headers.get("Content-Length", "")
    total = offset + int(length) if length.isdecimal() and len(length) < 19 else published
    if published is None and (total or 0) > MAX_UNPUBLISHED_BYTES:
        raise DownloadError(f"{url} has {total:,} bytes, expected at most {MAX_UNPUBLISHED_BYTES:,}: the server has another file")
    if published not in (None, total):
        raise DownloadError(f"{url} has {total} bytes, expected {published}: the server has another file")
    return total


def _request(url: str, offset: int, etag: str | None) -> http.client.HTTPResponse:
    headers = {"User-Agent": "wikidx", "Accept-Encoding": "identity"}
    if offset:
        headers |= {"Range": f"bytes={offset}-"} | ({} if etag is None else {"If-Range": etag})
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


def _content_range(response: http.client.HTTPResponse, field: str) -> int | None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    return int(match[field]) if match and match[field] else None


def _check_space(part: _PartialFile, total: int | None) -> None:
    """Raise ``StorageError`` if the rest of a file of ``total`` bytes does not fit on the disk."""
    free = shutil.disk_usage(part.path.parent).free
    missing = (total or 0) - part.size()
    if missing > free:
        message = f"{part.path.parent} has {free / 1e9:.3f} GB free, but {part.path.stem} needs {missing / 1e9:.3f} GB more"
        raise StorageError(f"{message}: free some space or choose another folder")
