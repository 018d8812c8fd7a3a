"""Retrieval as the paper's section 4.3 has it: short queries, and a corpus without the question itself."""

from __future__ import annotations

from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.base import passages_of
from wikidx.runtimes.methods.requests import Run, note, retrieve, truncate
from wikidx.runtimes.methods.sentences import words

from .options import RaIsfOptions


def search(question: str, asked: str, options: RaIsfOptions) -> Run[tuple[Passage, ...]]:
    """Return the passages that a question finds, at most ``options.k``.

    Passages that contain ``asked``, the question of the dataset, are left out: the next ones take their places, up to twice as far down.
    """
    query = question
    if options.max_query_tokens:
        query = yield from truncate(question, options.max_query_tokens, keep="end")
    found = passages_of((yield from retrieve(query, options.k)))
    if not options.remove_question or not any(_contains(passage, asked) for passage in found):
        return found
    if len(found) == options.k:
        found = passages_of((yield from retrieve(query, 2 * options.k)))
    yield from note("contain the question: left out", {"ids": [passage.id for passage in found if _contains(passage, asked)]})
    return tuple(passage for passage in found if not _contains(passage, asked))[: options.k]


def _contains(passage: Passage, question: str) -> bool:
    return f" {words(question)} " in f" {words(f'{passage.title} {passage.text}')} "
