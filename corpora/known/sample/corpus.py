"""The sample corpus: stable public facts in 784 short passages, with questions of one and two hops whose evidence is known.

The passages are articles on elements, countries, the solar system, the states and presidents of the United States, rivers, mountains,
laureates, books, paintings, composers and inventions, so that a whole retrieval run can be tried and measured without any download.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import Located, Passage

_PASSAGES = files(__package__).joinpath("passages.jsonl").read_bytes()


class SampleQuestion(NamedTuple):
    """A question on the sample corpus; ``gold_ids`` are the passages with the evidence; the last one contains the first of ``answers``.

    Further answers are aliases.
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
    files=(),
    read=lambda files, on_bad: (Located(passage, "sample", number) for number, passage in enumerate(passages(), 1)),
    n_passages=784,
    reading={"content": hashlib.sha256(_PASSAGES).hexdigest()},
)
