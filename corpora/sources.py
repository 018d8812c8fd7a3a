"""Locate, download and verify the files of a corpus: published files, local copies of them, or a user's own file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wikidx.base.artifacts.building import lock
from wikidx.base.artifacts.durable import file_sha256
from wikidx.base.artifacts.home import downloads_path
from wikidx.base.errors import InputError
from wikidx.base.net.download import LocalFile, SourceFile, download, verify
from wikidx.base.progress import Progress, silent

from .corpus import Corpus
from .reading.compression import check_file


def local_paths(corpus: Corpus, source: Path | None) -> list[Path] | None:
    """Return the local paths of the corpus's files, in reading order; None if idx downloads the files.

    Args:
        corpus: the corpus.
        source: path of a local copy; for a corpus of several files, their folder; None: no local copy.

    Raises:
        InputError: a file is missing, or ``source`` is given for a corpus that ships with idx.
    """
    if corpus.path is not None:
        paths = list(corpus.paths.values()) or [corpus.path]
    elif not corpus.files:
        if source is not None:
            raise InputError(f"the corpus '{corpus.name}' ships with idx: --source does not apply")
        return []
    elif source is None:
        return None
    else:
        paths = [source / file.name for file in corpus.files] if len(corpus.files) > 1 else [source]
    for path in paths:
        check_file(path)
    return paths


def obtain_files(corpus: Corpus, source: Path | None, *, verified: bool = True, progress: Progress = silent) -> list[LocalFile]:
    """Return the corpus's files in reading order; download missing files.

    Args:
        corpus: the corpus.
        source: see ``local_paths``.
        verified: check local copies against the published checksums; False for a subset, whose files may be incomplete.
        progress: called with (bytes done, total bytes) of the file being downloaded or read.

    Raises:
        InputError: see ``local_paths``.
        DownloadError, StorageError, LockedError: a file cannot be downloaded, or differs from the published file.
    """
    paths = local_paths(corpus, source)
    if paths is None:
        return download_all(corpus.files, downloads_path(corpus.name), progress)
    if not verified or corpus.path is not None:
        return [LocalFile(path, _sha256(path, progress), str(path.absolute())) for path in paths]
    return [LocalFile(path, verify(path, file, progress), str(path.absolute())) for path, file in zip(paths, corpus.files, strict=True)]


def missing_bytes(corpus: Corpus) -> int:
    """Return the number of bytes still to be downloaded; files of unknown size count as 0."""
    folder = downloads_path(corpus.name)
    return sum(max(0, (file.n_bytes or 0) - downloaded_bytes(file, folder)) for file in corpus.files)


def downloaded_bytes(file: SourceFile, folder: Path) -> int:
    """Return the number of bytes of a file that are already downloaded to a folder."""
    return max((path.stat().st_size for path in (folder / file.name, folder / f"{file.name}.part") if path.is_file()), default=0)


def download_all(files: Sequence[SourceFile], folder: Path, progress: Progress) -> list[LocalFile]:
    """Download the missing files to a folder, and return all of them; raises ``LockedError``, and as ``download`` does."""
    with lock(folder):
        return [download(file, folder, progress=progress) for file in files]


_checksums: dict[tuple[Path, int, int], str] = {}  # cache: (path, size, modification time) -> sha256


def _sha256(path: Path, progress: Progress) -> str:
    stat = path.stat()
    key = (path.absolute(), stat.st_size, stat.st_mtime_ns)
    if key not in _checksums:
        _checksums[key] = file_sha256(path, lambda done: progress(done, stat.st_size))
    return _checksums[key]
