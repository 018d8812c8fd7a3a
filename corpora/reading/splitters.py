"""Split documents into passages by named rules.

A document's passages have ids ``<document id>#<n>``, with n from 0, and spans: ``document.text[start:end]`` is the passage's text or, by
the rules ``words``, ``dpr`` and ``sections``, has its words in their order. Words are defined by ``str.split()``.

The code that split the DPR Wikipedia was never released (DPR issues 111, 138, 222). ``dpr`` reproduces the known properties of that split,
not its exact passages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import NamedTuple

from wikidx.base.errors import InputError
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import LocatedPassage, Passage, Span

from .document import Document, Heading, LocatedDocument
from .sentences import sentence_spans

NO_SPLIT = "none"

_WORD = re.compile(r"\S+")
_MARKS = re.compile(r"[\W_]+")
_MARKED_HEADING = re.compile(r"(={2,6})(?P<heading>[^=]+)\1")
_MAX_HEADING_WORDS = 8
_N_WORDS = 100
_MOST_DIGITS = 10


class Tokenizer(NamedTuple):
    """An encoder's name, and a function that returns the start and end of each of its tokens in a text, ascending."""

    encoder: str
    offsets: Callable[[str], Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Split:
    """A splitting rule with its numbers.

    Attributes:
        rule: a key of ``SPLITTERS``, or "none".
        size: number of words, sentences or tokens of a passage; 0 for a rule that does not count.
        overlap: number of tokens that a passage shares with the one before it.
        tokenizer: what counts tokens; None: nothing does.
    """

    rule: str
    size: int = 0
    overlap: int = 0
    tokenizer: Tokenizer | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str, tokenizer: Tokenizer | None = None) -> Split:
        """Return the rule that a text such as "words:100" or "tokens:256:32" names.

        Raises:
            UnknownNameError: there is no such rule.
            InputError: a number is missing or wrong, or is one too many.
        """
        rule, *numbers = text.split(":")
        if rule not in (NO_SPLIT, *SPLITTERS):
            raise unknown_name_error("splitting rule", rule, (NO_SPLIT, *SPLITTERS))
        example = SPLITTERS[rule].example if rule in SPLITTERS else NO_SPLIT
        needs_number, most = example.startswith(("sentences:", "tokens:")), example.count(":")
        if not needs_number <= len(numbers) <= most or not all(number.isdecimal() and len(number) < _MOST_DIGITS for number in numbers):
            raise InputError(f"the splitting rule is '{text:.60}': write it as '{example}'")
        size, overlap = ([*map(int, numbers), 0] if numbers else [_N_WORDS if most else 0, 0])[:2]
        if most and size <= overlap:
            raise InputError(f"the splitting rule is '{text:.60}': a passage needs one of the {rule} of its own, as in '{example}'")
        return cls(rule, size, overlap, tokenizer)

    def __str__(self) -> str:
        if self.rule in _OF_WORDS and self.size == _N_WORDS:
            return self.rule
        return ":".join(map(str, filter(None, (self.rule, self.size, self.overlap))))

    @property
    def parameters(self) -> dict[str, str | int]:
        """The rule as the manifest of a store records it. Rules that count words have always had their number apart."""
        if self.rule in _OF_WORDS:
            return {"split": self.rule, "words": self.size}
        counted_by = {"tokenizer": self.tokenizer.encoder} if self.rule == "tokens" and self.tokenizer else {}
        return {"split": str(self), **counted_by}


class Part(NamedTuple):
    """A part of a document that becomes a passage: its span, its text, and the heading at the end of its title."""

    span: Span
    text: str
    heading: str = ""


Splitter = Callable[[Document, Split], Iterator[Part]]


def split_words(document: Document, by: Split) -> Iterator[Part]:
    """Yield consecutive blocks of words; the last block may be shorter."""
    for block in re.finditer(rf"(?:\S++\s++){{0,{by.size - 1}}}\S+", document.text):
        yield Part(document.span(block.start(), block.end()), " ".join(block[0].split()))


def split_dpr(document: Document, by: Split) -> Iterator[Part]:
    """Yield blocks of exactly as many words; the last block is padded from the beginning of the document, which its span leaves out.

    Every row of psgs_w100 has 100 words (Pyserini, docs/experiments-wiki-corpora.md). A document shorter than one block stays unpadded,
    because repeated text would only inflate its term counts.
    """
    first: list[str] = []
    for part in split_words(document, by):
        words = part.text.split(" ")
        yield part._replace(text=" ".join(words + first[: by.size - len(words)]))
        first = first or words


