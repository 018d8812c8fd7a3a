"""Building, reusing and opening the store of a corpus."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.checked_files import build_checked
from wikidx.base.artifacts.durable import file_sha256, parse_json, write_durably
from wikidx.base.artifacts.home import corpus_path, home, network_file_system
from wikidx.base.artifacts.manifest import Manifest, Parameters, Recipe, read_manifest
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, ArtifactMissing, InputError
from wikidx.base.net.download import LocalFile
from wikidx.base.progress import Progress, silent

from .corpus import Corpus
from .passage import BadRecord
from .reading.compression import Unchanged
from .reading.readers import fail
from .sources import local_paths, obtain_files
from .store import FORMAT_VERSION, KIND, Follower, PassageStore, StoreWriter

SKIPPED = "skipped.jsonl"
FILES = "files.jsonl"
"""List of the files of a corpus of several, with their checksums."""

_COLLECTION_THRESHOLDS = (100_000, 50, 1000)

_ADVICE = "use another name (--name), or replace it (--force; in Python replace=True)"

logger = logging.getLogger(__name__)

Follow = Callable[[Recipe, str], AbstractContextManager[Follower]]
"""Function that opens a follower of a store: the store's recipe, and ``StoreWriter.left_out``, which together determine the passages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Options for building a store.

    Attributes:
        source: path of a local copy that replaces the download; for a corpus of several files, their folder.
        limit: number of records to build as the subset ``<name>@<limit>``; a local copy is then not verified. None: all records.
        skip_bad: skip unusable records and list them in ``skipped.jsonl``, instead of failing at the first one.
        replace: replace an existing store of this name if it differs or is corrupt.
        rebuild: build again even if the existing store could be reused.
    """

    source: Path | None = None
    limit: int | None = None
    skip_bad: bool = False
    replace: bool = False
    rebuild: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit {self.limit}: at least one passage is needed")


def store_name(corpus: Corpus, limit: int | None) -> str:
    """Return the name of a corpus on disk: ``<name>``, or ``<name>@<limit>`` for a subset."""
    return corpus.name if limit is None else f"{corpus.name}@{limit}"


def store_path(name: str) -> Path:
    """Return the directory of the store of the corpus ``name``, existing or not."""
    return corpus_path(name) / "passages"


def open_store(name: str) -> PassageStore:
    """Open the store of a built corpus.

    Raises:
        ArtifactMissing: the corpus is not built.
        ArtifactMismatch: the store has another format version.
        ArtifactCorrupt: the store is corrupt.
    """
    return PassageStore(store_path(name), store_manifest(name))


def store_manifest(name: str) -> Manifest:
    """Return the manifest of a corpus's store; raises as ``open_store`` does."""
    return read_manifest(store_path(name), KIND, FORMAT_VERSION, f"idx build {name}")


def build_store(
    corpus: Corpus,
    options: StoreOptions,
    *,
    fetching: Progress = silent,
    storing: Progress = silent,
    follow: Follow | None = None,
) -> Manifest:
    """Build the store of a corpus unless it exists; an interrupted build is resumed.

    Args:
        corpus: the corpus.
        options: see ``StoreOptions``.
        fetching: called with (bytes done, total bytes) of the file being downloaded or verified.
        storing: called with (passages stored, expected number of passages or None).
        follow: opens a follower, which takes all passages; not used for passages given in Python, which a recipe does not identify.

    Raises:
        InputError: the source differs from the corpus's description, or a record is bad.
        ArtifactMismatch, ArtifactCorrupt: a different or corrupt store has this name.
        DownloadError, StorageError, LockedError: see ``obtain_files`` and ``build_checked``.
    """
    existing = reusable_store(corpus, options, progress=fetching)
    if existing is not None:
        return existing
    unchanged = Unchanged(local_paths(corpus, options.source) or ())
    files = obtain_files(corpus, options.source, verified=options.limit is None, progress=fetching)
    recipe = Recipe(
        kind=KIND,
        format_version=FORMAT_VERSION,
        parameters=_parameters(corpus, options),
        inputs=_inputs(corpus, files),
    )
    network = network_file_system(home())
    if network:
        logger.warning("%s is on a network file system (%s), which LMDB is not made for: set IDX_HOME to a local disk", home(), network)

    def write(staging: Path) -> BuildResult:
        if corpus.paths:
            write_durably(staging / FILES, _list_files(corpus, files))
        paths, following = [file.path for file in files], partial(follow, recipe) if follow and files else None
        try:
            return _write_store(corpus, paths, staging, options, storing, following)
        finally:  # what a change has made of the file may be another error
            unchanged.check()

    origins = {f"source {number}": str(origin.absolute()) for number, origin in enumerate(corpus.origins, 1)}
    sources = origins or {file.path.name: file.origin for file in files}
    spec = ArtifactSpec(recipe=recipe, sources=sources, find_existing=lambda: reusable_store(corpus, options), write=write)
    return build_checked(store_path(store_name(corpus, options.limit)), spec)


