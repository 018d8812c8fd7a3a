"""Specification of a build: a corpus, its indexes, and the origin of their vectors; what of it exists and is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.corpora.build import reusable_store
from wikidx.corpora.resolving import ResolvedCorpus

from .catalog import index_ref
from .embedding.options import EmbedOptions
from .naming import IndexName, parse_index_name
from .published.addresses import PUBLISHED, PublishedVectors
from .published.importing import ImportOptions

PASSAGES = "passages"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """Origin of an encoder's vectors.

    Attributes:
        origin: "published" or "encode"; None: "published" for a complete corpus with published vectors, else "encode".
        allow_missing: accept published vectors that lack some passages.
        verify: number of passages to encode again, for comparison with the published vectors.
    """

    origin: str | None = None
    allow_missing: bool = False
    verify: int = 0

    def __post_init__(self) -> None:
        if self.origin not in (None, "published", "encode"):
            raise InputError(f"--vectors {self.origin}: use published or encode")
        if self.origin == "encode" and (self.allow_missing or self.verify):
            raise InputError("--allow-missing and --verify are for published vectors, not for --vectors encode")


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """A corpus and the indexes to build over it.

    Attributes:
        source: the corpus and the options of its store; see ``corpora.resolving.resolve``.
        indexes: names of the indexes to build. The encoder of each vector index is added to them.
        embedding: options of embedding.
        vectors: origin of the vectors.
    """

    source: ResolvedCorpus
    indexes: tuple[str, ...] = ("bm25",)
    embedding: EmbedOptions = EmbedOptions()
    vectors: VectorOptions = VectorOptions()

    def __post_init__(self) -> None:
        object.__setattr__(self, "indexes", _add_encoders(self.indexes))

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Names of everything to build, in this order."""
        return (PASSAGES, *self.indexes)

    @property
    def name(self) -> str:
        """Name of the corpus on disk."""
        return self.source.name

    def published(self, encoder: str) -> PublishedVectors | None:
        """Return the published vectors to import for an encoder; None if its vectors exist, or if the passages must be embedded.

        Raises:
            ArtifactMismatch: the encoder's vectors exist, but have another origin than requested.
            InputError: the requested vectors are not published; or they lack passages, and ``allow_missing`` is not set.
        """
        if self.is_reusable(encoder):
            origin = index_ref(self.name, encoder).manifest(None).recipe.parameters.get("origin", "encoded")
            if origin != {"published": "imported", "encode": "encoded"}.get(self.vectors.origin or "", origin):
                raise ArtifactMismatch(f"the vectors of '{encoder}' over '{self.name}' are there, {origin}: --force replaces them")
            return None
        corpus, is_subset = self.source.corpus.name, self.source.options.limit is not None
        if self.vectors.origin == "encode" or (self.vectors.origin is None and is_subset):
            return None
        published = PUBLISHED.get((corpus, encoder))
        if published is None and self.vectors.origin == "published":
            known = ", ".join(name for of, name in PUBLISHED if of == corpus) or "no encoder"
            raise InputError(f"of '{corpus}' the vectors of {known} are published, not of '{encoder}': use --vectors encode")
        if published is not None and published.n_missing and not (is_subset or self.vectors.allow_missing):
            raise InputError(
                f"the published vectors of '{encoder}' lack {published.n_missing} passages of '{corpus}', which no search would "
                "find: use --allow-missing to accept this, or --vectors encode"
            )
        return published

    def import_options(self, encoder: str) -> ImportOptions:
        """Return the options of importing published vectors; raises ``InputError`` for a dtype other than float32 and float16."""
        return ImportOptions(
            allow_missing=self.vectors.allow_missing,
            verify=self.vectors.verify,
            dtype=self.embedding.dtype,
            device=self.embedding.device,
            force=self.replaces(encoder),
        )

    def replaces(self, index: str) -> bool:
        """Return whether to replace an existing index. Vectors are kept if an index built from them is requested."""
        vector_indexes = (name for name in map(parse_index_name, self.indexes) if name.source == "vectors")
        return self.source.options.replace and all(name.encoder != index for name in vector_indexes)

    def is_reusable(self, index: str) -> bool:
        """Return whether an index exists and is kept."""
        return index_ref(self.name, index).is_built and not self.replaces(index)

    @property
    def index_while_storing(self) -> str | None:
        """The index to prepare while the passages are stored: the first that can be; None if there is none, as for passages in Python."""
        if not (self.source.corpus.files or self.source.corpus.path):
            return None
        names = (name for name in self.indexes if parse_index_name(name).source == "passages" and not self.is_reusable(name))
        return next((name for name in names if index_ref(self.name, name).kind.follow is not None), None)

    def reusable_store(self) -> Manifest | None:
        """Return the manifest of a store to keep, or None if the store must be built; raises as ``corpora.build.reusable_store`` does."""
        return reusable_store(self.source.corpus, self.source.options, compare_source=not self.source.keep_store)


def _add_encoders(names: Sequence[str]) -> tuple[IndexName, ...]:
    """Return canonical names of indexes without duplicates; an encoder precedes the indexes built from its vectors."""
    indexes = list[IndexName]()
    for name in map(parse_index_name, names):
        indexes += [IndexName(name.encoder, ""), name]
    return tuple(dict.fromkeys(filter(None, indexes)))
