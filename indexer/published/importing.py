"""Import of published embeddings as an encoder's vectors over a corpus.

Each embedding is matched to its passage by its id. Embeddings without ids are matched in order, and there must be exactly one per
passage. Ids in a FAISS index that are the numbers from 0 are rows if they are no ids of passages. Missing, duplicate and foreign
embeddings are counted and named. Only missing embeddings can be allowed: their rows get no vector, and no search returns them. For an
encoder that scales its vectors to length 1, a vector of zeros is a missing one, and any other length is refused. An index for Euclidean
distances ranks as inner products do only if its vectors have one length: others are refused, unless the encoder is one of ``ENCODERS``,
whose vectors are for inner products whatever index holds them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.checked_files import ReadableArray, build_checked, save_array
from wikidx.base.artifacts.home import split_name
from wikidx.base.artifacts.manifest import Manifest, Parameters, Recipe
from wikidx.base.errors import ArtifactError, ArtifactMismatch, InputError
from wikidx.base.machine.devices import encoder_device
from wikidx.base.progress import Progress, silent
from wikidx.corpora.build import store_manifest
from wikidx.corpora.passage import Rows
from wikidx.corpora.resolving import known_corpus, known_names
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import NO_ROW, Stored
from wikidx.indexer.catalog import PACKAGES, check_staged_recipe, index_ref, reusable_index
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.encoders.transformer import OpenEncoder, open_encoder
from wikidx.indexer.vectors.corpus_vectors import open_corpus_vectors
from wikidx.indexer.vectors.file import FORMAT_VERSION, KIND, MISSING, UNIT_TOLERANCE, VectorFile, lengths, write_rows

from .arrays import BLOCK_ROWS, Block
from .formats import Embeddings, add_checksums

_ROWS, _PASSAGES = "rows", "passages"  # what ids in a FAISS index may be
_SHOWN = 3
_ID_PREFIX = "wiki:"  # DPR's code prefixes the ids of its Wikipedia passages (conf/ctx_sources/default_sources.yaml)
_OTHER_RANKING = ": inner products, by which idx searches, rank them otherwise: scale them by --normalize, or save an inner-product index"
_SAME = 0.05  # relative distance: half precision or other library versions cause less, other passages more

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of importing embeddings.

    Attributes:
        allow_missing: import even if some passages have no embedding.
        verify: number of random passages to encode again for comparison.
        dtype: dtype on disk, "float32" or "float16"; None: as in the source.
        normalize: scale the embeddings to length 1.
        device: device of the encoder for ``verify``.
        force: replace existing vectors.
    """

    allow_missing: bool = False
    verify: int = 0
    dtype: str | None = None
    normalize: bool = False
    device: str = "auto"
    force: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in (None, *get_args(Stored)):
            raise InputError(f"--dtype {self.dtype}: imported vectors are stored as one of {', '.join(get_args(Stored))}")


