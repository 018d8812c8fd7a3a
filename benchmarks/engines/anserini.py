"""Pyserini through its public interface: Anserini's ``IndexCollection`` without stored text, ``LuceneSearcher.search``, ``batch_search``.

Timing includes obtaining the docid and the score of every hit in Python; ``batch_search`` itself was more than
95 % of that when warm, at k = 10, 100 and 1000 (5,000 passages, one thread).
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.engines.kinds import K1, B, Engine, Kind, pad_hits
from benchmarks.engines.terms import passage_texts
from tests.lucene.jvm import check_installed, index_collection, java_class
from wikidx.base.machine.memory import memory_bytes
from wikidx.indexer.base import Hits

_INDEX, _TEXTS = "anserini", "anserini-texts"
_N_FILES = 16  # a thread of IndexCollection takes one file at a time

RawHits = list[tuple[str, float]]


class PyseriniEngine(Engine):
    """A Pyserini searcher."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._searcher = _import_searcher().LuceneSearcher(str(folder / _INDEX))
        self._searcher.set_bm25(K1, B)
        self._threads = threads

    def batch(self, span: slice, k: int) -> list[RawHits]:
        """Search for several questions in one batch."""
        asked = self.questions[span]
        numbers = [str(number) for number in range(len(asked))]
        results = self._searcher.batch_search(asked, numbers, k=k, threads=self._threads)
        return [_read(results[number]) for number in numbers]

    def single(self, number: int, k: int) -> RawHits:
        """Search for one question."""
        return _read(self._searcher.search(self.questions[number], k=k))

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - docids and scores
        """Return the rows, which are the ids."""
        return pad_hits([([int(docid) for docid, _ in hits], [score for _, score in hits]) for hits in found], k)


def _read(hits: Iterable[Any]) -> RawHits:
    return [(hit.docid, hit.score) for hit in hits]


def _import_searcher() -> Any:  # noqa: ANN401 - a module without types
    """Import ``pyserini.search.lucene``; its import requires an OpenAI key, which is not used."""
    java_class("java.lang.String")  # starts Java as the project does; Pyserini uses the running JVM
    with patch.dict(os.environ, {"OPENAI_API_KEY": os.environ.get("OPENAI_API_KEY", "unused")}):
        return importlib.import_module("pyserini.search.lucene")


def _prepare(folder: Path) -> None:
    """Write the passages in Anserini's format, with the rows as ids, in turn to each file."""
    target, unfinished = folder / _TEXTS, folder / f"{_TEXTS}.unfinished"
    if target.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    with ExitStack() as opened:
        files = [opened.enter_context((unfinished / f"{number:02d}.jsonl").open("w", encoding="ascii")) for number in range(_N_FILES)]
        for row, text in enumerate(passage_texts()):
            files[row % _N_FILES].write(json.dumps({"id": str(row), "contents": text}) + "\n")
    unfinished.rename(target)


def _build(folder: Path, threads: int) -> Path:
    """Index the texts, which are removed."""
    index = folder / _INDEX
    shutil.rmtree(index, ignore_errors=True)
    index_collection(folder / _TEXTS, index, "-threads", str(threads), heap_bytes=memory_bytes() // 4)
    shutil.rmtree(folder / _TEXTS)
    return index


PYSERINI = Kind(build=_build, open=PyseriniEngine, load=_import_searcher, check=check_installed, prepare=_prepare)
