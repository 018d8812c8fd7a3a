"""Retriever ``given``: the passages that a file gives with its questions, in place of a search."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import DEFAULTS, Match, Ranking, ScoredPassage, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.questions import GivenPassage, Question

GIVEN = "given"


@dataclass(frozen=True)
class GivenPassages(Searcher):
    """A searcher whose answer to a question's own text is its first ``k`` given passages.

    Attributes:
        passages: text of a question -> its passages, best first.
    """

    passages: Mapping[str, tuple[GivenPassage, ...]]

    @classmethod
    def of_questions(cls, questions: Sequence[Question]) -> GivenPassages:
        """Return the searcher for questions.

        Raises:
            InputError: a question has no passages, or two questions of the same text have different ones.
        """
        passages: dict[str, tuple[GivenPassage, ...]] = {}
        for question in questions:
            if not question.passages:
                raise InputError(
                    f"the question '{question.id}' ({question.text:.60}) has no passages in 'docs', 'ctxs' or 'output.retrieval_result': "
                    f"--retriever {GIVEN} reads those that the file of questions gives with each"
                )
            if passages.setdefault(question.text, question.passages) != question.passages:
                raise InputError(
                    f"the question '{question.id}' ({question.text:.60}) is there twice, with different passages: leave one out"
                )
        return cls(passages)

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        """Return one ranking for each group; a passage without a score has NaN.

        Raises:
            InputError: a query is not the text of a question, or a group has several queries.
        """
        return [Ranking(self._hits(group, options.k), group) for group in groups]

    def _hits(self, group: Sequence[str], k: int) -> list[ScoredPassage]:
        unknown = next((query for query in group if query not in self.passages), None)
        if unknown is not None or len(group) != 1:
            shown = f"for {unknown!r:.80}" if unknown is not None else f"with {len(group)} queries together"
            raise InputError(
                f"it searches {shown}, and --retriever {GIVEN} has passages for each question as it stands alone: a method that searches "
                "with other queries needs --corpus"
            )
        (query,) = group
        numbered = enumerate(self.passages[query][:k], 1)
        return [_scored(passage, query, rank, math.nan if score is None else score) for rank, (passage, score) in numbered]

    def digest(self) -> str:
        """Return a SHA-256 over the questions and their passages, in order."""
        digest = hashlib.sha256()
        for item in self.passages.items():  # one by one, because together they may be gigabytes
            digest.update(json.dumps(item).encode())
        return digest.hexdigest()


def _scored(passage: Passage, query: str, rank: int, score: float) -> ScoredPassage:
    return ScoredPassage(passage, rank - 1, score, (Match(query, GIVEN, rank, score),))
