"""Rankings as text, HTML, data frames and TREC runs; a ranking is a sequence of ``Hit``."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from wikidx.base.errors import InputError, require_packages

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_TEXT = 80  # characters of a passage that ``to_text`` shows
_SHOWN_HTML = 300  # characters of a passage that ``to_html`` shows
_COLUMNS = ("query_id", "query", "rank", "score", "id", "title", "text")


class Hit(Protocol):
    """A passage in a ranking."""

    @property
    def id(self) -> str:
        """The passage's id."""
        ...

    @property
    def title(self) -> str:
        """The passage's title."""
        ...

    @property
    def text(self) -> str:
        """The passage's text."""
        ...

    @property
    def score(self) -> float:
        """The passage's score."""
        ...


def to_text(queries: Sequence[str], hits: Sequence[Hit]) -> str:
    """Return a ranking as lines of text: rank, score, id, title and the beginning of the passage."""
    lines = [" | ".join(queries) or "ranking"]
    for rank, hit in enumerate(hits, 1):
        text = textwrap.shorten(hit.text, _SHOWN_TEXT, placeholder=" …")
        lines.append(f"{rank:>3}  {hit.score:.4f}  [{hit.id}]  {hit.title}{': ' if hit.title else ''}{text}")
    return "\n".join(lines if hits else [*lines, "     no passage found"])


def to_html(rankings: Sequence[tuple[Sequence[str], Sequence[Hit]]]) -> str:
    """Return rankings as HTML tables; each ranking is given with its queries."""
    return "".join(_table(queries, hits) for queries, hits in rankings)


def _table(queries: Sequence[str], hits: Sequence[Hit]) -> str:
    cells = (
        (rank, f"{hit.score:.4f}", hit.id, hit.title, textwrap.shorten(hit.text, _SHOWN_HTML, placeholder=" …"))
        for rank, hit in enumerate(hits, 1)
    )
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in cells)
    caption = html.escape(" | ".join(queries))
    header = "".join(f"<th>{name}</th>" for name in ("rank", "score", "id", "title", "text"))
    return f"<table><caption>{caption}</caption><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"


def to_pandas(rankings: Iterable[tuple[str, Sequence[str], Sequence[Hit]]]) -> pd.DataFrame:
    """Return rankings as a data frame; each is given with its query id and queries. Raises ``MissingExtraError`` without pandas."""
    require_packages("a data frame", "pandas", "pandas")
    import pandas as pd

    records = [
        (name, " | ".join(queries), rank, hit.score, hit.id, hit.title, hit.text)
        for name, queries, hits in rankings
        for rank, hit in enumerate(hits, 1)
    ]
    return pd.DataFrame.from_records(records, columns=list(_COLUMNS))


def trec_lines(run: Mapping[str, Mapping[str, float]], tag: str) -> Iterator[str]:
    """Yield the lines of a TREC run.

    Args:
        run: scores by question id and passage id; the passages of a question are in ranked order.
        tag: the run's name.

    Raises:
        InputError: a question id, a passage id or the tag cannot be written; see ``trec_separator``.
    """
    separator = trec_separator(name for question, scores in run.items() for name in (tag, question, *scores))
    for question, scores in run.items():
        for rank, (passage, score) in enumerate(scores.items(), 1):
            yield separator.join((question, "Q0", passage, str(rank), repr(score), f"{tag}\n"))


def trec_separator(names: Iterable[str]) -> str:
    """Return the separator of columns of a TREC file: a blank, or a tab if a name contains white space.

    Raises:
        InputError: a name is empty, begins or ends with white space, or contains a tab or a line break.
    """
    separator = " "
    for name in names:
        if not re.fullmatch(r"\S([^\t\r\n]*\S)?", name):
            raise InputError(f"{name!r:.80} cannot be written to a TREC file: it is empty, or has blanks at an end, a tab or a line break")
        separator = separator if name.split() == [name] else "\t"
    return separator
