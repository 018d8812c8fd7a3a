"""Small corpora that are built once, and one server over them, which tests only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.retrievers.retrieving import at_home, build_corpus
from tests.retrievers.server.serving import serving
from wikidx.corpora.passage import Passage
from wikidx.retrievers.pipelines.notation import parse_pipeline
from wikidx.retrievers.pipelines.saved import write_pipeline
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

RETRIEVERS = ("bm25", "bm25-1.2-0.75", "mine")
PIPELINE = "{bm25:3, bm25-1.2-0.75}minmax%12"
WORDS = ["river", "mountain", "whale", "fox", "ocean", "planet", "metal", "book", "ship", "king", "café", "naïve"]
LIMITS = Limits(
    max_body_bytes=1 << 20,
    max_k=100,
    max_depth=1_000,
    max_queries=2_000,
    max_query_characters=1_000,
    max_ids=50,
    max_provenance=200_000,
    deadline_s=10,
    drain_s=0.05,
)


def some_passages(n: int = 600) -> list[Passage]:
    """Passages that share words, so that searches find many, with ties; some titles have quotes or two lines."""
    titles = ["Plain", 'With "quotes"', "Two\nlines", "Ähre – “quoted”"]
    return [
        Passage(f"p{n}", f"{titles[n % 4]} {n}", f"{WORDS[n % 12]} {WORDS[n // 12 % 12]} {WORDS[n * 7 % 11]}\nnumber {n}") for n in range(n)
    ]


@pytest.fixture(scope="session")
def built_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the corpora 'made' and 'other', each with two lexical indexes and a pipeline of both, 'mine'."""
    with at_home(tmp_path_factory.mktemp("served")) as home:
        for name, n_passages in (("made", 600), ("other", 30)):
            build_corpus(name, some_passages(n_passages), "bm25", "bm25-1.2-0.75")
            write_pipeline(name, "mine", parse_pipeline(PIPELINE), "", {})
    return home


@pytest.fixture
def made(built_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make that home this test's."""
    monkeypatch.setenv("IDX_HOME", str(built_home))
    return built_home


@pytest.fixture(scope="session")
def url(built_home: Path) -> Iterator[str]:
    """A server over both corpora, within small limits."""
    settings = Settings(corpora=("made", "other"), retrievers=RETRIEVERS, port=0, limits=LIMITS)
    with at_home(built_home), serving(settings) as where:
        yield where
