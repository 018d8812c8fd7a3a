"""Paths, manifests and state of a corpus's indexes on disk."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.base.artifacts.building import staged_recipe, staging_path
from wikidx.base.artifacts.home import corpus_path, list_folder
from wikidx.base.artifacts.manifest import Manifest, Parameters, Recipe, check_fingerprint, is_finished, load_manifest, read_manifest
from wikidx.base.errors import ArtifactMismatch, ArtifactMissing, UnknownNameError
from wikidx.base.plugins import check_same, find, recorded
from wikidx.corpora.build import store_manifest
from wikidx.corpora.store import PassageStore

from . import INDEXES, VECTOR_INDEXES
from .analysis import ENGLISH, analyzer_parameters, recorded_analyzer
from .indexes.kinds import IndexKind
from .indexes.plugged import plugged_kind
from .naming import IndexName, index_names, parse_index_name
from .vectors.corpus_vectors import vectors_identity
from .vectors.file import FORMAT_VERSION, KIND, finished_ranges

PACKAGES = ("numba", "torch", "transformers", "tokenizers", "safetensors", "faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs", "pyserini")
"""Packages that can affect an index; the manifest of each index records their versions."""


class IndexRef(NamedTuple):
    """Reference to an index of a corpus by its resolved name. The index need not be built."""

    corpus: str
    name: IndexName

    @property
    def path(self) -> Path:
        """Directory of the index; for exact search, the directory of the encoder's vectors."""
        return corpus_path(self.corpus) / ("vectors" if self.name.source == "encoder" else "indexes") / self.name

    @property
    def vectors(self) -> IndexRef:
        """Reference to the vectors of the index's encoder."""
        return IndexRef(self.corpus, IndexName(self.name.encoder, ""))

    @property
    def rebuild(self) -> str:
        """Command that builds the index."""
        encoder, kind = self.name.encoder, self.name.kind
        if kind == "lucene":
            return f"idx import lucene PATH --corpus {self.corpus}"
        of_passages = f"--index {self.name}" if self.name != kind else f"--{kind}"
        return f"idx build {self.corpus} " + (f"--encoder {encoder}" + f" --index {kind}" * bool(kind) if encoder else of_passages)

    @property
    def is_built(self) -> bool:
        """True if the index has a manifest, even an unusable one."""
        return is_finished(self.path)

    def manifest(self, fingerprint: str | None) -> Manifest:
        """Return the index's manifest, after checking it. A ``fingerprint`` of None leaves out the comparison with the store.

        Raises:
            ArtifactMissing: the index is not built.
            ArtifactMismatch: the index belongs to another store, other vectors, another name or another version of idx.
            ArtifactCorrupt: the manifest is invalid, or a file is missing or has the wrong size.
        """
        kind, version = (KIND, FORMAT_VERSION) if self.name.source == "encoder" else (self.kind.name, self.kind.format_version)
        manifest = read_manifest(self.path, kind, version, self.rebuild)
        if fingerprint is not None:
            check_fingerprint(self.path, manifest, fingerprint, self.rebuild)
        if self.name.source == "vectors" and self.vectors.is_built:
            _check_vectors(self, manifest, self.vectors.manifest(None))
        if (code := manifest.recipe.parameters.get("index_sha256")) is not None:
            check_same("index", self.name.kind, str(code), self.path)
        named = {**({"analyzer": self.analyzer} if self.analyzer else {}), **self.numbers}
        actual = {parameter: manifest.recipe.parameters.get(parameter) for parameter in named}
        if actual != named:
            raise ArtifactMismatch(f"{self.path} was built with {actual}, its name means {named}: run '{self.rebuild} --force'")
        return manifest

    @property
    def analyzer(self) -> str:
        """Name of the analyzer; "" for an index that has none."""
        return self.name.analyzer or (ENGLISH if self.name.kind and self.kind.takes_analyzer else "")

    @property
    def analysis(self) -> Parameters:
        """Parameters that record the analyzer; none for an index that has none."""
        return analyzer_parameters(self.analyzer) if self.analyzer else {}

    @property
    def numbers(self) -> dict[str, float]:
        """Parameters in the index's name, such as k1 and b of BM25; the defaults for a name without numbers."""
        known = self.kind.numbers if self.name.kind else {}
        return dict(zip(known, map(float, self.name.numbers or [number.default for number in known.values()]), strict=True))

    @property
    def kind(self) -> IndexKind[Any, Any]:
        """Kind of the index. Exact search has none: the property then raises ``UnknownNameError``."""
        table = VECTOR_INDEXES if self.name.source == "vectors" else INDEXES
        kind: IndexKind[Any, Any] = find("index", self.name.kind, table, plugged_kind)
        return kind

    @property
    def code(self) -> Parameters:
        """Parameter that records the code of a kind that is a plug-in; none for those of idx."""
        return recorded("index", self.name.kind, {**INDEXES, **VECTOR_INDEXES})


