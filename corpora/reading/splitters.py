"""Split articles into passages of at most a given number of words, by named rules.

Words are defined by ``str.split()``. An article's passages have ids ``<article id>#<n>``, with n from 0. The code that split the DPR
Wikipedia was never released (DPR issues 111, 138, 222). ``dpr`` reproduces the known properties of that split, not its exact passages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import LocatedPassage, Passage

Splitter = Callable[[Passage, int], Iterator[Passage]]

_MARKED_HEADING = re.compile(r"(={2,6})(?P<heading>[^=]+)\1")
_MAX_HEADING_WORDS = 8


def split_words(article: Passage, n_words: int = 100) -> Iterator[Passage]:
    """Yield consecutive blocks of ``n_words`` words; the last block may be shorter."""
    return _blocks(article, article.text.split(), n_words)


def split_dpr(article: Passage, n_words: int = 100) -> Iterator[Passage]:
    """Yield blocks of exactly ``n_words`` words; the last block is padded from the beginning of the article.

    Every row of psgs_w100 has 100 words (Pyserini, docs/experiments-wiki-corpora.md). An article shorter than one block stays unpadded,
    because repeated text would only inflate its term counts.
    """
    words = article.text.split()
    padding = words[: -len(words) % n_words] if len(words) >= n_words else []
    return _blocks(article, words + padding, n_words)


def _blocks(article: Passage, words: list[str], n_words: int) -> Iterator[Passage]:
    for n, start in enumerate(range(0, len(words), n_words)):
        yield Passage(f"{article.id}#{n}", article.title, " ".join(words[start : start + n_words]))


def split_sections(article: Passage, n_words: int = 100) -> Iterator[Passage]:
    """Split each section separately into passages of nearly equal length, at most ``n_words`` words.

    A passage's title is ``"<title>: <heading>"``, as in Atlas (atlas, src/index_io.py). A heading is a line
    ``== Heading ==`` or, in WikiExtractor's output, a short line that ends in a full stop.
    """
    n = 0
    for heading, text in _sections(article.text):
        title = f"{article.title}: {heading}" if heading else article.title
        for part in _equal_parts(text.split(), n_words):
            yield Passage(f"{article.id}#{n}", title, " ".join(part))
            n += 1


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield (heading, body) in order; the heading of the lead is ''.

    The first line belongs to the lead and is never a heading. A heading without a body (before another heading, or at the end of the text)
    stays in the body of the preceding section, so that no text is lost.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heading, body = "", lines[:1]
    for line, next_line in pairwise([*lines[1:], ""]):
        next_heading = _heading(line)
        if next_heading is not None and next_line and _heading(next_line) is None:
            yield heading, "\n".join(body)
            heading, body = next_heading, []
        else:
            body.append(line)
    yield heading, "\n".join(body)


def _heading(line: str) -> str | None:
    """Return the heading in a stripped line; None for body text."""
    marked = _MARKED_HEADING.fullmatch(line)
    if marked and marked["heading"].strip():
        return marked["heading"].strip()
    stripped = line.removesuffix(".")
    is_plain = stripped != line and line[0].isupper() and not any(mark in stripped for mark in ".!?:;")
    return stripped if is_plain and len(stripped.split()) <= _MAX_HEADING_WORDS else None


def _equal_parts(words: list[str], n_words: int) -> Iterator[list[str]]:
    n_parts = -(-len(words) // n_words)
    for part in range(n_parts):
        yield words[part * len(words) // n_parts : (part + 1) * len(words) // n_parts]


SPLITTERS: dict[str, Splitter] = {"words": split_words, "dpr": split_dpr, "sections": split_sections}
NO_SPLIT = "none"


def check_rule(rule: str | None) -> None:
    """Raise ``UnknownNameError`` unless a rule is a key of ``SPLITTERS``, or "none" or None, which split nothing."""
    if rule not in (None, NO_SPLIT, *SPLITTERS):
        raise unknown_name_error("splitting rule", str(rule), (NO_SPLIT, *SPLITTERS))


def split(articles: Iterable[LocatedPassage], rule: str | None, n_words: int = 100) -> Iterator[LocatedPassage]:
    """Yield the passages of articles by a rule; see ``check_rule``."""
    if rule is None or rule == NO_SPLIT:
        yield from articles
        return
    for article in articles:
        for passage in SPLITTERS[rule](article.passage, n_words):
            yield LocatedPassage(passage, article.file, article.line)