def split_sections(document: Document, by: Split) -> Iterator[Part]:
    """Split each section separately into passages of nearly equal length, at most as many words.

    A passage's title is ``"<title>: <heading>"``, as in Atlas (atlas, src/index_io.py). A heading is a line
    ``== Heading ==`` or, in WikiExtractor's output, a short line that ends in a full stop.
    """
    for heading, start, end in _sections(document.text):
        words = [match.span() for match in _WORD.finditer(document.text, start, end)]
        n_parts = -(-len(words) // by.size)
        for part in range(n_parts):
            within = words[part * len(words) // n_parts : (part + 1) * len(words) // n_parts]
            span = document.span(within[0][0], within[-1][1])
            text = " ".join(document.text[span.start : span.end].split())
            yield Part(span if document.headings else span._replace(heading=heading), text, heading)


def _sections(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (heading, start and end of the body) in order; the heading of the lead is ''.

    The first line belongs to the lead and is never a heading. A heading without a body (before another heading, or at the end of the text)
    stays in the body of the preceding section, so that no text is lost.
    """
    lines, at = list[tuple[str, int, int]](), 0
    for line in text.splitlines(keepends=True):
        if not line.isspace():
            lines.append((line.strip(), at, at + len(line)))
        at += len(line)
    heading, start, end = "", 0, lines[0][2] if lines else 0
    for (line, line_start, line_end), (next_line, _, _) in pairwise([*lines[1:], ("", 0, 0)]):
        next_heading = _heading(line)
        if next_heading is not None and next_line and _heading(next_line) is None:
            yield heading, start, line_start
            heading, start = next_heading, line_end
        end = line_end
    yield heading, start, end


def _heading(line: str) -> str | None:
    """Return the heading in a stripped line; None for body text."""
    marked = _MARKED_HEADING.fullmatch(line)
    if marked and marked["heading"].strip():
        return marked["heading"].strip()
    stripped = line.removesuffix(".")
    is_plain = stripped != line and line[0].isupper() and not any(mark in stripped for mark in ".!?:;")
    return stripped if is_plain and len(stripped.split()) <= _MAX_HEADING_WORDS else None


def split_sentences(document: Document, by: Split) -> Iterator[Part]:
    """Yield as many consecutive sentences as a passage has; a line break ends none, a blank line does (see ``sentences``)."""
    return _cut(document, [start for start, _ in sentence_spans(document.text, at_lines=False)[:: by.size]])


def split_tokens(document: Document, by: Split) -> Iterator[Part]:
    """Yield passages of at most as many tokens. They end and begin at a word, unless the second half of a passage is one word.

    Raises:
        InputError: there is no tokenizer.
    """
    if by.tokenizer is None:
        raise InputError(f"'{by}' counts the tokens of an encoder: name it with --encoder NAME (in Python, as the retriever)")
    text, tokens = document.text, by.tokenizer.offsets(document.text)
    starts = [start for start, _ in tokens]
    ends = [0, *(end for _, end in tokens)]
    begins_word = [start > end or any(map(str.isspace, text[start - 1 : start + 1])) for start, end in zip(starts, ends, strict=False)]
    first = stop = 0
    while first < len(starts):
        stop = _word_start(begins_word, first + by.size, max(stop, first + by.overlap, first + by.size // 2))
        yield from _part(document, starts[first], starts[stop] if stop < len(starts) else len(text))
        first = stop if stop == len(starts) else _word_start(begins_word, stop - by.overlap, first)


def _word_start(begins_word: Sequence[bool], token: int, above: int) -> int:
    """Return the last token up to ``token`` that begins a word, if it is beyond ``above``, else ``token``; or the end."""
    if token >= len(begins_word):
        return len(begins_word)
    return next((number for number in range(token, above, -1) if begins_word[number]), token)


def split_headings(document: Document, by: Split) -> Iterator[Part]:
    """Yield the text from each heading to the next; a heading without a text of its own is joined to the one that follows."""
    starts, last_headings = [0], [0]
    above: Heading | None = None
    for heading in document.headings:
        if above is not None and _letters(document.text[above.start : heading.start]) == _letters(above.text):
            last_headings[-1] = heading.start
        else:
            starts.append(heading.start)
            last_headings.append(heading.start)
        above = heading
    return _cut(document, starts, last_headings)


def _letters(text: str) -> str:
    return _MARKS.sub("", text)


def split_pages(document: Document, by: Split) -> Iterator[Part]:
    """Yield the text of each page; that of a document without pages is whole."""
    return _cut(document, [0, *document.pages[1:]])


def _cut(document: Document, starts: Sequence[int], headings_at: Sequence[int] = ()) -> Iterator[Part]:
    """Yield the text from each of ``starts`` to the next, without the white space around it; see ``Document.span``."""
    for (start, end), heading_at in zip(pairwise([*starts, len(document.text)]), headings_at or repeat(None), strict=False):
        yield from _part(document, start, end, heading_at)


def _part(document: Document, start: int, end: int, heading_at: int | None = None) -> Iterator[Part]:
    piece = document.text[start:end]
    if text := piece.strip():
        start += len(piece) - len(piece.lstrip())
        yield Part(document.span(start, start + len(text), heading_at), text)


class Rule(NamedTuple):
    """A splitting rule: its function, and how it is written; rules of words may leave the number out."""

    split: Splitter
    example: str


SPLITTERS = {
    "words": Rule(split_words, "words:100"),
    "sentences": Rule(split_sentences, "sentences:5"),
    "tokens": Rule(split_tokens, "tokens:256:32"),
    "headings": Rule(split_headings, "headings"),
    "pages": Rule(split_pages, "pages"),
    "dpr": Rule(split_dpr, "dpr:100"),
    "sections": Rule(split_sections, "sections:100"),
}
_OF_WORDS = ("words", "dpr", "sections")


def split(documents: Iterable[LocatedDocument], by: Split) -> Iterator[LocatedPassage]:
    """Yield the passages of documents by a rule other than "none"."""
    for document, file, line in documents:
        for n, part in enumerate(SPLITTERS[by.rule].split(document, by)):
            title = f"{document.title}: {part.heading}" if part.heading else document.title
            yield LocatedPassage(Passage(f"{document.id}#{n}", title, part.text), file, line, part.span)
