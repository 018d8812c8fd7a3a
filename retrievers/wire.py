"""Searches and rankings as JSON, and back: the one definition of their field names on the wire.

A passage is ``{"id", "title", "text", "row", "score", "found": [{"query", "retriever", "rank", "score"}]}``, a ranking a list of them.
Scores are float32 values; JSON has the shortest decimal of the same double, so that they round-trip exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from wikidx.corpora.passage import Passage

from .base import Found, NotSearched, Ranking, ScoredPassage
from .options import SearchOptions

SEARCH = "/v1/search"
RETRIEVE = "/retrieve"

OPTION_NAMES = tuple(field.name for field in dataclasses.fields(SearchOptions))


def request_to_json(groups: Sequence[Sequence[str]], options: SearchOptions, named: Mapping[str, str | float | None]) -> bytes:
    """Return the body of a search; values of ``named``, such as the corpus, that are None are left out."""
    asked: dict[str, Any] = {"groups": [list(group) for group in groups]}
    asked |= {name: getattr(options, name) for name in OPTION_NAMES}
    return orjson.dumps(asked | {name: value for name, value in named.items() if value is not None})


def ranking_to_json(ranking: Ranking, highlight: Sequence[str] = ()) -> bytes:
    """Return a ranking as JSON; if there are queries to highlight, each passage lists its words that match them.

    The format is ``"highlights": {"title": [[start, end]], "text": [[start, end]]}`` in code points.
    """
    passages: list[dict[str, Any]] = [
        {
            "id": hit.passage.id,
            "title": hit.passage.title,
            "text": hit.passage.text,
            "row": hit.row,
            "score": hit.score,
            "found": [{"query": way.query, "retriever": way.retriever, "rank": way.rank, "score": way.score} for way in hit.found],
        }
        for hit in ranking
    ]
    if highlight:
        from .highlight import highlights  # imported here because it compiles the analysis, which clients do not need

        for field in ("title", "text"):
            for passage, spans in zip(passages, highlights([passage[field] for passage in passages], highlight), strict=True):
                passage.setdefault("highlights", {})[field] = spans
    return orjson.dumps(passages)


def ranking_from_json(passages: Sequence[Mapping[str, Any]]) -> Ranking:
    """Return the ranking that ``ranking_to_json`` wrote.

    Raises:
        KeyError, TypeError: it does not have that format.
    """
    return [
        ScoredPassage(
            Passage(hit["id"], hit["title"], hit["text"]),
            hit["row"],
            hit["score"],
            tuple([Found(way["query"], way["retriever"], way["rank"], way["score"]) for way in hit["found"]]),
        )
        for hit in passages
    ]


def not_searched_to_json(lost: Iterable[NotSearched]) -> bytes:
    """Return rows that were not searched as JSON: ``[{"index", "first_row", "stop_row"}]``."""
    return orjson.dumps([{"index": rows.name, "first_row": rows.first_row, "stop_row": rows.stop_row} for rows in sorted(lost)])


def not_searched_from_json(found: Sequence[Mapping[str, Any]]) -> list[NotSearched]:
    """Return what ``not_searched_to_json`` wrote; raises as ``ranking_from_json`` does."""
    return [NotSearched(rows["index"], rows["first_row"], rows["stop_row"]) for rows in found]


def contents(passage: Passage) -> str:
    """Return a passage in Search-R1's format: the title in quotes on the first line, then the text."""
    title = " ".join(passage.title.splitlines())  # readers of this format take the first line as the title
    return f'"{title}"\n{passage.text}'


def documents_to_json(ranking: Ranking, *, with_scores: bool) -> bytes:
    """Return a ranking in Search-R1's format."""
    documents = [{"id": hit.passage.id, "contents": contents(hit.passage)} for hit in ranking]
    if not with_scores:
        return orjson.dumps(documents)
    return orjson.dumps([{"document": document, "score": hit.score} for document, hit in zip(documents, ranking, strict=True)])
