"""Data of the BM25 benchmarks: passages in their own store with their counts, and questions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.engines.build import build
from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.engines.worker import Worker
from benchmarks.gar import gar_groups
from benchmarks.synthetic import data_folder, real_passages, synthetic, write
from tests.lucene.oracle import contents
from wikidx.base.errors import InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.compression import open_bytes
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis import TermNumbers, english

_OURS = "bm25"
_COUNTS = "counts.json"
_BATCH = 4096
_WARM_UP_PASSAGES = 1000


@dataclass(frozen=True, slots=True)
class Counts:
    """Size of a corpus; ``postings`` counts the distinct terms of every passage."""

    fingerprint: str
    passages: int
    tokens: int
    postings: int
    text_bytes: int


@dataclass(frozen=True, slots=True)
class BenchmarkCorpus:
    """A corpus to measure on: its data home and its indexes are in ``folder``."""

    label: str
    folder: Path
    counts: Counts


def real_corpus(work: Path) -> BenchmarkCorpus:
    """Return wiki_intro, split at 100 words."""
    return _create_corpus("wiki_intro", work, lambda file: write(_wiki_intro(), file))


def synthetic_corpus(n: int, work: Path) -> BenchmarkCorpus:
    """Return ``n`` synthetic passages of seed 0."""
    return _create_corpus(f"synthetic-{n}", work, lambda file: write(synthetic(n, source=_wiki_intro()), file))


def load_corpus(file: Path, work: Path) -> BenchmarkCorpus:
    """Return the corpus of a file of passages; it is named after the file and its folder.

    Raises:
        InputError: the file cannot be read.
        ArtifactMismatch: the work folder has another corpus of this name.
    """
    label = f"{file.absolute().parent.name}-{file.name.partition('.')[0]}"
    return _store_corpus(label, work / label, file)


def compile_kernels(corpus: BenchmarkCorpus, work: Path, questions: Path, ks: Sequence[int]) -> None:
    """Build and search the first passages, so that numba's cache contains the project's BM25 kernels, as after the first search."""
    small = _warm_up_corpus(corpus, work)
    build(_OURS, small.folder, 1, force=True)
    with Worker(_OURS, small.folder, 1, questions) as worker:
        for k in ks:
            worker.batch(1, k)


def _warm_up_corpus(corpus: BenchmarkCorpus, work: Path) -> BenchmarkCorpus:
    """Return the first passages of a corpus as a separate corpus, in ``<work>/warm-up``."""
    use_data_home(corpus.folder)
    passages = islice(open_store(NAME).read(), _WARM_UP_PASSAGES)
    file = work / f"warm-up-{corpus.label}" / "passages.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    write(passages, file)
    return _store_corpus("warm-up", file.parent, file)


def write_questions(source: Path, target: Path) -> int:
    """Write the questions with a term of a JSON lines file as one JSON list, shuffled; return their number.

    Raises:
        InputError: there are none, or the file does not exist.
    """
    if not source.exists():
        raise InputError(f"no questions at {source}: name a file with --questions")
    with open_bytes(source) as lines:
        found = shuffled_questions(json.loads(line)["question"] for line in lines)
    if not found:
        raise InputError(f"{source} has no question with a term in it")
    target.write_text(json.dumps(found))
    return len(found)


def shuffled_questions(questions: Iterable[str]) -> list[str]:
    """Return the questions with a term, shuffled, so that the first n are representative."""
    found = [question for question in questions if english(question)]
    random.Random(0).shuffle(found)
    return found


def nq_questions() -> list[str]:
    """Return NQ's test questions, which are short, shuffled."""
    return shuffled_questions(group[0] for group in gar_groups(data_folder() / "gar"))


def _wiki_intro() -> list[Passage]:
    return real_passages(data_folder() / "wiki_intro" / "passages.jsonl.gz")


def _create_corpus(label: str, work: Path, make: Callable[[Path], None]) -> BenchmarkCorpus:
    """Return a corpus, creating its file if it does not exist."""
    file = work / label / "passages.jsonl"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name("unfinished.jsonl")
        make(unfinished)
        unfinished.rename(file)
    return _store_corpus(label, file.parent, file)


def _store_corpus(label: str, folder: Path, file: Path) -> BenchmarkCorpus:
    use_data_home(folder)
    build_store(custom_corpus(file, NAME, ReadOptions()), StoreOptions())
    return BenchmarkCorpus(label, folder, _counts(folder / _COUNTS, open_store(NAME)))


def _counts(path: Path, store: PassageStore) -> Counts:
    """Return the counts of a store, cached in a file."""
    if path.exists():
        stored = Counts(**json.loads(path.read_bytes()))
        if stored.fingerprint == store.fingerprint:
            return stored
    terms = TermNumbers()
    n_tokens = n_postings = n_bytes = 0
    passages = store.read()
    while texts := [contents(passage) for passage in islice(passages, _BATCH)]:
        tokens, postings = _count_terms(terms, texts)
        n_tokens, n_postings = n_tokens + tokens, n_postings + postings
        n_bytes += sum(len(text.encode(errors="surrogatepass")) for text in texts)
    counts = Counts(store.fingerprint, len(store), n_tokens, n_postings, n_bytes)
    path.write_text(json.dumps(asdict(counts)))
    return counts


def _count_terms(terms: TermNumbers, texts: Sequence[str]) -> tuple[int, int]:
    """Return the total number of terms of texts, and the sum of their distinct ones."""
    numbers, ends = terms.add(texts)
    text_of = np.repeat(np.arange(len(texts)), np.diff(ends, prepend=0))
    return len(numbers), len(np.unique(text_of * len(terms) + numbers))
