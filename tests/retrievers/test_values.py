"""A name is parsed, a manifest read and a store opened once per build and once per search."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from wikidx.base import compiled
from wikidx.base.artifacts import manifest
from wikidx.corpora.store import PassageStore
from wikidx.indexer.naming import IndexName, parse_index_name
from wikidx.retrievers.build_and_open import build
from wikidx.retrievers.opening import open_searcher

pytest.importorskip("faiss", reason="needs the extra 'dense'")

CORPUS, RETRIEVER = "sample@20", "bm25+minilm-ivf"
WATCHED: dict[CodeType, Callable[[dict[str, Any]], str]] = {
    manifest._load.__wrapped__.__code__: lambda given: f"manifest of {given['file'].parent.name}",
    PassageStore.__init__.__code__: lambda given: f"store {given['folder'].parent.name}",
    parse_index_name.__code__: lambda given: "" if isinstance(given["name"], IndexName) else f"name {given['name']}",
}


def calls_of(run: Callable[[], object]) -> Counter[str]:
    """Return how often each name is parsed, each manifest read and each store opened, in all threads."""
    counts = Counter[str]()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (describe := WATCHED.get(frame.f_code)):
            counts[describe(frame.f_locals)] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    del counts[""]
    return counts


def test_each_value_is_made_once_per_build_and_per_search(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled._interpretation, "spent_s", 0.0)  # a profiled compilation takes minutes

    def build_and_close() -> None:
        build(CORPUS, RETRIEVER, device="cpu", show_progress=False).close()

    def search() -> None:
        with open_searcher(CORPUS, RETRIEVER, device="cpu") as searcher:
            searcher.search(["river of Egypt"], k=3)

    expected = {"name bm25", "name minilm-ivf", f"store {CORPUS}"}
    expected |= {f"manifest of {name}" for name in ("passages", "bm25", "minilm", "minilm-ivf")}
    for run in (build_and_close, build_and_close, search):
        manifest._load.cache_clear()  # as in another process
        counts = calls_of(run)
        assert expected <= counts.keys()
        assert set(counts.values()) == {1}, counts
