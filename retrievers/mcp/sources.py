"""Sources of the tools' passages: built corpora in this process, opened on first use, or a running server."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from wikidx.corpora.build import store_manifest
from wikidx.corpora.errors import ArtifactError
from wikidx.corpora.passage import Passage
from wikidx.corpora.registry import near_names
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.client import ServerClient
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenCorpora
from wikidx.retrievers.options import SearchOptions


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a corpus."""

    name: str
    bytes: Annotated[int, Field(description="Size on disk.")]


@dataclass(frozen=True, slots=True)
class Offer:
    """A corpus."""

    corpus: str
    passages: Annotated[int, Field(description="How many it has.")]
    retrievers: Annotated[Sequence[str], Field(description="What search takes as retriever, the default first.")]
    indexes: list[Index]


class LocalSource:
    """Built corpora of this machine.

    Args:
        corpora: their names.
        retrievers: allowed retrievers; none: every built index, and any fusion of them.
        device: device of the encoders.

    Raises:
        UnknownNameError, ArtifactError: a corpus does not have a retriever's index.
    """

    def __init__(self, corpora: Sequence[str], retrievers: Sequence[RetrieverName], device: str) -> None:
        self._corpora, self._retrievers = tuple(corpora), tuple(map(str, retrievers))
        self.may_join = not retrievers
        self._opened = OpenCorpora(device=device)
        for corpus, retriever in itertools.product(corpora, retrievers):
            _check(corpus, retriever)

    def offers(self) -> list[Offer]:
        """Return the built corpora; unusable indexes are left out."""
        # Imported here because it imports numba, and the handshake must not wait for that.
        from wikidx.indexer.catalog import built_indexes, index_ref

        found = []
        for corpus in self._corpora:
            manifest, indexes = store_manifest(corpus), list[Index]()
            for name in built_indexes(corpus):
                with contextlib.suppress(ArtifactError):
                    indexes.append(Index(name, index_ref(corpus, name).manifest(manifest.fingerprint).n_bytes))
            retrievers = self._retrievers or [index.name for index in indexes]
            found.append(Offer(corpus, manifest.counts["rows"], retrievers, indexes))
        return found

    def search(self, corpus: str, retriever: str, queries: Sequence[str], options: SearchOptions) -> Ranking:
        """Return the ranking of one group of queries."""
        return self._opened.searcher(corpus, RetrieverName.parse(retriever)).search_groups([queries], options)[0]

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids that the corpus has."""
        store = self._opened.store(corpus)
        rows = [row for row in store.rows_of(ids).tolist() if row >= 0]
        return {passage.id: passage for passage in store.get_many(rows)}


def _check(corpus: str, retriever: RetrieverName) -> None:
    """Raise ``UnknownNameError`` or ``ArtifactError`` unless a corpus has a retriever's indexes."""
    from wikidx.indexer.catalog import index_ref

    retriever.check()
    for name in retriever.parts:
        index_ref(corpus, name).manifest(store_manifest(corpus).fingerprint)


class RemoteSource:
    """Source backed by a running server.

    Args:
        client: of the server.
        corpora, retrievers: allowed ones; none: all.
    """

    may_join = False

    def __init__(self, client: ServerClient, corpora: Sequence[str] = (), retrievers: Sequence[RetrieverName] = ()) -> None:
        self._client = client
        self._corpora, self._retrievers = tuple(corpora), tuple(map(str, retrievers))

    def offers(self) -> list[Offer]:
        """Return the server's corpora."""
        known, found = self._client.corpora(), []
        for corpus in self._corpora or known:
            if corpus not in known:
                raise near_names("corpus", corpus, known)
            served = known[corpus]
            for retriever in self._retrievers:
                if retriever not in served.retrievers:
                    raise near_names("retriever", retriever, served.retrievers)
            indexes = [Index(name, index.n_bytes) for name, index in served.indexes.items()]
            found.append(Offer(corpus, served.n_passages, self._retrievers or list(served.retrievers), indexes))
        return found

    def search(self, corpus: str, retriever: str, queries: Sequence[str], options: SearchOptions) -> Ranking:
        """Return the ranking of one group of queries."""
        return self._client.search([queries], options, corpus=corpus, retriever=retriever).rankings[0]

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids that the corpus has."""
        return self._client.passages(corpus, ids)


Source = LocalSource | RemoteSource
"""May be used by several threads at once; raises ``IdxError`` for what is not there."""
