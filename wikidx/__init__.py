"""Local retrieval for research on retrieval-augmented language models: ``corpora``, ``indexer``, ``retrievers``, ``runtimes``.

The names below are imported when they are first used; each package's ``__init__`` opens with its map.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .retrievers.base import Ranking, ScoredPassage, Searcher
    from .retrievers.client import RemoteSearcher
    from .retrievers.opening import open_searcher
    from .retrievers.options import SearchOptions

__all__ = ["Ranking", "RemoteSearcher", "ScoredPassage", "SearchOptions", "Searcher", "open_searcher"]

_MODULES = {"RemoteSearcher": "client", "SearchOptions": "options", "open_searcher": "opening"}  # the others are in ``base``


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'wikidx' has no attribute '{name}'")
    return getattr(import_module(f"wikidx.retrievers.{_MODULES.get(name, 'base')}"), name)
