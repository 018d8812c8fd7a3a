"""Conversion of searches and rankings to and from JSON.

A passage is ``{"id", "title", "text", "row", "score", "provenance": [{"query", "retriever", "rank", "score"}]}``; if it knows its place in
a document, also ``"span": {"document", "start", "end", "page", "heading"}``. A ranking is a list of passages. Scores are float32 values;
their decimals are read back as exactly the same values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from wikidx.corpora.passage import Passage

from .base import Match, Ranking, ScoredPassage, UnsearchedRows
from .documents import span_from_json
from .options import SearchOptions

SEARCH = "/v1/search"
RETRIEVE = "/retrieve"
EMBEDDINGS = "/v1/embeddings"

OPTION_NAMES = tuple(field.name for field in dataclasses.fields(SearchOptions))


def request_to_json(groups: Sequence[Sequence[str]], options: SearchOptions, target: Mapping[str, Any]) -> bytes:
    """Return the body of a search; ``target`` has further fields, such as the corpus, which are left out if None."""
    body: dict[str, Any] = {"groups": [list(group) for group in groups]}
    body |= {name: getattr(options, name) for name in OPTION_NAMES}
    return orjson.dumps(body | {name: value for name, value in target.items() if value is not None})


def ranking_to_json(ranking: Sequence[ScoredPassage], highlight: Sequence[str] = ()) -> bytes:
    """Return a ranking as JSON; if ``highlight`` has queries, each passage lists its words that match the queries.

    The format is ``"highlights": {"title": [[start, end]], "text": [[start, end]]}``, in code points.
    """
    passages: list[dict[str, Any]] = [hit.to_dict() for hit in ranking]
    if highlight:
        # This import compiles the analysis, which clients do not need.
        from .highlight import analyzer_of, find_highlights

        analyzer = analyzer_of(ranking)
        for field in ("title", "text"):
            found = find_highlights([passage[field] for passage in passages], highlight, analyzer)
            for passage, spans in zip(passages, found, strict=True):
                passage.setdefault("highlights", {})[field] = spans
    return orjson.dumps(passages)


def ranking_from_json(passages: Sequence[Mapping[str, Any]]) -> Ranking:
    """Return the ranking from the parsed JSON of ``ranking_to_json``.

    Raises:
        KeyError, TypeError: the JSON has another format.
    """
    return Ranking(
        ScoredPassage(
            Passage(hit["id"], hit["title"], hit["text"]),
            hit["row"],
            hit["score"],
            tuple([Match(match["query"], match["retriever"], match["rank"], match["score"]) for match in hit["provenance"]]),
            span_from_json(hit.get("span")),
        )
        for hit in passages
    )


def unsearched_to_json(unsearched: Iterable[UnsearchedRows]) -> list[dict[str, Any]]:
    """Return unsearched rows as JSON values: ``[{"index", "first_row", "stop_row"}]``."""
    return [{"index": rows.name, "first_row": rows.first_row, "stop_row": rows.stop_row} for rows in sorted(unsearched)]


def unsearched_from_json(entries: Sequence[Mapping[str, Any]]) -> list[UnsearchedRows]:
    """Return the rows from the parsed JSON of ``unsearched_to_json``; raises as ``ranking_from_json`` does."""
    return [UnsearchedRows(rows["index"], rows["first_row"], rows["stop_row"]) for rows in entries]


def contents(passage: Passage) -> str:
    """Return a passage in Search-R1's format: the title in quotes on the first line, then the text."""
    # One line, because readers of this format take the first line as the title.
    title = " ".join(passage.title.splitlines())
    return f'"{title}"\n{passage.text}'


def documents_to_json(ranking: Sequence[ScoredPassage], *, with_scores: bool) -> bytes:
    """Return a ranking in Search-R1's format."""
    documents = [{"id": hit.passage.id, "contents": contents(hit.passage)} for hit in ranking]
    if not with_scores:
        return orjson.dumps(documents)
    return orjson.dumps([{"document": document, "score": hit.score} for document, hit in zip(documents, ranking, strict=True)])