def reusable_store(corpus: Corpus, options: StoreOptions, *, compare_source: bool = True, progress: Progress = silent) -> Manifest | None:
    """Return the manifest of the existing store if it can be reused; None if the store must be built.

    The store of a known corpus is compared with its source files only if ``options.source`` is set.

    Args:
        corpus: the corpus to build.
        options: see ``StoreOptions``.
        compare_source: whether to compare the store with local source files, by checksum.
        progress: called with (bytes done, total bytes) while the source files are read.

    Raises:
        ArtifactMismatch, ArtifactCorrupt: a different or corrupt store exists, and ``options.replace`` is not set.
        InputError: a source file is missing.
        DownloadError: a source file differs from the published file.
    """
    if options.rebuild:
        return None
    name = store_name(corpus, options.limit)
    try:
        existing = store_manifest(name)
        _check_reading(existing.recipe.parameters, _parameters(corpus, options), name)
        if compare_source and (options.source is not None or corpus.path is not None):
            files = obtain_files(corpus, options.source, verified=options.limit is None, progress=progress)
            _check_inputs(existing.recipe.inputs, _inputs(corpus, files), name)
    except ArtifactMissing:
        return None
    except (ArtifactMismatch, ArtifactCorrupt):
        if not options.replace:
            raise
        return None
    return existing


def _write_store(
    corpus: Corpus,
    files: Sequence[Path],
    staging: Path,
    options: StoreOptions,
    progress: Progress,
    follow: Callable[[str], AbstractContextManager[Follower]] | None,
) -> BuildResult:
    n_read = 0
    with (
        _rare_collections(),
        closing(_BadRecords(staging / SKIPPED, skip=options.skip_bad)) as bad,
        closing(StoreWriter(staging, bad.add)) as writer,
        follow(writer.left_out) if follow else nullcontext() as follower,
    ):
        for n_read in writer.write(islice(corpus.read(files, bad.add), options.limit), follower):
            progress(n_read, options.limit or corpus.n_passages)
        if n_read == 0:
            raise InputError(f"the corpus '{corpus.name}' has no passages: its files hold no record that can be used")
        if options.limit is not None and writer.n_read < options.limit:
            raise InputError(f"the corpus '{corpus.name}' has only {writer.n_read:,} records: --limit {options.limit:,} is more")
        if options.limit is None and corpus.n_passages not in (None, n_read + bad.n_skipped):
            raise InputError(
                f"{n_read:,} passages were read, not {corpus.n_passages:,}: the source is not the whole corpus '{corpus.name}'"
            )
        fingerprint = writer.finish()
        if follower is not None and fingerprint is not None:
            follower.finish()
    if fingerprint is None:  # ids are repeated: the second pass reports the repeated ids with file and line
        return _write_store(corpus, files, staging, options, progress, follow)
    return BuildResult(fingerprint, {"rows": n_read, "skipped": bad.n_skipped})


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Make the garbage collector run rarely: passages form no cycles, and scanning them again and again takes a fifth of a build's time."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _BadRecords:
    """Handler of bad records: writes them to a file if ``skip`` is set, else raises an error at the first."""

    def __init__(self, path: Path, *, skip: bool) -> None:
        self.n_skipped = 0
        self._file = path.open("w", encoding="utf-8") if skip else None

    def add(self, bad: BadRecord) -> None:
        if self._file is None:
            fail(bad)
        else:
            self.n_skipped += 1
            self._file.write(json.dumps(bad._asdict()) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def skipped_records(name: str) -> Iterator[BadRecord]:
    """Yield the records that the build of the corpus skipped, in file order; raises as ``open_store`` does."""
    path, record = store_path(name) / SKIPPED, store_manifest(name).files.get(SKIPPED)
    if record is not None:
        if file_sha256(path) != record.sha256:
            raise ArtifactCorrupt(f"{path} is corrupt: build it again with --force")
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield BadRecord(**parse_json(line))


def _inputs(corpus: Corpus, files: Sequence[LocalFile]) -> dict[str, str]:
    """Return the checksum of each file, by its name; of a corpus of several files, one checksum of their list."""
    if not corpus.paths:
        return {file.path.name: file.sha256 for file in files}
    return {f"{len(files)} files": hashlib.sha256(_list_files(corpus, files)).hexdigest()}


def _list_files(corpus: Corpus, files: Sequence[LocalFile]) -> bytes:
    """Return names and checksums of a corpus's files, a line of JSON for each."""
    rows = ({"file": name, "sha256": file.sha256} for name, file in zip(corpus.paths, files, strict=True))
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _parameters(corpus: Corpus, options: StoreOptions) -> dict[str, str | int | float | None]:
    return {**corpus.reading, "limit": options.limit, "on_error": "skip" if options.skip_bad else "fail"}


def _check_reading(existing: Parameters, requested: Parameters, name: str) -> None:
    differing = sorted(key for key in {*requested, *existing} if requested.get(key) != existing.get(key))
    if differing:
        was, now = (", ".join(f"{key} {values.get(key)}" for key in differing) for values in (existing, requested))
        raise ArtifactMismatch(f"the corpus '{name}' was built with {was}, not {now}: {_ADVICE}")


def _check_inputs(existing: Mapping[str, str], requested: Mapping[str, str], name: str) -> None:
    if sorted(existing.values()) != sorted(requested.values()):
        was, now = (", ".join(f"{file} (sha256 {sha256[:12]}…)" for file, sha256 in inputs.items()) for inputs in (existing, requested))
        raise ArtifactMismatch(f"the corpus '{name}' was built from {was}, not from {now}: {_ADVICE}")
