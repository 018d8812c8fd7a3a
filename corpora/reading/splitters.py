"""Article -> passages of a fixed number of words: the named rules, as pure functions.

Words are those of ``str.split()``. Passages of an article get ids ``<article id>#<n>`` with n from 0. The original splitting code of
the DPR Wikipedia was never released (DPR issues 111, 138, 222), so ``dpr`` reproduces its known outcome, not its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from wikidx.corpora.passage import Passage

Splitter = Callable[[Passage, int], Iterator[Passage]]

_MARKED_HEADING = re.compile(r"(={2,6})(?P<heading>[^=]+)\1")
_MAX_HEADING_WORDS = 8


def split_words(article: Passage, n_words: int = 100) -> Iterator[Passage]:
    """Yield consecutive blocks of ``n_words`` words; the last one has the remaining words."""
    words = article.text.split()
    for n, start in enumerate(range(0, len(words), n_words)):
        yield Passage(f"{article.id}#{n}", article.title, " ".join(words[start : start + n_words]))


def split_dpr(article: Passage, n_words: int = 100) -> Iterator[Passage]:
    """Yield blocks of exactly ``n_words`` words, the last one filled up from the beginning of the same article.

    Therefore every row of psgs_w100 has 100 words (Pyserini, docs/experiments-wiki-corpora.md). An article shorter than one block is
    yielded unchanged: repeating a stub would only inflate its term counts.
    """
    words = article.text.split()
    if len(words) < n_words:
        yield from split_words(article, n_words)
        return
    for n, start in enumerate(range(0, len(words), n_words)):
        block = words[start : start + n_words]
        block += words[: n_words - len(block)]
        yield Passage(f"{article.id}#{n}", article.title, " ".join(block))


def split_sections(article: Passage, n_words: int = 100) -> Iterator[Passage]:
    """Yield passages that never cross a section, each section cut into parts of nearly equal length, at most ``n_words`` words.

    A section's passages carry the title ``"<title>: <heading>"``, Atlas's rule (atlas, src/index_io.py). Headings are lines
    ``== Heading ==`` or, as WikiExtractor writes them, a short line of its own that ends in a full stop.
    """
    n = 0
    for heading, text in _sections(article.text):
        title = f"{article.title}: {heading}" if heading else article.title
        for part in _equal_parts(text.split(), n_words):
            yield Passage(f"{article.id}#{n}", title, " ".join(part))
            n += 1


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield (heading, body) in order; the lead has the heading ''.

    The first line starts the lead and is never a heading. An apparent heading without a body of its own (a nested heading, a last
    short sentence) stays in the section before it, so that no text is lost.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heading, body = "", lines[:1]
    for line, following in pairwise([*lines[1:], ""]):
        found = _heading(line)
        if found is not None and following and _heading(following) is None:
            yield heading, "\n".join(body)
            heading, body = found, []
        else:
            body.append(line)
    yield heading, "\n".join(body)


def _heading(line: str) -> str | None:
    """Return the heading in a stripped line, or None if it is body text."""
    marked = _MARKED_HEADING.fullmatch(line)
    if marked and marked["heading"].strip():
        return marked["heading"].strip()
    bare = line.removesuffix(".")
    is_plain = bare != line and line[0].isupper() and not any(mark in bare for mark in ".!?:;")
    return bare if is_plain and len(bare.split()) <= _MAX_HEADING_WORDS else None


def _equal_parts(words: list[str], n_words: int) -> Iterator[list[str]]:
    n_parts = -(-len(words) // n_words)
    for part in range(n_parts):
        yield words[part * len(words) // n_parts : (part + 1) * len(words) // n_parts]


SPLITTERS: dict[str, Splitter] = {"words": split_words, "dpr": split_dpr, "sections": split_sections}
