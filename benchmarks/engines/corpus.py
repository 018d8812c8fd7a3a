"""Data of the benchmarks: passages in their own store with their counts, and questions."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.engines.kinds import contents
from benchmarks.gar import gar_groups
from benchmarks.processes import NAME, use_data_home
from benchmarks.synthetic import data_folder, real_passages, synthetic, write
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis.english import TermNumbers, english
from wikidx.runtimes.questions import read_questions

_COUNTS, _QUESTIONS = "counts.json", "questions.json"
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


class Questions(NamedTuple):
    """A JSON list of questions in a file, and the answers of each, empty if they are not known."""

    file: Path
    answers: Sequence[Sequence[str]]

    def __len__(self) -> int:
        return len(self.answers)


def prepare_corpus(name: str, work: Path) -> BenchmarkCorpus:
    """Return a corpus, stored and counted: ``wiki_intro`` split at 100 words, ``dpr_union``, a number of synthetic passages, or a file.

    Raises:
        InputError: the data or the file is missing or cannot be read.
        ArtifactMismatch: the work folder has another corpus of this name.
    """
    if name == "dpr_union":
        return _store_corpus(name, work / name, data_folder() / name / "passages.jsonl.gz")
    if name != "wiki_intro" and not name.isdecimal():
        file = Path(name)
        label = f"{file.absolute().parent.name}-{file.name.partition('.')[0]}"
        return _store_corpus(label, work / label, file)
    label = f"synthetic-{name}" if name.isdecimal() else name
    file = work / label / "passages.jsonl"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        source = real_passages(data_folder() / "wiki_intro" / "passages.jsonl.gz")
        unfinished = file.with_name("unfinished.jsonl")
        write(synthetic(int(name), source=source) if name.isdecimal() else source, unfinished)
        unfinished.rename(file)
    return _store_corpus(label, file.parent, file)


def warm_up_corpus(corpus: BenchmarkCorpus, work: Path) -> BenchmarkCorpus:
    """Return the first passages of a corpus as one of their own."""
    use_data_home(corpus.folder)
    file = work / f"warm-up-{corpus.label}" / "passages.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    write(islice(open_store(NAME).read(), _WARM_UP_PASSAGES), file)
    return _store_corpus("warm-up", file.parent, file)


def prepare_questions(name: str, work: Path) -> Questions:
    """Return questions with a term, shuffled, so that the first n are representative.

    ``nq`` are NQ's test questions, which are short, ``hybridqa`` long ones, ``dpr_union`` those of its passages, others those of a file.

    Raises:
        InputError: a file is missing or cannot be read.
    """
    files = {"hybridqa": "wiki_intro/queries.hybridqa_dev.jsonl.gz", "dpr_union": "dpr_union/queries.nq_oracle.jsonl.gz"}
    if name == "nq":
        pairs: list[tuple[str, Sequence[str]]] = [(group[0], ()) for group in gar_groups(data_folder() / "gar")]
    else:
        file = data_folder() / files[name] if name in files else Path(name)
        pairs = [(question.text, question.golden_answers) for question in read_questions(file)]
    found = [(text, answers) for text, answers in pairs if english(text)]
    random.Random(0).shuffle(found)
    work.mkdir(parents=True, exist_ok=True)
    (work / _QUESTIONS).write_text(json.dumps([text for text, _ in found]))
    return Questions(work / _QUESTIONS, [answers for _, answers in found])


def _store_corpus(label: str, folder: Path, file: Path) -> BenchmarkCorpus:
    folder.mkdir(parents=True, exist_ok=True)
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
        numbers, ends = terms.add(texts)
        text_of = np.repeat(np.arange(len(texts)), np.diff(ends, prepend=0))
        n_tokens += len(numbers)
        n_postings += len(np.unique(text_of * len(terms) + numbers))
        n_bytes += sum(len(text.encode(errors="surrogatepass")) for text in texts)
    counts = Counts(store.fingerprint, len(store), n_tokens, n_postings, n_bytes)
    path.write_text(json.dumps(asdict(counts)))
    return counts