def import_vectors(
    corpus: str, spec: EncoderSpec, store: PassageStore, source: Embeddings, options: ImportOptions, progress: Progress = silent
) -> Manifest:
    """Import published embeddings as the vectors of an encoder over a corpus, unless they are imported already.

    Args:
        corpus: the corpus's name. For a subset, ``<corpus>@<limit>``, the embeddings may be those of the whole corpus.
        spec: the encoder.
        store: the corpus's store.
        source: the embeddings; their files are not modified.
        options: see ``ImportOptions``.
        progress: called with (passages with a vector, all passages).

    Raises:
        InputError: the embeddings cannot be read, or are of another dimension, length, corpus or encoder; or some are missing.
        ArtifactMismatch: other vectors of the encoder exist.
        StorageError, LockedError: see ``build_checked``.
    """
    spec, dtype = _read_start(dataclasses.replace(spec, normalize=spec.normalize or options.normalize), source)
    encoder = open_encoder(spec, encoder_device(options.device)) if options.verify else None
    stored: Stored = "float16" if np.dtype(options.dtype or dtype).itemsize == 2 else "float32"
    names = [f"file {number}" for number in range(len(source.origins))]  # independent of file names
    inputs = {"passages": store.fingerprint, **dict(zip(names, source.sha256 or add_checksums(source).sha256, strict=True))}
    chosen: Parameters = {**({"normalized": True} if options.normalize else {}), **({"ids": source.id_column} if source.id_column else {})}
    parameters: Parameters = {"encoder": spec.name, "origin": "imported", "dtype": stored, **chosen}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs=inputs)
    ref = index_ref(corpus, spec.name)
    check_staged_recipe(ref, recipe, force=options.force)

    def existing() -> Manifest | None:
        manifest = reusable_index(ref, store, {}, force=options.force)
        if manifest is not None and manifest.recipe != recipe:
            origin = manifest.recipe.parameters.get("origin", "encoded")
            raise ArtifactMismatch(f"{ref.path} holds other vectors ({origin} {manifest.created}): --force replaces them")
        if manifest is not None and encoder:
            vectors = open_corpus_vectors(ref.path, manifest)
            _verify(encoder, store, vectors.array, vectors.missing, options.verify)
        return manifest

    def write(staging: Path) -> BuildResult:
        array = VectorFile(staging, len(store), stored).map_writable(spec.dim)
        missing = _Importer(corpus, store, spec, source, array).import_all(source, options, progress)
        if len(missing):
            save_array(staging / MISSING, missing)
        if encoder:
            _verify(encoder, store, array, missing, options.verify)
        return BuildResult(store.fingerprint, {"rows": len(store), "dim": spec.dim, "missing": len(missing)})

    sources = {"passages": corpus, **dict(zip(names, source.origins, strict=True))}
    return build_checked(ref.path, ArtifactSpec(recipe=recipe, sources=sources, find_existing=existing, write=write, packages=PACKAGES))


def _read_start(spec: EncoderSpec, source: Embeddings) -> tuple[EncoderSpec, np.dtype[Any]]:
    """Return the encoder, whose dimension is the source's if it has none, and the dtype of the source's vectors."""
    with contextlib.closing(source.blocks()) as blocks:
        first = next(blocks, None)
    if first is None:
        raise InputError(f"{source.name} holds no embeddings")
    return dataclasses.replace(spec, dim=spec.dim or first.vectors.shape[1]), first.vectors.dtype


class _Examples:
    """Number of foreign or duplicate embeddings, with a few examples."""

    def __init__(self) -> None:
        self.n = 0
        self._shown: list[str] = []

    def add(self, block: Block, numbers: Rows) -> None:
        self.n += len(numbers)
        for number in numbers[: _SHOWN - len(self._shown)].tolist():
            self._shown.append(f"'{block.ids[number]}'" if block.ids is not None else f"vector {block.first + number:,}")

    def __str__(self) -> str:
        return f"such as {', '.join(self._shown)}"