def index_ref(corpus: str, name: str) -> IndexRef:
    """Resolve the name of an index of a corpus. Its analyzer is known if it is, or if the index or its unfinished build records it.

    Raises:
        UnknownNameError: no index or encoder has this name.
    """
    try:
        return IndexRef(corpus, parse_index_name(name))
    except UnknownNameError:
        return IndexRef(corpus, parse_index_name(name, recorded=_recorded_analyzer(corpus_path(corpus) / "indexes" / name)))


def _recorded_analyzer(path: Path) -> str:
    """Return the name of the analyzer that an index, or its unfinished build, records; "" if there is none."""
    recipe = staged_recipe(path)
    with suppress(OSError, ValueError):
        recipe = load_manifest(path).recipe
    return str(recipe.parameters.get("analyzer", "")) if recipe else ""


def check_staged_recipe(ref: IndexRef, recipe: Recipe, *, force: bool) -> None:
    """Raise ``ArtifactMismatch`` if an interrupted build of the same passages by another recipe has left vectors.

    The vectors may have taken hours. A repeated command may have another recipe unintentionally: default parameters depend on the device,
    and the checkpoint may now be found in another folder, with other files.
    """
    staged = staged_recipe(ref.path)
    if staged is None or staged.inputs.get("passages") != recipe.inputs["passages"]:
        return
    before, now = ({**each.parameters, **each.inputs} for each in (staged, recipe))
    differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    n_finished = sum(map(len, finished_ranges(staging_path(ref.path))))
    if n_finished and differing and before.get("origin") == "encoded" and not force:
        old, new = (", ".join(f"{name} {str(values.get(name, 'absent')):.12}" for name in differing) for values in (before, now))
        raise ArtifactMismatch(
            f"a stopped build of '{ref.name}' over '{ref.corpus}' has left {n_finished:,} vectors with {old}: with the same options, "
            f"device and checkpoint it resumes; --force starts again with {new}"
        )


def reusable_index(ref: IndexRef, store: PassageStore, requested: Parameters, *, force: bool) -> Manifest | None:
    """Return the manifest of an existing index to keep; None if ``force`` is set or no index exists.

    Raises:
        ArtifactMismatch: the index has another value of a requested parameter, or belongs to other passages.
        ArtifactCorrupt: the index cannot be read.
    """
    if store_manifest(ref.corpus).fingerprint != store.fingerprint:
        raise ArtifactMismatch(f"the passages of '{ref.corpus}' have been replaced meanwhile: run the same command again")
    if force:
        return None
    try:
        manifest = ref.manifest(store.fingerprint)
    except ArtifactMissing:
        return None
    parameters = manifest.recipe.parameters
    if ref.analyzer:
        recorded_analyzer(parameters, ref.path)
    if any(parameters.get(parameter) != value for parameter, value in requested.items()):
        raise ArtifactMismatch(f"{ref.path} was built with {parameters}, not {requested}: --force replaces it")
    return manifest


def _check_vectors(ref: IndexRef, manifest: Manifest, vectors: Manifest) -> None:
    """Raise ``ArtifactMismatch`` unless an index was built from the current vectors."""
    actual, expected = manifest.recipe.inputs.get("vectors", ""), vectors_identity(vectors)
    if actual != expected:
        raise ArtifactMismatch(
            f"{ref.path} was built from other vectors of '{ref.name.encoder}' ({actual[:12]}…) than are there now "
            f"({expected[:12]}…): run '{ref.rebuild} --force'"
        )


def possible_indexes(corpus: str) -> list[str]:
    """Return the names of all indexes that a corpus may have; one with an analyzer or numbers is listed only if the index has a folder."""
    folders = (path.name.removeprefix(".").removesuffix(".partial") for path in list_folder(corpus_path(corpus) / "indexes"))
    return list(dict.fromkeys([*index_names(), *sorted(filter(None, (_index_of(corpus, folder) for folder in folders)))]))


def _index_of(corpus: str, folder: str) -> IndexName | None:
    """Return the name of the index that a folder has; None if no index can have this name."""
    try:
        return index_ref(corpus, folder).name
    except UnknownNameError:
        return None


def built_indexes(corpus: str) -> list[str]:
    """Return the names of the indexes of a corpus that have a manifest."""
    return [name for name in possible_indexes(corpus) if index_ref(corpus, name).is_built]


def index_folders(corpus: str) -> list[str]:
    """Return the names of the indexes of a corpus that have a folder, even without a manifest."""
    return [name for name in possible_indexes(corpus) if index_ref(corpus, name).path.exists()]


def foreign_folders(corpus: str) -> dict[str, Path]:
    """Return the folders among a corpus's indexes whose names no index can have: other versions of idx have further kinds."""
    folders = [folder for folder in list_folder(corpus_path(corpus) / "indexes") if not folder.name.startswith(".")]
    return {folder.name: folder for folder in folders if folder.is_dir() and not _index_of(corpus, folder.name)}
