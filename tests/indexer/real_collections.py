"""Four public collections of the test data, and both BM25 indexes, Lucene's and ours, built over the same passages."""

from __future__ import annotations

import gzip
import json
import random
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import corpus_of
from tests.lucene.oracle import Oracle, index_passages
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.indexes.bm25 import BM25Index


class Collection(NamedTuple):
    """Passages, and queries by their ids."""

    passages: list[Passage]
    queries: dict[str, str]


class Pair(NamedTuple):
    """The same passages in both indexes; ``home`` is the data home of ours."""

    passages: list[Passage]
    bm25: BM25Index
    lucene: Oracle
    home: Path


def wikipedia(folder: str, questions: str, data: Path) -> Collection:
    """Return passages of a folder in their order, and the questions of a file in it."""
    passages = [Passage(record["id"], record["title"], record["text"]) for record in _records(data / folder / "passages.jsonl.gz")]
    return Collection(passages, {record["qid"]: record["question"] for record in _records(data / folder / questions)})


def cacm(data: Path) -> Collection:
    """3,204 titles and abstracts of the Communications of the ACM by ascending id, and 64 requests.

    The pages are those that the published figures were measured with; copies of CACM as JSON lack some of their text.
    """
    with tarfile.open(data / "cacm" / "cacm.tar.gz") as archive:
        pages = {Path(member.name).stem: archive.extractfile(member) for member in archive}
        texts = {id_: re.sub("</?(html|pre)>", "", page.read().decode("ascii")) for id_, page in sorted(pages.items()) if page}
    topics = (data / "cacm" / "topics.cacm.txt").read_text(encoding="ascii")
    queries = dict(re.findall(r"<DOCNO> (\d+) </DOCNO>(.*?)</DOC>", topics, re.DOTALL))
    return Collection([Passage(id_, "", text) for id_, text in texts.items()], queries)


def nfcorpus(data: Path) -> Collection:
    """3,633 titles and abstracts of PubMed by ascending id, and 3,237 questions and titles of articles on nutrition."""
    with zipfile.ZipFile(data / "nfcorpus" / "nfcorpus.zip") as archive:
        documents = [json.loads(line) for line in archive.read("nfcorpus/corpus.jsonl").splitlines()]
        queries = [json.loads(line) for line in archive.read("nfcorpus/queries.jsonl").splitlines()]
    passages = sorted(Passage(record["_id"], record["title"], record["text"]) for record in documents)
    return Collection(passages, {record["_id"]: record["text"] for record in queries})


COLLECTIONS: dict[str, Callable[[Path], Collection]] = {
    # 33,888 Wikipedia passages of 100 words, and 2,655 questions of Natural Questions
    "dpr_union": partial(wikipedia, "dpr_union", "queries.nq_oracle.jsonl.gz"),
    # 178,775 first paragraphs of Wikipedia articles, and 3,466 questions of HybridQA
    "wiki_intro": partial(wikipedia, "wiki_intro", "queries.hybridqa_dev.jsonl.gz"),
    "cacm": cacm,
    "nfcorpus": nfcorpus,
}


def sampled(passages: Sequence[Passage], n: int) -> list[Passage]:
    """Return ``n`` of the passages, or all if they are fewer, in their order."""
    places = range(len(passages))
    return [passages[place] for place in sorted(random.Random(n).sample(places, min(n, len(places))))]


def index_both(passages: Sequence[Passage], home: Path) -> Pair:
    """Build and open both indexes in a data home of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        build_store(corpus_of(passages, "made"), StoreOptions())
        store = open_store("made")
        build_index("made", "bm25", store)
        bm25 = open_index("made", "bm25", store)
    assert isinstance(bm25, BM25Index)
    return Pair(list(passages), bm25, Oracle(index_passages(passages, home / "lucene")), home)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
