"""Protocols of retrievers, rerankers and searchers, and the types of their results."""

from __future__ import annotations

import html
import textwrap
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, SupportsIndex, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import ArgumentError, UnknownNameError, require_packages
from wikidx.base.validation import check_iterable
from wikidx.corpora.passage import Passage, Rows, Span
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams, Vectors
from wikidx.indexer.scope import Scope
from wikidx.retrievers.vector_queries import to_query

from .documents import OpenDocuments
from .options import SearchOptions, SearchOptionValues, override
from .reopening import Reopened
from .trec_lines import trec_lines

if TYPE_CHECKING:
    import pandas as pd

DEFAULTS = SearchOptions()

_SHOWN_TEXT = 80  # characters of a passage that ``repr`` shows
_SHOWN_HTML = 300  # characters of a passage in a table
_COLUMNS = ("query_id", "query", "rank", "score", "id", "title", "text")

Queries = Sequence[str] | Sequence[Sequence[float]] | Vectors
"""Texts; or vectors, for an index of vectors without an encoder."""
RowFilter = Scope | Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_] | None
"""Rows that may be returned; see ``Searcher.search``."""


class Retriever(Protocol):
    """An open index that returns the best rows for queries."""

    @property
    def parameters(self) -> Mapping[str, SearchParam]:
        """Search parameters by name; empty for exact searches."""
        ...

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows of the parameters' scope for each query, and none for a blank one.

        Other parameters that the retriever lacks are ignored.
        """
        ...

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows for each query without searching.

        Args:
            queries: the queries.
            rows: for each query, int64 rows, ascending.

        Returns:
            For each query, the exact float32 scores of its rows; -inf for a row that an exact ``retrieve`` would never return.
        """
        ...


class Reranker(Protocol):
    """A model that reads a query together with a passage and scores the passage."""

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return a float32 score for each pair ``(queries[i], passages[i])``, shape (n,); higher is better."""
        ...


class Match(NamedTuple):
    """One entry of a passage's provenance: the query of the group, the retriever, the rank (from 1) and the score."""

    query: str
    retriever: str
    rank: int
    score: float


