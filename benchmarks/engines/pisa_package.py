"""PISA through pyterrier-pisa's extension module, without PyTerrier: no Java is started, and no data frames are made.

It gets the terms of this project's analysis, in passages and questions, so that its stemmer and stop words are off. ``pisa`` computes BM25
from frequencies and exact lengths; ``pisa-quantized`` reads scores of 8 bits computed beforehand, which other work calls its fastest. Its
idf differs from Lucene's by a 1 in the logarithm, and its lengths are not rounded to a byte, so that its scores are close, not equal.

For each depth the fastest algorithm of those that return the k best is taken, found by trial, which is not timed. Analysis of the
questions is not timed either, in its favour. Its time includes the docid and the score of every hit.

The package requires PyTerrier, of which nothing is used here, and an old TBB: install both alone, as the message of ``_check`` says.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.kinds import K1, B, Engine, Kind, fastest, pad_hits
from benchmarks.engines.terms import analysed, letters_and_digits
from wikidx.base.errors import InputError
from wikidx.indexer.analysis.english import english
from wikidx.indexer.base import Hits

_FOLDER, _QUANTIZED_FOLDER, _LISTS = "pisa", "pisa-quantized", "pisa-lists"
_INSTALL = "pip install --no-deps pyterrier-pisa 'tbb<=2020.3.254'"
_ENCODING = "block_simdbp"  # the package's default
_EXHAUSTIVE = "ranked_or"
_ALGORITHMS = ("maxscore", "block_max_wand", "block_max_maxscore", "wand", _EXHAUSTIVE)
_TRIED = 64  # questions
_BATCH = 100_000  # passages in memory while building

RawHits = tuple[Any, Any, Any]  # numbers of questions, docids and scores, all of shape (hits,)


class PisaEngine(Engine):
    """An open index."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        self._pisa, self._threads = _package(), threads
        self._context = _open(folder / name, is_quantized=name == _QUANTIZED_FOLDER)
        self._fastest: dict[int, str] = {}  # by k

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the terms of the questions with their counts."""
        counts = [Counter(map(letters_and_digits, english(question))) for question in questions]
        self.questions = [(number, {term: float(n) for term, n in of.items()}) for number, of in enumerate(counts)]

    def batch(self, span: slice, k: int) -> RawHits:
        """Search for several questions in one batch."""
        return self._search(self.questions[span], k, self._algorithm(k))

    def single(self, number: int, k: int) -> RawHits:
        """Search for one question."""
        return self._search(self.questions[number : number + 1], k, self._algorithm(k), threads=1)

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - arrays
        """Return rows and scores by question."""
        numbers, docids, scores = found
        of_question = [numbers == number for number in range(n)]
        return pad_hits([(docids[mine].astype(np.int64), scores[mine]) for mine in of_question], k)

    def exhaustive(self, n: int, k: int) -> Hits:
        """Return the k best of all rows with a term of the question, by this engine's own scores."""
        return self.to_hits(self._search(self.questions[:n], k, _EXHAUSTIVE), n, k)

    def _algorithm(self, k: int) -> str:
        if k not in self._fastest:
            tried = self.questions[:_TRIED]
            self._fastest[k] = fastest(_ALGORITHMS, lambda algorithm: self._search(tried, k, algorithm))
        return self._fastest[k]

    def _search(self, questions: list[tuple[int, dict[str, float]]], k: int, algorithm: str, threads: int = 0) -> RawHits:
        n = len(questions) * k
        numbers, ranks = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        docids, scores = np.empty(n, dtype=np.object_), np.empty(n, dtype=np.float32)
        n_found = self._pisa.retrieve(
            self._context,
            algorithm,
            questions,
            k=k,
            threads=threads or self._threads,
            pretokenised=1,
            query_weighted=1,  # a term that comes twice counts twice
            result_qidxs=numbers,
            result_docnos=docids,
            result_ranks=ranks,
            result_scores=scores,
        )
        return numbers[:n_found], docids[:n_found], scores[:n_found]


