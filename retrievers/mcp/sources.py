"""Sources of the tools' passages: built corpora, opened in this process on first use, or a running server."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from wikidx.base.errors import ArtifactError
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.build import store_manifest
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.documents import Excerpt, Window, read_excerpt
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenCorpora, require_indexes
from wikidx.retrievers.options import SearchOptions


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a corpus."""

    name: str
    bytes: Annotated[int, Field(description="Size on disk in bytes.")]


@dataclass(frozen=True, slots=True)
class SearchableCorpus:
    """A corpus."""

    corpus: str
    passages: Annotated[int, Field(description="Number of passages.")]
    retrievers: Annotated[Sequence[str], Field(description="Valid values of search's argument retriever; the first is the default.")]
    indexes: list[Index]


class LocalSource:
    """Built corpora of this machine.

    Args:
        corpora: names of the corpora.
        retrievers: allowed retrievers; empty: every built index, and every fusion of indexes.
        device: device of encoders and vector indexes.

    Raises:
        UnknownNameError, InputError: a retriever's name is invalid.
        ArtifactError: a corpus lacks the index of a retriever.
    """

    def __init__(self, corpora: Sequence[str], retrievers: Sequence[RetrieverName], device: str) -> None:
        self._corpora, self._retrievers = tuple(corpora), tuple(map(str, retrievers))
        self.can_fuse = not retrievers
        self._opener = OpenCorpora(device=device)
        for corpus, retriever in itertools.product(corpora, retrievers):
            name = RetrieverName.parse(str(retriever), corpus)
            name.check()
            require_indexes(corpus, name.parts)

    def list_corpora(self) -> list[SearchableCorpus]:
        """Return the built corpora; unusable indexes are left out."""
        # Imported here, because the handshake must not wait for the import of numba.
        from wikidx.indexer.catalog import built_indexes, index_ref

        corpora = []
        for corpus in self._corpora:
            manifest, indexes = store_manifest(corpus), list[Index]()
            for name in built_indexes(corpus):
                with contextlib.suppress(ArtifactError):
                    indexes.append(Index(name, index_ref(corpus, name).manifest(manifest.fingerprint).n_bytes))
            retrievers = self._retrievers or [index.name for index in indexes]
            corpora.append(SearchableCorpus(corpus, manifest.counts["rows"], retrievers, indexes))
        return corpora

    def search(self, corpus: str, retriever: str, queries: Sequence[str], options: SearchOptions) -> Ranking:
        """Return the ranking of one group of queries."""
        return self._opener.searcher(corpus, RetrieverName.parse(retriever, corpus)).search_groups([queries], options)[0]

    def excerpt(self, corpus: str, window: Window) -> Excerpt:
        """Return a part of a document."""
        return read_excerpt(self._opener.store(corpus), window)

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids, by id; unknown ids are left out."""
        store = self._opener.store(corpus)
        rows = [row for row in store.rows_of(ids).tolist() if row >= 0]
        return {passage.id: passage for passage in store.get_many(rows)}


class RemoteSource:
    """The corpora of a running server.

    Args:
        client: client of the server.
        corpora: names of the allowed corpora; empty: all.
        retrievers: allowed retrievers; empty: all.
    """

    can_fuse = False

    def __init__(self, client: RemoteSearcher, corpora: Sequence[str] = (), retrievers: Sequence[RetrieverName] = ()) -> None:
        self._client = client
        self._corpora, self._retrievers = tuple(corpora), tuple(map(str, retrievers))

    def list_corpora(self) -> list[SearchableCorpus]:
        """Return the server's corpora."""
        known, corpora = self._client.corpora(), []
        for corpus in self._corpora or known:
            if corpus not in known:
                raise unknown_name_error("corpus", corpus, known)
            served = known[corpus]
            for retriever in self._retrievers:
                if retriever not in served.retrievers:
                    raise unknown_name_error("retriever", retriever, served.retrievers)
            indexes = [Index(name, index.n_bytes) for name, index in served.indexes.items()]
            corpora.append(SearchableCorpus(corpus, served.n_passages, self._retrievers or list(served.retrievers), indexes))
        return corpora

    def search(self, corpus: str, retriever: str, queries: Sequence[str], options: SearchOptions) -> Ranking:
        """Return the ranking of one group of queries."""
        return self._client.search_in(corpus, retriever, [queries], options).rankings[0]

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids, by id; unknown ids are left out."""
        return self._client.find_passages(corpus, ids)

    def excerpt(self, corpus: str, window: Window) -> Excerpt:
        """Return a part of a document."""
        return self._client.find_excerpt(corpus, window)


Source = LocalSource | RemoteSource
"""Source of passages for the tools; thread-safe. A method raises ``IdxError`` if a corpus or retriever is missing."""
