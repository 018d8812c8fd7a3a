"""The sample corpus: 784 short passages of public facts, and one-hop and two-hop questions with their gold passages.

The passages are articles on elements, countries, the solar system, the states and presidents of the United States, rivers, mountains,
laureates, books, paintings, composers and inventions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, Passage

_PASSAGES = files(__package__).joinpath("passages.jsonl").read_bytes()


class SampleQuestion(NamedTuple):
    """A question on the sample corpus, with its answers and the ids of its gold passages.

    The last gold passage contains the first answer; further answers are aliases.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...]
    hops: int


def passages() -> Iterator[Passage]:
    """Yield the passages in file order."""
    return (Passage(**json.loads(line)) for line in _PASSAGES.splitlines())


def questions() -> list[SampleQuestion]:
    """Return the questions in file order."""
    items = map(json.loads, files(__package__).joinpath("questions.jsonl").read_bytes().splitlines())
    return [SampleQuestion(item["id"], item["question"], tuple(item["answers"]), tuple(item["gold_ids"]), item["hops"]) for item in items]


CORPUS = Corpus(
    name="sample",
    summary="784 short passages of well-known facts, with 107 questions; ships with idx",
    read=lambda files, on_bad: (LocatedPassage(passage, "sample", number) for number, passage in enumerate(passages(), 1)),
    n_passages=784,
    reading={"content": hashlib.sha256(_PASSAGES).hexdigest()},
)
