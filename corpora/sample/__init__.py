"""The embedded default corpus: some seven hundred short articles, rendered from small fact tables.

The tables in ``facts/`` hold stable public facts on elements, countries, the solar system, the states and presidents of the United States,
rivers, mountains, laureates, books, paintings, composers and inventions. They hold no populations, records still being broken or present
holders of any other office, and a cell is empty where sources disagree; the sentence is left out then. With the corpus come questions, one
and two hops deep, whose evidence is known, so that a whole retrieval run can be tried and measured without any download.

tables  the fact tables, and putting sentences together    nature  geography  america  culture   the articles on each
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from corpora.corpus import Corpus
from corpora.passage import Located, Passage
from corpora.readers import OnBad
from corpora.splitters import split_words

from . import america, culture, geography, nature
from .tables import fact_text

N_WORDS = 100

_TABLES = (
    nature.elements,
    nature.planets,
    nature.moons,
    geography.countries,
    geography.rivers,
    geography.mountains,
    america.states,
    america.presidents,
    culture.scientists,
    culture.books,
    culture.paintings,
    culture.composers,
    culture.inventions,
)


class SampleQuestion(NamedTuple):
    """A question on the sample corpus; ``gold_ids`` are the passages that hold the evidence; the last one has the first of ``answers``.

    Further answers are other names of the same thing.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...]
    hops: int


def articles() -> Iterator[Passage]:
    """Yield every article, always in the same order."""
    for render in _TABLES:
        yield from render()


def passages() -> Iterator[Passage]:
    """Yield the articles cut into passages of at most 100 words."""
    for article in articles():
        yield from split_words(article, N_WORDS)


def questions() -> list[SampleQuestion]:
    """Return the questions in file order."""
    found = []
    for line in fact_text("questions.jsonl").splitlines():
        item = json.loads(line)
        found.append(SampleQuestion(item["id"], item["question"], tuple(item["answers"]), tuple(item["gold_ids"]), item["hops"]))
    return found


def content_sha256() -> str:
    """Return the SHA-256 of all passages, which changes with any fact, wording or order.

    Each id, title and text is preceded by its length in bytes as eight little-endian bytes, so that no shift of text between fields can
    go unnoticed.
    """
    digest = hashlib.sha256()
    for passage in passages():
        for field in passage:
            data = field.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def _read(files: Sequence[Path], on_bad: OnBad) -> Iterator[Located]:
    for number, passage in enumerate(passages(), 1):
        yield Located(passage, "sample", number)


CORPUS = Corpus(
    name="sample",
    summary="784 short passages of well-known facts, with 107 questions; ships with idx",
    files=(),
    read=_read,
    n_passages=784,
    reading={"content": content_sha256()},
)
