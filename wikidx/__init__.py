"""Local retrieval for research on retrieval-augmented language models: ``corpora``, ``indexer``, ``retrievers``, ``runtimes``.

    import wikidx as idx

    searcher = idx.build(["Thimphu is the capital of Bhutan.", "Lima is the capital of Peru."])
    print(searcher.search(["Which city is Bhutan's capital?"], k=1))

The names below are imported when they are first used; each package's ``__init__`` opens with its map.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from .base.errors import IdxError
    from .base.plugins import plug
    from .corpora.corpus import Corpus
    from .corpora.passage import BadRecord, LocatedPassage, Passage
    from .corpora.reading.readers import Format
    from .corpora.reading.records import FieldMap
    from .indexer.analysis import Analyzer
    from .indexer.encoders.plugged import OwnEncoder
    from .indexer.encoders.recipes import RecipeOptions
    from .indexer.encoders.spec import EncoderSpec
    from .indexer.indexes.kinds import IndexKind
    from .indexer.naming import name_encoder
    from .indexer.scope import Scope
    from .retrievers.async_client import AsyncRemoteSearcher
    from .retrievers.base import Match, Ranking, Rankings, ScoredPassage, Searcher
    from .retrievers.build_and_open import build
    from .retrievers.client import RemoteSearcher
    from .retrievers.opening import open_searcher
    from .retrievers.options import SearchOptions
    from .retrievers.rerankers.plugged import OwnReranker
    from .retrievers.searcher import LocalSearcher

__all__ = [
    "Analyzer",
    "AsyncRemoteSearcher",
    "BadRecord",
    "Corpus",
    "EncoderSpec",
    "FieldMap",
    "Format",
    "IdxError",
    "IndexKind",
    "LocalSearcher",
    "LocatedPassage",
    "Match",
    "OwnEncoder",
    "OwnReranker",
    "Passage",
    "Ranking",
    "Rankings",
    "RecipeOptions",
    "RemoteSearcher",
    "Scope",
    "ScoredPassage",
    "SearchOptions",
    "Searcher",
    "build",
    "name_encoder",
    "open_searcher",
    "plug",
]

_MODULES = {
    "Analyzer": "indexer.analysis",
    "AsyncRemoteSearcher": "retrievers.async_client",
    "BadRecord": "corpora.passage",
    "Corpus": "corpora.corpus",
    "EncoderSpec": "indexer.encoders.spec",
    "FieldMap": "corpora.reading.records",
    "Format": "corpora.reading.readers",
    "IdxError": "base.errors",
    "IndexKind": "indexer.indexes.kinds",
    "LocalSearcher": "retrievers.searcher",
    "LocatedPassage": "corpora.passage",
    "OwnEncoder": "indexer.encoders.plugged",
    "OwnReranker": "retrievers.rerankers.plugged",
    "Passage": "corpora.passage",
    "RecipeOptions": "indexer.encoders.recipes",
    "RemoteSearcher": "retrievers.client",
    "Scope": "indexer.scope",
    "SearchOptions": "retrievers.options",
    "build": "retrievers.build_and_open",
    "name_encoder": "indexer.naming",
    "open_searcher": "retrievers.opening",
    "plug": "base.plugins",
}  # the others are in ``retrievers.base``


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("wikidx")
    if name not in __all__:
        raise AttributeError(f"module 'wikidx' has no attribute '{name}'")
    return getattr(import_module(f"wikidx.{_MODULES.get(name, 'retrievers.base')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