class ScoredPassage(NamedTuple):
    """A passage in a ranking.

    ``row`` is its position in the store; ``provenance`` is ordered by query, then retriever; ``span`` is its place in its document, if any.
    """

    passage: Passage
    row: int
    score: float
    provenance: tuple[Match, ...]
    span: Span | None = None

    @property
    def id(self) -> str:
        """The passage's id."""
        return self.passage.id

    @property
    def title(self) -> str:
        """The passage's title; may be empty."""
        return self.passage.title

    @property
    def text(self) -> str:
        """The passage's text."""
        return self.passage.text

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values; those of ``passage`` are on the top level."""
        values: dict[str, Any] = {
            "id": self.passage.id,
            "title": self.passage.title,
            "text": self.passage.text,
            "row": self.row,
            "score": self.score,
            "provenance": [
                {"query": match.query, "retriever": match.retriever, "rank": match.rank, "score": match.score} for match in self.provenance
            ],
        }
        return values if self.span is None else {**values, "span": self.span._asdict()}


class Ranking(list[ScoredPassage]):
    """The passages found for one query or group of queries, best first; shown as a table in notebooks.

    >>> ranking = searcher.search(["river of Egypt"], k=3)[0]
    >>> [(hit.id, hit.title, hit.score) for hit in ranking]

    Attributes:
        queries: the queries of the group, the primary query first.
        error: the reason why they could not be searched; "" if they were.
    """

    __slots__ = ("error", "queries")

    def __init__(self, hits: Iterable[ScoredPassage] = (), queries: Iterable[str] = (), error: str = "") -> None:
        super().__init__(hits)
        self.queries, self.error = tuple(queries), error

    @overload
    def __getitem__(self, index: SupportsIndex) -> ScoredPassage: ...
    @overload
    def __getitem__(self, index: slice) -> Ranking: ...
    def __getitem__(self, index: SupportsIndex | slice) -> ScoredPassage | Ranking:
        """Return one passage, or a ranking of several for the same queries."""
        return Ranking(super().__getitem__(index), self.queries, self.error) if isinstance(index, slice) else super().__getitem__(index)

    def __repr__(self) -> str:
        lines = [self.caption or "ranking"]
        for rank, hit in enumerate(self, 1):
            text = textwrap.shorten(hit.text, _SHOWN_TEXT, placeholder=" …")
            lines.append(f"{rank:>3}  {hit.score:.4f}  [{hit.id}]  {hit.title}{': ' if hit.title else ''}{text}")
        return "\n".join(lines if self else [*lines, "     no passage found"])

    def _repr_html_(self) -> str:
        cells = (
            (rank, f"{hit.score:.4f}", hit.id, hit.title, textwrap.shorten(hit.text, _SHOWN_HTML, placeholder=" …"))
            for rank, hit in enumerate(self, 1)
        )
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in cells)
        header = "".join(f"<th>{name}</th>" for name in ("rank", "score", "id", "title", "text"))
        caption = f"<caption>{html.escape(self.caption)}</caption>"
        return f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"

    @property
    def caption(self) -> str:
        """The queries, or the reason why they could not be searched."""
        return f"not searched: {self.error}" if self.error else " | ".join(self.queries)

    @property
    def ids(self) -> list[str]:
        """The passages' ids."""
        return [hit.passage.id for hit in self]

    @property
    def scores(self) -> Scores:
        """The passages' scores, float32."""
        return np.array([hit.score for hit in self], dtype=np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return the queries and the passages with their ranks as JSON values."""
        return {"queries": list(self.queries), "passages": [{"rank": rank, **hit.to_dict()} for rank, hit in enumerate(self, 1)]}

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with the columns query, rank, score, id, title and text; raises ``MissingExtraError`` without pandas."""
        return Rankings([self]).to_pandas().drop(columns="query_id")


class StageReport(NamedTuple):
    """One stage of a search, over all its queries: its name, numbers of candidates before and after it (none before a retriever), seconds.

    Retrievers of the same search run at the same time.
    """

    stage: str
    candidates_in: int
    candidates_out: int
    seconds: float


class Rankings(list[Ranking]):
    """One ranking for each query or group of queries of a search, in their order; shown as tables in notebooks.

    >>> rankings = searcher.search(["river of Egypt", "metal that is liquid at room temperature"])
    >>> rankings.to_pandas().groupby("query_id").head(1)

    Attributes:
        stages: with the search option ``explain``, the reports of the search's stages.
    """

    __slots__ = ("stages",)

    def __init__(self, rankings: Iterable[Ranking] = (), stages: Iterable[StageReport] = ()) -> None:
        super().__init__(rankings)
        self.stages = tuple(stages)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Ranking: ...
    @overload
    def __getitem__(self, index: slice) -> Rankings: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Ranking | Rankings:
        """Return one ranking, or the rankings of several queries."""
        return Rankings(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self)) or "no rankings"

    def _repr_html_(self) -> str:
        return "".join(ranking._repr_html_() for ranking in self)

    @property
    def errors(self) -> dict[int, str]:
        """The reasons why queries or groups could not be searched, by position; their rankings are empty."""
        return {position: ranking.error for position, ranking in enumerate(self) if ranking.error}

    @property
    def ids(self) -> NDArray[np.object_]:
        """The passages' ids, shape (n, k) for the longest ranking's k; padded with None."""
        return _pad([ranking.ids for ranking in self], None, object)

    @property
    def scores(self) -> Scores:
        """The passages' scores, float32, shape (n, k) for the longest ranking's k; padded with NaN."""
        return _pad([ranking.scores for ranking in self], np.nan, np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return all rankings as JSON values; see ``Ranking.to_dict``."""
        return {"rankings": [ranking.to_dict() for ranking in self]}

    def to_pandas(self, query_ids: Sequence[str] | None = None) -> pd.DataFrame:
        """Return a data frame with the columns query_id, query, rank, score, id, title and text.

        Args:
            query_ids: an id for each ranking; default: their positions, from "0".

        Raises:
            MissingExtraError: pandas is not installed.
            ArgumentError: the number of ids differs from the number of rankings.
        """
        require_packages("a data frame", "pandas", "pandas")
        import pandas as pd

        records = [
            (name, " | ".join(ranking.queries), rank, hit.score, hit.id, hit.title, hit.text)
            for name, ranking in zip(self._ids(query_ids), self, strict=True)
            for rank, hit in enumerate(ranking, 1)
        ]
        return pd.DataFrame.from_records(records, columns=list(_COLUMNS))

    def to_trec(self, query_ids: Sequence[str] | None = None, tag: str = "idx") -> str:
        """Return the lines of a TREC run: query id, ``Q0``, passage id, rank, score and tag.

        Args:
            query_ids: an id for each ranking; default: their positions, from "0".
            tag: the run's name.

        Raises:
            InputError: an id or the tag is empty, begins or ends with a blank, or has a tab or a line break. Tabs separate the columns
                if one has blanks.
            ArgumentError: the number of query ids differs from the number of rankings, or two query ids are equal.
        """
        ids = self._ids(query_ids)
        if len(set(ids)) < len(ids):
            raise ArgumentError("two rankings have the same query id")
        run = {name: {hit.id: hit.score for hit in ranking} for name, ranking in zip(ids, self, strict=True)}
        return "".join(trec_lines(run, tag))

    def _ids(self, query_ids: Sequence[str] | None) -> Sequence[str]:
        ids = [str(number) for number in range(len(self))] if query_ids is None else [*map(str, query_ids)]
        if len(ids) != len(self):
            raise ArgumentError(f"there are {len(ids):,} query ids for {len(self):,} rankings")
        return ids


def _pad(columns: Sequence[Sequence[str] | Scores], filler: float | None, kind: type) -> NDArray[Any]:
    """Return columns of different lengths as the rows of an array."""
    padded: NDArray[Any] = np.full((len(columns), max(map(len, columns), default=0)), filler, kind)
    for row, column in zip(padded, columns, strict=True):
        row[: len(column)] = column
    return padded


class UnsearchedRows(NamedTuple):
    """Rows of the index ``name`` that were not searched: from ``first_row`` to before ``stop_row``."""

    name: str
    first_row: int
    stop_row: int


class PartialAnswer(NamedTuple):
    """Rankings, and the rows that were not searched: an empty list if the search was complete."""

    rankings: Rankings
    unsearched_rows: list[UnsearchedRows]


class Searcher(Protocol):
    """A corpus open for searching, which answers queries with ranked passages."""

    def search(
        self, queries: Queries, options: SearchOptions = DEFAULTS, *, rows: RowFilter = None, **values: Unpack[SearchOptionValues]
    ) -> Rankings:
        """Return one ranking for each query; a ranking is empty if nothing matches, or if the query is one of the ``errors``.

        >>> searcher.search(["river of Egypt", "metal that is liquid at room temperature"], k=5)

        Args:
            queries: the queries, each searched separately; ``search_groups`` merges several queries into one ranking. An index of vectors
                without an encoder (``none``) is searched by vectors: arrays or lists of numbers.
            options: the search options.
            rows: the rows that may be returned: their numbers, or whether each row of the corpus may be, bool (len(searcher),), or a
                ``Scope``; None: all.
            values: single options, which override those of ``options``.

        Raises:
            ArgumentError: ``queries`` is no list, no query can be searched, ``rows`` are none of the corpus, or ``merge`` is given,
                although nothing is merged.
            ValueError, IdxError: see ``search_groups``.
        """
        if isinstance(queries, str):
            raise ArgumentError("queries is one string: give a list of queries")
        check_iterable(queries, "queries", "list(queries.values())", "frame['query'].tolist()", "file.read().splitlines()")
        if "merge" in values:
            raise ArgumentError("search ranks each query by itself, merge is for search_groups([[query, ...], ...]): a ranking a group")
        given = {} if rows is None else {"rows": rows}
        rankings = self.search_groups([[to_query(query)] for query in queries], override(options, values), **given)
        return rankings if isinstance(rankings, Rankings) else Rankings(rankings)

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        """Return one ranking for each group of queries. Searchers of a corpus take ``rows``, too; see ``search``."""
        ...


class OpenedSearcher(Reopened, OpenDocuments, Searcher):
    """A searcher that is closed at the end of a ``with`` block, and gives passages by their ids."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __bool__(self) -> bool:
        return True  # otherwise one without passages would be false, and a remote one would request its length

    def passage(self, id: str) -> Passage:
        """Return the passage with this id; raises as ``passages`` does."""
        return self.passages([id])[0]

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """Return the passages with these ids, in the order of ``ids``.

        Raises:
            UnknownNameError: no passage has one of the ids.
            ArgumentError: the ids are not a list of strings.
            ClosedError: a local searcher is closed.
            ServiceError, IdxError: see ``search_groups``.
        """
        given: object = ids
        if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
            raise ArgumentError(f"ids of passages are texts, in a list: {ids!r:.80}")
        corpus, found = self._find(ids)
        if unknown := [name for name in ids if name not in found]:
            raise UnknownNameError(f"no passage of '{corpus}' has the id {unknown[0]!r:.80}")
        return [found[name] for name in ids]

    @abstractmethod
    def _find(self, ids: Sequence[str]) -> tuple[str, dict[str, Passage]]:
        """Return the corpus's name, and its passages with these ids, by id; unknown ids are left out."""

    @abstractmethod
    def close(self) -> None:
        """Release what the searcher holds."""
