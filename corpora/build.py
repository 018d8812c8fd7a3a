"""Corpus -> store on disk: fetch or find the files, read them, write the store; and open what was built."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from .artifacts import Manifest, Recipe, building, commit, corpus_path, home, locked, read_manifest
from .corpus import Corpus
from .disk import network_file_system
from .download import download, verify
from .durable import file_sha256
from .errors import ArtifactMismatch, ArtifactMissing, InputError
from .progress import Progress, silent
from .readers import BadRecord, fail
from .store import FORMAT_VERSION, KIND, PassageStore, StoreWriter

SKIPPED = "skipped.tsv"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a store is built.

    Attributes:
        source: a local copy to use instead of downloading; for a corpus of several files the folder that holds them.
        limit: only the first so many passages, as the corpus ``<name>@<limit>``; the source is then not verified.
        skip_bad: leave out records that cannot be used, and list them in ``skipped.tsv``, instead of failing at the first.
        force: replace what is there.
    """

    source: Path | None = None
    limit: int | None = None
    skip_bad: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit {self.limit}: at least one passage is needed")


def store_name(corpus: Corpus, limit: int | None) -> str:
    """Return the name a corpus is built under: a subset has its size in it."""
    return corpus.name if limit is None else f"{corpus.name}@{limit}"


def store_path(name: str) -> Path:
    """Return where the store of the corpus ``name`` is, built or not."""
    return corpus_path(name) / "passages"


def open_store(name: str) -> PassageStore:
    """Open a built corpus.

    Raises:
        ArtifactMissing: it is not built.
        ArtifactMismatch, ArtifactDamaged: it cannot be used by this version of idx.
    """
    manifest = store_manifest(name)
    return PassageStore(store_path(name), manifest.fingerprint, manifest.counts["rows"])


def store_manifest(name: str) -> Manifest:
    """Return the manifest of a built corpus; raises as ``open_store`` does."""
    return read_manifest(store_path(name), KIND, FORMAT_VERSION, f"'idx build {name.partition('@')[0]}'")


def build_store(corpus: Corpus, options: StoreOptions, *, fetching: Progress = silent, storing: Progress = silent) -> Manifest:
    """Build the store of a corpus, unless the same one is there already; a build that was interrupted goes on.

    Args:
        corpus: what to build.
        options: see ``StoreOptions``.
        fetching: called with (bytes, all bytes) while the corpus's files are downloaded or verified.
        storing: called with (passages stored, how many there will be, if that is known).

    Raises:
        InputError: the source is not what the corpus says, or a record is bad.
        ArtifactMismatch: another store has this name.
        DownloadError, StorageError, LockedError: see there.
    """
    name = store_name(corpus, options.limit)
    existing = None if options.force else _existing(name)
    if existing:
        _refuse_other_reading(existing, corpus, options, name)
        if options.source is None and not _is_local(corpus):
            return existing
    sources = _sources(corpus, options, fetching)
    inputs = {path.name: sha256 for path, sha256 in sources}
    if existing:
        _refuse_other_inputs(existing, inputs, name)
        return existing
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=_parameters(corpus, options), inputs=inputs)
    network = network_file_system(home())
    if network:
        logger.warning("%s is on a network file system (%s), which LMDB is not made for: set IDX_HOME to a local disk", home(), network)
    with building(store_path(name), recipe) as staging:
        n_read, n_skipped, fingerprint = _write_store(corpus, [path for path, _ in sources], staging, options, storing)
        counts = {"rows": n_read, "skipped": n_skipped}
        return commit(staging, store_path(name), recipe, fingerprint, counts)


def _write_store(corpus: Corpus, files: Sequence[Path], staging: Path, options: StoreOptions, progress: Progress) -> tuple[int, int, str]:
    """Write the store's files; return the number of passages, of records left out, and the fingerprint."""
    n_expected = options.limit or corpus.n_passages
    n_read = 0
    with closing(_BadRecords(staging / SKIPPED, skip=options.skip_bad)) as bad, closing(StoreWriter(staging, bad.add)) as writer:
        for n_read in writer.write(islice(corpus.read(files, bad.add), options.limit)):
            progress(n_read, n_expected)
        if n_read == 0:
            raise InputError(f"the corpus '{corpus.name}' has no passages: its files hold no record that can be used")
        if n_expected is not None and n_read + bad.n_skipped != n_expected and (options.limit is None or n_read < options.limit):
            raise InputError(f"{n_read:,} passages were read, expected {n_expected:,}: the source is not the whole corpus '{corpus.name}'")
        fingerprint = writer.finish()
    if fingerprint is None:  # some ids come more than once: in a second reading those records go to bad.add, with file and line
        return _write_store(corpus, files, staging, options, progress)
    return n_read, bad.n_skipped, fingerprint


