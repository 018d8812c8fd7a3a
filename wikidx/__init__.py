"""Local retrieval for research on retrieval-augmented language models: ``corpora``, ``indexer``, ``retrievers``, ``runtimes``.

    import wikidx as idx

    searcher = idx.build(["Thimphu is the capital of Bhutan.", "Lima is the capital of Peru."])
    print(searcher.search(["Which city is Bhutan's capital?"], k=1))

The names of ``_MODULES`` are imported when they are first used; each package's ``__init__`` opens with its map.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from .base.errors import IdxError as IdxError
    from .base.plugins import plug as plug
    from .corpora.corpus import Corpus as Corpus
    from .corpora.passage import BadRecord as BadRecord
    from .corpora.passage import LocatedPassage as LocatedPassage
    from .corpora.passage import Passage as Passage
    from .corpora.passage import Span as Span
    from .corpora.reading.document import Document as Document
    from .corpora.reading.document import Heading as Heading
    from .corpora.reading.readers import Format as Format
    from .corpora.reading.records import FieldMap as FieldMap
    from .indexer.analysis import Analyzer as Analyzer
    from .indexer.encoders.plugged import OwnEncoder as OwnEncoder
    from .indexer.encoders.recipes import RecipeOptions as RecipeOptions
    from .indexer.encoders.spec import EncoderSpec as EncoderSpec
    from .indexer.indexes.kinds import IndexKind as IndexKind
    from .indexer.naming import name_encoder as name_encoder
    from .indexer.scope import Scope as Scope
    from .retrievers.async_client import AsyncRemoteSearcher as AsyncRemoteSearcher
    from .retrievers.base import Match as Match
    from .retrievers.base import Ranking as Ranking
    from .retrievers.base import Rankings as Rankings
    from .retrievers.base import ScoredPassage as ScoredPassage
    from .retrievers.base import Searcher as Searcher
    from .retrievers.build_and_open import build as build
    from .retrievers.client import RemoteSearcher as RemoteSearcher
    from .retrievers.opening import open_searcher as open_searcher
    from .retrievers.options import SearchOptions as SearchOptions
    from .retrievers.rerankers.plugged import OwnReranker as OwnReranker
    from .retrievers.searcher import LocalSearcher as LocalSearcher

_MODULES = {
    "Analyzer": "indexer.analysis",
    "AsyncRemoteSearcher": "retrievers.async_client",
    "BadRecord": "corpora.passage",
    "Corpus": "corpora.corpus",
    "Document": "corpora.reading.document",
    "EncoderSpec": "indexer.encoders.spec",
    "FieldMap": "corpora.reading.records",
    "Format": "corpora.reading.readers",
    "Heading": "corpora.reading.document",
    "IdxError": "base.errors",
    "IndexKind": "indexer.indexes.kinds",
    "LocalSearcher": "retrievers.searcher",
    "LocatedPassage": "corpora.passage",
    "Match": "retrievers.base",
    "OwnEncoder": "indexer.encoders.plugged",
    "OwnReranker": "retrievers.rerankers.plugged",
    "Passage": "corpora.passage",
    "Ranking": "retrievers.base",
    "Rankings": "retrievers.base",
    "RecipeOptions": "indexer.encoders.recipes",
    "RemoteSearcher": "retrievers.client",
    "Scope": "indexer.scope",
    "ScoredPassage": "retrievers.base",
    "SearchOptions": "retrievers.options",
    "Searcher": "retrievers.base",
    "Span": "corpora.passage",
    "build": "retrievers.build_and_open",
    "name_encoder": "indexer.naming",
    "open_searcher": "retrievers.opening",
    "plug": "base.plugins",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("wikidx")
    if name not in _MODULES:
        raise AttributeError(f"module 'wikidx' has no attribute '{name}'")
    return getattr(import_module(f"wikidx.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
