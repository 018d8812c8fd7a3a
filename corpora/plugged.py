"""Corpora and readers by the user's own code: plug-ins, whose passages and records are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.home import check_new_name
from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, running

from .corpus import Corpus
from .passage import LocatedPassage, OnBad, Span

_PASSAGE = "LocatedPassage(Passage(id, title, text), file, line), of three strings, a string and a number"
_END = object()


def plugged_corpus(plugged: PlugIn) -> Corpus:
    """Return the corpus of a plug-in, whose checksum becomes part of ``Corpus.reading``.

    Raises:
        InputError: the plug-in is no ``Corpus``, or its name is reserved.
    """
    name, corpus = check_new_name(plugged.name), plugged.instance_of(Corpus, "a corpus is a wikidx.Corpus")

    def read(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        place = ", ".join(map(str, files)) or corpus.name
        return checked(plugged, lambda: corpus.read(files, on_bad), place, (_is_passage, _PASSAGE))

    return replace(corpus, name=name, read=read, reading={**corpus.reading, "corpus_sha256": plugged.sha256})


def checked(plugged: PlugIn, run: Callable[[], Iterable[Any]], place: str, expected: tuple[Callable[[object], bool], str]) -> Iterator[Any]:
    """Yield what a plug-in's function yields.

    Args:
        plugged: the plug-in.
        run: the function.
        place: what it reads, for messages.
        expected: function that returns whether an item is right, and how to make one that is.

    Raises:
        InputError: the function fails, or yields something else.
    """
    is_right, advice = expected
    items: Iterator[Any] | None = None
    for number in count(1):
        with running(plugged, f"at record {number} of {place}"):
            items = iter(run()) if items is None else items
            item = next(items, _END)
        if item is _END:
            return
        if not is_right(item):
            raise InputError(
                f"{plugged.reference} yields {' '.join(f'{item!r:.100}'.split())} as record {number} of {place}: yield {advice}"
            )
        yield item


def _is_passage(item: object) -> bool:
    if not isinstance(item, LocatedPassage) or not isinstance(item.span, Span | None):
        return False
    if item.span is not None and not all(map(isinstance, item.span, (str, int, int, int, str))):
        return False
    return all(isinstance(value, str) for value in (*item.passage, item.file))
