"""A small corpus for all adapters."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

import wikidx as idx

PASSAGES = [
    {"id": "a", "title": "Fox", "text": "The red fox."},
    {"id": "b", "title": "Whale", "text": "The blue whale."},
    {"id": "c", "text": "A blue fox, blue and blue"},
]


def skip_without(package: str, extra: str) -> None:
    """Skip a module of tests without importing its framework, which takes seconds."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs the extra '{extra}'", allow_module_level=True)


@pytest.fixture
def searcher() -> Iterator[idx.LocalSearcher]:
    with idx.build(PASSAGES) as searcher:
        yield searcher