class _Importer:
    """Writer of embeddings to their rows. It records the rows with a vector, and foreign and duplicate embeddings."""

    def __init__(self, corpus: str, store: PassageStore, spec: EncoderSpec, source: Embeddings, array: NDArray[Any]) -> None:
        self._store, self._spec, self._name, self._array = store, spec, source.name, array
        self._ids = source.id_column if source.format == "flat" else _PASSAGES
        self._corpus, limit = split_name(corpus)
        self._is_subset = limit is not None
        self._has_vector = np.zeros(len(store), dtype=np.bool_)
        self._has_ids = True
        self._n_read = self._n_imported = self._n_zero = 0
        self._foreign, self._duplicates = _Examples(), _Examples()
        self._lengths = np.zeros(0)  # of the shortest and of the longest vector of an index for Euclidean distances

    def import_all(self, source: Embeddings, options: ImportOptions, progress: Progress) -> Rows:
        """Write all embeddings into the array; return the rows without an embedding, ascending."""
        for block in source.blocks():
            self._import_block(_scale(block) if options.normalize else block)
            progress(self._n_imported, len(self._store))
        missing = np.flatnonzero(~self._has_vector)
        self._check_coverage(missing, allow_missing=options.allow_missing)
        return missing

    def _import_block(self, block: Block) -> None:
        if block.vectors.shape[1] != self._spec.dim:
            raise InputError(f"{self._name} holds vectors of dimension {block.vectors.shape[1]}, '{self._spec.name}' has {self._spec.dim}")
        self._has_ids = block.ids is not None
        self._n_read += len(block.vectors)
        if block.is_euclidean and (self._spec.name not in ENCODERS or self._spec.query_checkpoint is None):
            shortest, longest = self._lengths = np.sort([*self._lengths, *lengths(block.vectors)])[[0, -1]]
            if longest - shortest > UNIT_TOLERANCE * longest:
                found = f"compares by Euclidean distance (FAISS's METRIC_L2) vectors of lengths from {shortest:.4g} to {longest:.4g}"
                raise InputError(f"{self._name} {found}{_OTHER_RANKING}")
        rows = self._read_array(block)
        is_known = rows != NO_ROW
        if not self._is_subset:
            self._foreign.add(block, np.flatnonzero(~is_known))
            if self._foreign.n and not self._has_vector.any() and not is_known.any():
                raise InputError(f"{self._name} begins with embeddings that are not of this corpus, {self._foreign}")
        is_first = np.zeros(len(rows), dtype=np.bool_)
        is_first[np.unique(rows, return_index=True)[1]] = True
        is_new = is_known & is_first & ~self._has_vector[rows]
        self._duplicates.add(block, np.flatnonzero(is_known & ~is_new))
        if self._spec.normalize:
            is_zero = lengths(block.vectors) == 0
            self._n_zero += int(np.count_nonzero(is_new & is_zero))
            is_new &= ~is_zero
        write_rows(self._array, rows[is_new], block.vectors[is_new], is_unit=self._spec.normalize)
        self._has_vector[rows[is_new]] = True
        self._n_imported += int(np.count_nonzero(is_new))

    def _read_array(self, block: Block) -> Rows:
        """Return the row of each embedding; -1 for a foreign embedding."""
        if block.ids is None:
            rows = np.arange(block.first, block.first + len(block.vectors))
            return np.where(rows < len(self._store), rows, NO_ROW)
        rows = self._store.rows_of(block.ids)
        self._ids = self._ids or self._meaning(block.n_numbers)
        if self._ids == _ROWS:
            numbers = np.array(block.ids, dtype=np.int64)
            return np.where((numbers >= 0) & (numbers < len(self._store)), numbers, NO_ROW)
        prefixed = [number for number in np.flatnonzero(rows == NO_ROW).tolist() if block.ids[number].startswith(_ID_PREFIX)]
        rows[prefixed] = self._store.rows_of([block.ids[number].removeprefix(_ID_PREFIX) for number in prefixed])
        return rows

    def _meaning(self, n: int) -> str:
        """Return what the ids of a FAISS index are that are the numbers below ``n``; any if it is 0."""
        numbers = np.arange(n)
        rows = [self._store.rows_of([*map(str, part)]) for part in np.array_split(numbers, n // BLOCK_ROWS + 1)]
        is_id = (found := np.concatenate(rows)) != NO_ROW
        if np.array_equal(found, np.where(numbers < len(self._store), numbers, NO_ROW)):
            return _PASSAGES
        if is_id.all() or (self._is_subset and is_id.any()):
            raise InputError(f"{self._name} has ids that are those of passages, or rows: say which by --ids {_PASSAGES} or --ids {_ROWS}")
        logger.warning("%s: its ids are taken as rows, as not all of them are ids of passages", self._name)
        return _ROWS

    def _check_coverage(self, missing: Rows, *, allow_missing: bool) -> None:
        """Raise ``InputError`` if embeddings are foreign or duplicate, or if some are missing without ``allow_missing``."""
        n_passages = len(self._store)
        if len(missing) == n_passages:
            raise InputError(f"{self._name} has no embedding of any of the {n_passages:,} passages")
        problems = []
        if self._foreign.n:
            problems.append(f"has {self._foreign.n:,} embeddings that are not of this corpus, {self._foreign}")
        if self._duplicates.n:
            problems.append(f"has {self._duplicates.n:,} embeddings of passages that have one already, {self._duplicates}")
        n_whole = _n_corpus_passages(self._corpus) if self._is_subset else n_passages
        if not self._has_ids and self._n_read != n_whole:
            whole = f"{n_whole:,} passages" if n_whole else f"an unknown number of passages ('{self._corpus}' is not built)"
            problems.append(f"has {self._n_read:,} embeddings without ids for {whole}, so that nothing says whose they are")
        elif len(missing) and not allow_missing:
            shown = ", ".join(f"'{passage.id}'" for passage in self._store.get_many(missing[:_SHOWN]))
            zeros = f" (those of {self._n_zero:,} are zeros)" if self._n_zero else ""
            hint = "" if problems else ": --allow-missing imports the others"
            problems.append(f"lacks {len(missing):,} of the corpus's {n_passages:,} passages, such as {shown}{zeros}{hint}")
        if problems:
            raise InputError(f"{self._name} {'; it '.join(problems)}")


def _scale(block: Block) -> Block:
    """Return a block with vectors of length 1. Vectors of zeros, and those that are not finite or too long to measure, are unchanged."""
    found = lengths(block.vectors)
    return block._replace(vectors=block.vectors / np.where(np.isfinite(found) & (found > 0), found, 1).astype(np.float32)[:, None])


def _n_corpus_passages(corpus: str) -> int | None:
    """Return the number of passages of a whole corpus; None if it is unknown."""
    if corpus in known_names() and (n_passages := known_corpus(corpus).n_passages) is not None:
        return n_passages
    try:
        return store_manifest(corpus).count("rows")
    except ArtifactError:
        return None


def verify_vectors(corpus: str, spec: EncoderSpec, store: PassageStore, n: int, device: str) -> None:
    """Encode ``n`` random passages again and compare them with an encoder's vectors over a corpus.

    Raises:
        InputError: the vectors are not the encoder's.
        MissingExtraError, DownloadError: the encoder is not available.
    """
    encoder = open_encoder(spec, encoder_device(device))
    ref = index_ref(corpus, spec.name)
    vectors = open_corpus_vectors(ref.path, ref.manifest(store.fingerprint))
    _verify(encoder, store, vectors.array, vectors.missing, n)


def _verify(encoder: OpenEncoder, store: PassageStore, vectors: ReadableArray, missing: Rows, n: int) -> None:
    """Raise ``InputError`` unless ``n`` random passages, encoded again, match their vectors."""
    candidates = np.setdiff1d(np.arange(len(store)), missing)
    rows = np.sort(np.random.default_rng(0).choice(candidates, min(n, len(candidates)), replace=False))
    stored, expected = vectors[rows].astype(np.float32), encoder.encode_passages(store.get_many(rows))
    distances = np.linalg.norm(stored - expected, axis=1) / np.linalg.norm(expected, axis=1)
    n_different, worst = int(np.count_nonzero(~(distances <= _SAME))), int(np.argmax(distances))  # NaN counts as different
    if n_different:
        raise InputError(
            f"of {len(rows)} passages that were encoded again {n_different} have another vector, the worst that of row {rows[worst]}, by "
            f"{distances[worst]:.2f} of its length: the embeddings are of another encoder than '{encoder.spec.name}', or of other texts"
        )
