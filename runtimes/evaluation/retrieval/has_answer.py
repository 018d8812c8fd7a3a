"""Answer matching of retrieval metrics: test whether a passage holds an answer, for one passage or for many rankings at once.

string     DPR's (facebookresearch/DPR, dpr/data/qa_validation.py): the answer's tokens are contiguous in the text's; an answer
           without tokens is in every text
regex      DPR's for CuratedTREC: the answer is a pattern, searched in the text ignoring case, both NFD-normalised; so "é" is two
           characters in both; a pattern that cannot be compiled is in no text
kilt       DPR's ``has_answer_kilt``: a substring after DPR's normalisation
flashrag   FlashRAG's retrieval recall and precision: a substring after SQuAD's normalisation

Tokens are those of DPR's SimpleTokenizer (dpr/utils/tokenizers.py): a text is NFD-normalised; runs of letters, digits and marks are tokens,
and every other visible character by itself; each is lower-cased on its own. A token row is a text with a space before and after each
token. No token contains a space, so contiguous tokens of a text are a substring of its row.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import MissingExtraError
from wikidx.corpora.registry import near_names
from wikidx.runtimes.evaluation.normalizing import dpr, squad

try:
    import regex
except ImportError as error:
    raise MissingExtraError("has_answer", "eval") from error

Hits = NDArray[np.bool_]

_SEPARATOR, _WORD, _SYMBOL = 0, 1, 2  # kinds of characters: between tokens, part of a token, or a token
_SPACE = 32
_SIGMA = "\u03a3"  # Σ becomes ς at the end of a token: the only context-dependent lower case
_AT_ONCE = 256  # texts; the arrays of their characters fit the CPU's caches

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")

_FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
_NOT_A_PATTERN = (regex.error, ValueError, OverflowError, RecursionError)


class _Characters(NamedTuple):
    """Kind and lower case of each code point."""

    kinds: NDArray[np.uint8]
    lower: NDArray[np.uint32]


def token_row(text: str) -> str:
    """Return the tokens of a text with a space before and after each; a single space if there are none."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFD", text))
    return " " + "".join(f"{token.lower()} " for token in tokens)


def token_rows(texts: Sequence[str]) -> list[str]:
    """Return ``token_row`` of each text, many times faster."""
    return [row for start in range(0, len(texts), _AT_ONCE) for row in _rows(texts[start : start + _AT_ONCE])]


def _rows(texts: Sequence[str]) -> list[str]:
    decomposed = [unicodedata.normalize("NFD", text) for text in texts]
    points = np.frombuffer("\n".join([*decomposed, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(text) + 1 for text in decomposed]) - 1  # position of the line break after each text
    characters = _characters()
    kinds = characters.kinds.take(points)
    is_word = kinds == _WORD
    begins = kinds == _SYMBOL  # a token, preceded by a space
    begins[0] |= is_word[0]
    begins[1:] |= is_word[1:] & ~is_word[:-1]
    n_written = (kinds != _SEPARATOR).view(np.int8) + begins.view(np.int8)
    n_written[ends] = 1  # the space after the last token
    written = n_written.cumsum(dtype=np.int32)
    shown = np.flatnonzero(kinds)
    row_points = np.full(written[-1], _SPACE, np.uint32)
    row_points[written[shown] - 1] = characters.lower.take(points[shown])
    whole = row_points.tobytes().decode("utf-32-le")  # surrogates are separators, so there are none here
    bounds = [0, *written[ends].tolist()]
    return [
        token_row(text) if _SIGMA in text else whole[begin:end]
        for text, begin, end in zip(decomposed, bounds[:-1], bounds[1:], strict=True)
    ]


@functools.cache
def _characters() -> _Characters:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    kinds = np.full(len(every), _SEPARATOR, np.uint8)
    for found in regex.finditer(r"[\p{L}\p{N}\p{M}]+", every):
        kinds[found.start() : found.end()] = _WORD
    for found in regex.finditer(r"[^\p{L}\p{N}\p{M}\p{Z}\p{C}]+", every):
        kinds[found.start() : found.end()] = _SYMBOL
    dotted = "\u0130"  # İ, which has two characters in lower case and never occurs after NFD
    lower = every.replace(_SIGMA, " ").replace(dotted, " ").lower()
    return _Characters(kinds, np.frombuffer(lower.encode("utf-32-le", "surrogatepass"), np.uint32))


_PREPARE: Mapping[str, Callable[[Sequence[str]], list[str]]] = {
    "string": token_rows,
    "regex": lambda texts: [unicodedata.normalize("NFD", text) for text in texts],
    "kilt": lambda texts: list(map(dpr, texts)),
    "flashrag": lambda texts: list(map(squad, texts)),
}
"""Rule -> normalisation of texts and answers before matching."""

MATCHES = tuple(_PREPARE)


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Return whether the text contains any of the answers, by the rule "string"."""
    row = token_row(text)
    return any(token_row(answer) in row for answer in answers)


def answer_hits(
    rankings: Sequence[Sequence[int]], texts: Sequence[str], answers: Sequence[Sequence[str]], match: str = "string"
) -> list[Hits]:
    """Return which passages of many rankings hold an answer; each text is normalised once.

    Args:
        rankings: for each question, the indices of its passages in ``texts``, best first.
        texts: of the passages, each once.
        answers: for each question, any of which counts; empty: no passage counts.
        match: one of ``MATCHES``.

    Returns:
        For each question, bool of the shape of its ranking.

    Raises:
        UnknownNameError: there is no such rule.
        ValueError: the numbers of rankings and questions differ.
    """
    if match not in _PREPARE:
        raise near_names("rule of matching", match, MATCHES)
    prepared = _PREPARE[match](texts)
    sought = iter(_PREPARE[match]([answer for of_question in answers for answer in of_question]))
    finder = _pattern_finder if match == "regex" else _text_finder
    finders = [finder([next(sought) for _ in of_question]) for of_question in answers]
    return [
        np.fromiter((is_found(prepared[number]) for number in ranking), np.bool_, len(ranking))
        for ranking, is_found in zip(rankings, finders, strict=True)
    ]


def _text_finder(sought: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate: whether a text contains a sought text. Sought texts that contain a shorter one are redundant."""
    shortest = list[str]()
    for text in sorted(set(sought), key=len):
        if not any(other in text for other in shortest):
            shortest.append(text)
    return lambda text: any(one in text for one in shortest)


def _pattern_finder(sought: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate: whether a text matches one of the patterns."""
    patterns = list[Any]()
    for pattern in sought:
        with contextlib.suppress(*_NOT_A_PATTERN):
            patterns.append(regex.compile(pattern, flags=_FLAGS))
    return lambda text: any(pattern.search(text) is not None for pattern in patterns)
