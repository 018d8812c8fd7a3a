"""A small corpus that is built once, and a server over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import corpus_of
from tests.retrievers.server.serving import serving
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

WORDS = ["river", "mountain", "whale", "fox", "ocean", "planet", "metal", "book", "ship", "king", "café", "naïve"]
LIMITS = Limits(
    max_body_bytes=1 << 20,
    max_k=100,
    max_depth=1_000,
    max_queries=2_000,
    max_query_characters=1_000,
    max_ids=50,
    deadline_s=10,
    drain_s=0.05,
)


def some_passages(n: int = 600) -> list[Passage]:
    """Passages that share words, so that searches find many, with ties; some titles have quotes or two lines."""
    titles = ["Plain", 'With "quotes"', "Two\nlines", "Ähre – “quoted”"]
    return [
        Passage(f"p{n}", f"{titles[n % 4]} {n}", f"{WORDS[n % 12]} {WORDS[n // 12 % 12]} {WORDS[n * 7 % 11]}\nnumber {n}") for n in range(n)
    ]


@pytest.fixture(scope="package")
def built_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the corpora 'made' and 'other'."""
    home = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        for name, n in (("made", 600), ("other", 30)):
            build_store(corpus_of(some_passages(n), name), StoreOptions())
            build_index(name, "bm25", open_store(name))
    return home


@pytest.fixture
def made(built_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make that home this test's."""
    monkeypatch.setenv("IDX_HOME", str(built_home))
    return built_home


@pytest.fixture(scope="package")
def url(built_home: Path) -> Iterator[str]:
    """A server over both corpora, within small limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(built_home))
        with serving(Settings(corpora=("made", "other"), port=0, limits=LIMITS)) as where:
            yield where
