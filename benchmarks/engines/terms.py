"""Passages as the terms of this project's analysis, for peers with analysers of their own: all engines index the same terms.

Terms come as a stream of strings with spaces between them, in the order of the rows, so that no second copy of the corpus is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from benchmarks.engines.kinds import contents
from benchmarks.processes import NAME
from wikidx.corpora.build import open_store
from wikidx.indexer.analysis import TermTable
from wikidx.indexer.analysis.english import TermNumbers

_BATCH = 4096
_CODED = "0x"  # starts the coded form of a term


def passage_texts() -> Iterator[str]:
    """Yield the indexed text of every passage."""
    yield from map(contents, open_store(NAME).read())


def analysed(code: Callable[[str], str] = str) -> Iterator[str]:
    """Yield every passage's terms, each coded, with spaces between them."""
    numbering, words = TermNumbers(), list[str]()
    texts = passage_texts()
    while batch := list(islice(texts, _BATCH)):
        numbers, ends = numbering.add(batch)
        words += _new_terms(numbering, len(words), code)
        coded, begin = [words[number] for number in numbers.tolist()], 0
        for end in ends.tolist():
            yield " ".join(coded[begin:end])
            begin = end


def _new_terms(numbering: TermNumbers, first: int, code: Callable[[str], str]) -> list[str]:
    """Return the coded terms from a number on."""
    pool, ends = numbering.table()
    begin = int(ends[first - 1]) if first else 0
    return [code(term) for term in TermTable(pool[begin:], ends[first:] - begin).terms()]


def letters_and_digits(term: str) -> str:
    """Return a term as ASCII letters and digits, which every tokenizer takes as one word; different terms stay different."""
    is_plain = term.isascii() and term.isalnum() and not term.startswith(_CODED)
    return term if is_plain else _CODED + term.encode("utf-8", "surrogatepass").hex()