def _open(folder: Path, *, is_quantized: bool) -> Any:  # noqa: ANN401 - a module without types
    """Open an index; the compressed form, and the score bounds of its blocks, are written when they do not exist."""
    context = _package().RetrievalContext()
    with _silence():
        _package().prepare_index(context, str(folder), _ENCODING, "bm25", "", quantize=int(is_quantized), bm25_k1=K1, bm25_b=B)
    return context


@contextmanager
def _silence() -> Iterator[None]:
    """Drop this process's output meanwhile: the package reports its progress, percent by percent."""
    kept = [os.dup(number) for number in (1, 2)]
    with Path(os.devnull).open("wb") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
    try:
        yield
    finally:
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _build(folder: Path, threads: int) -> Path:
    """Invert the stream of terms and compress the result; the uncompressed lists stay for ``_build_quantized``."""
    lists = _invert(folder, threads)
    return _compress(lists, folder / _FOLDER, is_quantized=False)


def _build_quantized(folder: Path, threads: int) -> Path:
    """Compress scores, from the lists that ``_build`` left, if there are any; they are removed."""
    lists = folder / _LISTS
    index = _compress(lists if lists.exists() else _invert(folder, threads), folder / _QUANTIZED_FOLDER, is_quantized=True)
    shutil.rmtree(lists)
    return index


def _invert(folder: Path, threads: int) -> Path:
    """Write the inverted lists and the lexicons."""
    lists, unfinished = folder / _LISTS, folder / f"{_LISTS}.unfinished"
    for old in (lists, unfinished):
        shutil.rmtree(old, ignore_errors=True)
    unfinished.mkdir()
    pipe = unfinished / "terms"
    os.mkfifo(pipe)
    writer = threading.Thread(target=_write, args=(analysed(letters_and_digits), pipe), daemon=True)
    writer.start()
    with _silence():
        _package().index(str(pipe), str(unfinished), "", _BATCH, max(2, threads))  # with one thread it never ends after the first batch
    writer.join()
    for left in ("terms", "fwd", "fwd.documents", "fwd.terms", "fwd.urls"):
        (unfinished / left).unlink()
    return unfinished.rename(lists)


def _compress(lists: Path, index: Path, *, is_quantized: bool) -> Path:
    """Write an index without the lists."""
    shutil.rmtree(index, ignore_errors=True)
    index.mkdir()
    links = [index / file.name for file in lists.glob("inv.*")]
    for file in lists.iterdir():
        os.link(file, index / file.name)
    _open(index, is_quantized=is_quantized)
    for link in links:
        link.unlink()
    return index


def _write(texts: Iterable[str], pipe: Path) -> None:
    with suppress(BrokenPipeError), pipe.open("w", encoding="ascii") as file:
        file.writelines(f"{row} {text}\n" for row, text in enumerate(texts))


def _module_path() -> Path | None:
    spec = importlib.util.find_spec("pyterrier_pisa")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for suffix in EXTENSION_SUFFIXES:
            if (path := Path(folder) / f"_pisathon{suffix}").exists():
                return path
    return None


@functools.cache
def _package() -> Any:  # noqa: ANN401 - a module without types
    """Return the extension module, without importing its package, which would import PyTerrier."""
    path = _module_path()
    loader = ExtensionFileLoader("_pisathon", str(path))
    module = importlib.util.module_from_spec(ModuleSpec("_pisathon", loader, origin=str(path)))
    loader.exec_module(module)
    return module


def _check() -> None:
    if _module_path() is None:
        raise InputError(f"PISA is not installed: {_INSTALL}")


PISA = Kind(build=_build, open=partial(PisaEngine, _FOLDER), load=_package, check=_check)
PISA_QUANTIZED = Kind(build=_build_quantized, open=partial(PisaEngine, _QUANTIZED_FOLDER), load=_package, check=_check)
