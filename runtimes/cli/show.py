"""``idx show``: a passage of a corpus, with those around it in its document, or a document.

Examples:
    idx show sample element-1#0
    idx show manuals guide#4 --before 1 --after 2
    idx show manuals guide --page 3 --json
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .option_groups import command
from .screen import Result, print_passage

if TYPE_CHECKING:
    from wikidx.corpora.passage import Span
    from wikidx.retrievers.documents import Excerpt


@command()
def show(
    corpus: Annotated[str, completion.corpus_argument("A built corpus.")],
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of a passage, or of a document of a corpus that was split.")],
    before: Annotated[int, typer.Option(min=0, help="Show so many passages before the passage.")] = 0,
    after: Annotated[int, typer.Option(min=0, help="Show so many passages after the passage.")] = 0,
    page: Annotated[int | None, typer.Option(min=1, help="Of a document, show only this page.")] = None,
) -> Result:
    """Show a passage and those around it, or a document."""
    from wikidx.corpora.build import open_store
    from wikidx.corpora.resolving import require_built
    from wikidx.retrievers.documents import Excerpt, Window, read_excerpt

    require_built(corpus)
    store = open_store(corpus)
    (row,) = store.rows_of([name]).tolist()
    if row >= 0 and not store.has_spans and not before + after and page is None:
        found = Excerpt(store.get_many([row]), [None], name, 0, 1)
    elif row >= 0 and page is None:
        found = read_excerpt(store, Window(passage=name, before=before, after=after))
    else:
        found = read_excerpt(store, Window(name, page=page, count=None if page is None else 1))
    return Result({"corpus": corpus, **found.to_dict(), "text": found.text}, _lines(found))


def _lines(found: Excerpt) -> Iterator[Callable[[], None]]:
    for passage, span in zip(found, found.spans, strict=True):
        yield partial(print_passage, f"{passage.title}  [{passage.id}]{describe_place(span)}", passage.text, is_full=True)


def describe_place(span: Span | None) -> str:
    """Return page and headings of a passage's place, for the end of its heading; empty without them."""
    parts = [] if span is None else [f"page {span.page}" if span.page else "", span.heading]
    return "".join(f"  {part}" for part in parts if part)
