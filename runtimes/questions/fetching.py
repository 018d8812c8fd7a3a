"""Published question sets in the data home: download, check, extraction and conversion.

The published files stay in ``downloads/questions/NAME``. A split's questions are ``questions/NAME/SPLIT.jsonl`` in the format "idx";
``SPLIT.json`` next to it records the published file (address, sha256) and the number of questions. A published file without a known
checksum must equal that of the first conversion.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from wikidx.base.artifacts.building import lock
from wikidx.base.artifacts.durable import atomic_write, read_json_object, write_durably
from wikidx.base.artifacts.home import downloads_path
from wikidx.base.errors import DownloadError, InputError
from wikidx.base.net.download import LocalFile, download
from wikidx.base.progress import Progress, silent

from .base import Question
from .reading import read_questions
from .sets import PublishedSet, converted_path, published_sets

_MAX_MEMBER_BYTES = 8 << 30
_BROKEN_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError)

_Member = tuple[str, int, IO[bytes]]


def download_folder(entry: PublishedSet) -> Path:
    """Return the folder of a set's published file, downloaded or put there by the user."""
    return downloads_path("questions") / entry.name


def fetch_set(entry: PublishedSet, progress: Progress = silent) -> list[PublishedSet]:
    """Download, check and convert a split, and every other split in the same published file; finished steps are not repeated.

    Args:
        entry: the split.
        progress: called with (bytes downloaded, total bytes).

    Returns:
        The splits in the file.

    Raises:
        DownloadError: the file cannot be had, or is not the published one, or not that of the first download.
        InputError: an archive lacks a member or is corrupt, or the file has another number of questions.
        StorageError, LockedError: see ``download``.
    """
    folder = download_folder(entry)
    splits = [other for other in published_sets() if other.file.url == entry.file.url]
    with lock(folder):
        try:
            file = download(entry.file, folder, progress=progress)
        except DownloadError as error:
            by_hand = "" if (folder / entry.file.name).exists() else f"; or put {entry.file.name} into {folder}, and repeat the command"
            raise DownloadError(f"{error}{by_hand}") from error
        for split in splits:
            _convert(split, file)
    return splits


def _convert(entry: PublishedSet, file: LocalFile) -> None:
    """Write a split's questions and its record, unless they exist."""
    path = converted_path(entry)
    record = path.with_suffix(".json")
    if record.exists():
        known = read_json_object(record, "delete it").get("sha256")
        if known != file.sha256:
            raise DownloadError(
                f"{file.path} is not that of the first time: expected sha256 {known}, got {file.sha256}; delete {record} to accept it"
            )
        if path.is_file():
            return
    questions = _read(entry, file.path)
    if len(questions) != entry.n:
        raise InputError(
            f"{file.path} has {len(questions):,} questions of '{entry.key}', expected {entry.n:,}: delete it and "
            f"{file.path.name}.json, and fetch it again from {entry.file.url}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"url": entry.file.url, "sha256": file.sha256, "questions": len(questions), "is_verified": entry.file.sha256 is not None}
    write_durably(record, (json.dumps(about, indent=1) + "\n").encode())  # first: questions are always of a recorded file
    write_questions(path, questions)


def write_questions(path: Path, questions: Iterable[Question]) -> None:
    """Write questions to a file in the format "idx"."""
    with atomic_write(path) as out:
        out.writelines(map(_to_line, questions))


def _to_line(question: Question) -> bytes:
    values = (question.id, question.text, question.golden_answers, dict(question.gold))
    record: dict[str, Any] = dict(zip(("id", "question", "golden_answers", "gold"), values, strict=True))
    if question.passages:
        record["docs"] = [{**item.passage._asdict(), "score": item.score} for item in question.passages]
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()


def _read(entry: PublishedSet, path: Path) -> list[Question]:
    if not entry.members:
        return read_questions(path, entry.format, with_passages=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        extract(path, entry.members, Path(folder))
        return read_questions(Path(folder) / entry.members[0], entry.format, with_passages=True)


def extract(archive: Path, names: Sequence[str], folder: Path) -> None:
    """Write files of a zip or tar archive to a folder. No path in the archive decides where anything is written.

    Args:
        archive: the archive.
        names: names of regular files, without the folders in the archive.
        folder: the destination.

    Raises:
        InputError: the archive is corrupt, or does not have exactly one file of each name.
    """
    missing = set(names)
    try:
        for name, n_bytes, content in _members(archive):
            if name not in names:
                continue
            if name not in missing or n_bytes > _MAX_MEMBER_BYTES:
                raise InputError(f"{archive}: a second '{name}', or one of {n_bytes:,} bytes: not the published archive")
            missing.remove(name)
            with (folder / name).open("wb") as out:
                shutil.copyfileobj(content, out)
    except _BROKEN_ARCHIVE as error:
        raise InputError(
            f"{archive} is corrupt ({str(error).partition(chr(10))[0] or type(error).__name__}): delete it, and repeat the command"
        ) from error
    if missing:
        raise InputError(f"{archive} has no file {', '.join(sorted(missing))}: not the published archive")


def _members(archive: Path) -> Iterator[_Member]:
    """Yield name, size and content of the regular files in an archive."""
    with archive.open("rb") as start:
        is_zip = start.read(2) == b"PK"
    if is_zip:
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                if not info.is_dir():
                    with file.open(info) as content:
                        yield PurePosixPath(info.filename).name, info.file_size, content
        return
    with tarfile.open(archive) as file:
        for member in file:
            if member.isreg():
                yield PurePosixPath(member.name).name, member.size, cast(IO[bytes], file.extractfile(member))