class _BadRecords:
    """What to do with a bad record: fail, or write it down (file, line, reason) and go on."""

    def __init__(self, path: Path, *, skip: bool) -> None:
        self.n_skipped = 0
        self._file = path.open("w", encoding="utf-8") if skip else None

    def add(self, bad: BadRecord) -> None:
        """Take one bad record."""
        if self._file is None:
            fail(bad)
        else:
            self.n_skipped += 1
            self._file.write("\t".join((bad.file, str(bad.line), bad.reason)).encode(errors="replace").decode() + "\n")

    def close(self) -> None:
        """Close the list; it may be closed twice."""
        if self._file is not None:
            self._file.close()


def _existing(name: str) -> Manifest | None:
    try:
        return store_manifest(name)
    except ArtifactMissing:
        return None


def _parameters(corpus: Corpus, options: StoreOptions) -> Mapping[str, str | int | None]:
    return {**corpus.reading, "limit": options.limit, "on_error": "skip" if options.skip_bad else "fail"}


def _refuse_other_reading(existing: Manifest, corpus: Corpus, options: StoreOptions, name: str) -> None:
    wanted = _parameters(corpus, options)
    differing = [key for key in {*wanted, *existing.recipe.parameters} if wanted.get(key) != existing.recipe.parameters.get(key)]
    if differing:
        was, now = ({key: found.get(key) for key in sorted(differing)} for found in (existing.recipe.parameters, wanted))
        raise ArtifactMismatch(
            f"the corpus '{name}' was built with {_shown(was)}, not {_shown(now)}: use another --name, or --force to replace it"
        )


def _refuse_other_inputs(existing: Manifest, inputs: Mapping[str, str], name: str) -> None:
    if sorted(existing.recipe.inputs.values()) != sorted(inputs.values()):
        was, now = (
            ", ".join(f"{file} (sha256 {sha256[:12]}…)" for file, sha256 in found.items()) for found in (existing.recipe.inputs, inputs)
        )
        raise ArtifactMismatch(f"the corpus '{name}' was built from {was}, not from {now}: use another --name, or --force to replace it")


def _shown(parameters: Mapping[str, str | int | float | None]) -> str:
    return ", ".join(f"{key} {value}" for key, value in parameters.items())


def _is_local(corpus: Corpus) -> bool:
    return all(urlsplit(source.url).scheme == "file" for source in corpus.files)


def local_paths(corpus: Corpus, options: StoreOptions) -> list[Path] | None:
    """Return where the corpus's files are on this machine, in reading order; None if they are to be downloaded.

    Raises:
        InputError: one of them is not there, or ``--source`` does not apply.
    """
    if options.source is not None and not corpus.files:
        raise InputError(f"the corpus '{corpus.name}' ships with idx: --source does not apply")
    if options.source is not None:
        paths = [options.source / source.name for source in corpus.files] if len(corpus.files) > 1 else [options.source]
    elif _is_local(corpus):
        paths = [Path(url2pathname(urlsplit(source.url).path)) for source in corpus.files]
    else:
        return None
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path} is a directory: name one file" if path.is_dir() else f"there is no file {path}")
    return paths


def _sources(corpus: Corpus, options: StoreOptions, progress: Progress) -> list[tuple[Path, str]]:
    """Return local, verified copies of the corpus's files, in reading order, each with its sha256."""
    paths = local_paths(corpus, options)
    if paths is None:
        folder = home() / "downloads" / corpus.name
        with locked(folder):
            paths = [download(source, folder, progress=progress) for source in corpus.files]
    if options.limit is not None:
        return [(path, file_sha256(path)) for path in paths]
    return [(path, verify(path, source)) for path, source in zip(paths, corpus.files, strict=True)]
