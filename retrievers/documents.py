"""Documents of a corpus that was split from documents: their passages, or some that follow one another."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from wikidx.base.errors import ArgumentError, InputError, UnknownNameError
from wikidx.corpora.passage import Passage, Span
from wikidx.corpora.store import PassageStore


class Found(Protocol):
    """A passage, or a result of a search, which has a passage's id."""

    @property
    def id(self) -> str:
        """The passage's id."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a document: the passages around one of them, or a number of passages or pages.

    Attributes:
        document: id of the document; None: ``passage`` is given.
        passage: id of the passage.
        before, after: numbers of passages before and after it.
        first: position of the first passage in the document, from 0.
        count: number of passages or, if ``page`` is given, of pages; None: all that follow.
        page: the first page, from 1; a passage belongs to the page on which it begins.
    """

    document: str | None = None
    passage: str | None = None
    before: int = 0
    after: int = 0
    first: int = 0
    count: int | None = None
    page: int | None = None

    def to_dict(self) -> dict[str, str | int]:
        """Return what is not the default."""
        return {name: value for name, value in asdict(self).items() if value}


class Excerpt(list[Passage]):
    """Passages of a document that follow one another, in its order.

    Attributes:
        document: id of the document.
        first: position of the first passage in the document, from 0.
        n_passages: number of passages of the whole document.
        spans: the passages' places in the document.
    """

    __slots__ = ("document", "first", "n_passages", "spans")

    def __init__(self, passages: Iterable[Passage], spans: Iterable[Span | None], document: str, first: int, n_passages: int) -> None:
        super().__init__(passages)
        self.spans, self.document, self.first, self.n_passages = list(spans), document, first, n_passages

    @property
    def text(self) -> str:
        """The text of the passages, each character once. White space between them is that of the document only in its length.

        If the passages' own white space is not that of the document, they are joined by a space.
        """
        spans = [span for span in self.spans if span is not None]
        if len(spans) != len(self) or any(len(passage.text) != span.end - span.start for passage, span in zip(self, spans, strict=True)):
            return " ".join(passage.text for passage in self)
        text, end = "", spans[0].start if spans else 0
        for passage, span in zip(self, spans, strict=True):
            n_between = span.start - end
            text += " " if n_between == 1 else "\n" * n_between
            text += passage.text[max(0, -n_between) :]
            end = max(end, span.end)
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return all as JSON values."""
        passages = [{**passage._asdict(), "span": span and span._asdict()} for passage, span in zip(self, self.spans, strict=True)]
        return {"document": self.document, "first": self.first, "n_passages": self.n_passages, "passages": passages}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Excerpt:
        """Return the excerpt from the values of ``to_dict``; raises ``KeyError``, ``TypeError`` for others."""
        passages = values["passages"]
        spans = [span_from_json(passage["span"]) for passage in passages]
        texts = (Passage(passage["id"], passage["title"], passage["text"]) for passage in passages)
        return cls(texts, spans, values["document"], values["first"], values["n_passages"])


def span_from_json(values: Mapping[str, Any] | None) -> Span | None:
    """Return a span from its JSON; raises ``TypeError`` for other fields."""
    return None if values is None else Span(**values)


def place_of(span: Span | None) -> dict[str, Any]:
    """Return the fields of a span; none without a span."""
    return {} if span is None else span._asdict()


def read_excerpt(store: PassageStore, window: Window, most: int | None = None) -> Excerpt:
    """Return a part of a document; of more than ``most`` passages from a position or a page on, only the first.

    Raises:
        UnknownNameError: there is no such document or passage.
        InputError: the passages do not know their documents, or there are more than ``most`` around a passage.
        ArtifactCorrupt: the store is corrupt.
    """
    name = store.folder.parent.name
    if window.passage is not None:
        (row,) = store.rows_of([window.passage]).tolist()
        if row < 0:
            raise UnknownNameError(f"no passage of '{name}' has the id {window.passage!r:.80}")
        whole = store.document_rows(row)
        rows = range(max(whole.start, row - window.before), min(whole.stop, row + window.after + 1))
        if most is not None and len(rows) > most:
            raise InputError(f"{len(rows):,} passages around '{window.passage:.80}' are asked for, {most:,} are allowed")
    else:
        found = store.find_document(window.document or "")
        if found is None:
            raise UnknownNameError(f"no document of '{name}' has the id {window.document!r:.80}")
        whole, rows = found, found[window.first :]
        if window.page is not None:
            pages = [span.page if span else 0 for span in store.spans(whole)]
            rows = whole[bisect_left(pages, window.page) :]
            if window.count is not None:
                rows = rows[: max(0, bisect_left(pages, window.page + window.count) - (rows.start - whole.start))]
        elif window.count is not None:
            rows = rows[: window.count]
    rows = rows[:most]
    first_span = store.span(whole.start)
    document = (window.passage or "") if first_span is None else first_span.document
    return Excerpt(store.get_many(rows), store.spans(rows), document, rows.start - whole.start, len(whole))


class OpenDocuments:
    """Mixin of searchers that give parts of documents."""

    def context(self, hit: Found | str, before: int = 1, after: int = 1) -> Excerpt:
        """Return the passages around one of them, in the same document.

        >>> searcher.context(ranking[0], before=1, after=2).text

        Args:
            hit: a result of a search, a passage, or its id.
            before: number of passages before it, or fewer where the document begins.
            after: number of passages after it, or fewer where the document ends.

        Raises:
            UnknownNameError: there is no such passage.
            InputError: the passages do not say which document they are of.
            ArgumentError: a number is negative.
        """
        if min(before, after) < 0:
            raise ArgumentError(f"{before} passages before and {after} after a hit: numbers from 0 on are possible")
        return self._excerpt(Window(passage=hit if isinstance(hit, str) else hit.id, before=before, after=after))

    def document(self, id: str) -> Excerpt:
        """Return all passages of a document, in its order; ``text`` of the result is its text.

        Raises:
            UnknownNameError: there is no such document.
            InputError: the passages do not say which document they are of.
        """
        return self._excerpt(Window(document=id))

    @abstractmethod
    def _excerpt(self, window: Window) -> Excerpt:
        """Return a part of a document."""


def spans_of(store: PassageStore, rows: Sequence[int]) -> Mapping[int, Span | None]:
    """Return the place of each row's passage in its document; none for a store without such places."""
    return dict(zip(rows, store.spans(rows), strict=True)) if store.has_spans else {}
