"""Answer matching for retrieval metrics: tests whether a passage contains an answer, by one of four rules.

string     DPR's rule (facebookresearch/DPR, dpr/data/qa_validation.py): the tokens of the text contain the tokens of the answer
           contiguously. An answer without tokens is in every text.
regex      DPR's rule for CuratedTREC: the answer is a case-insensitive pattern that is searched in the text. Both are NFD-normalised,
           so "é" is two characters. A pattern that cannot be compiled matches no text.
kilt       DPR's ``has_answer_kilt``: the text contains the answer after DPR's normalisation of both.
flashrag   FlashRAG's rule for retrieval recall and precision: the text contains the answer after SQuAD's normalisation of both.

Tokens are those of DPR's SimpleTokenizer (dpr/utils/tokenizers.py), which NFD-normalises the text. A token is a run of letters, digits and
marks, or a single other visible character. Each token is lower-cased separately.

A *token row* is a string: the tokens of a text, separated by single spaces, with a space at each end. No token contains a space.
Therefore a text contains the tokens of an answer contiguously if the token row of the answer is a substring of the text's token row.
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

from wikidx.base.errors import MissingExtraError
from wikidx.base.registry import unknown_name_error
from wikidx.retrievers.base import Searcher
from wikidx.runtimes.evaluation.normalizing import dpr, squad
from wikidx.runtimes.questions import Question

try:
    import regex
except ImportError as error:
    raise MissingExtraError("has_answer", "eval") from error

Hits = NDArray[np.bool_]

_SEPARATOR, _WORD, _SYMBOL = 0, 1, 2  # kinds of characters: separator, part of a token, token of one character
_SPACE = 32
_SIGMA = "\u03a3"  # Σ becomes ς at the end of a token; every other character has a single lower-case form
_BATCH_QUESTIONS = 64  # questions per search: the passages of one search are in memory together
_BATCH_TEXTS = 256  # texts per batch: their character arrays fit in the CPU's caches

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")

_FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
_NOT_A_PATTERN = (regex.error, ValueError, OverflowError, RecursionError)


class _Characters(NamedTuple):
    """Kind and lower case of every character, both indexed by code point."""

    kinds: NDArray[np.uint8]
    lower: NDArray[np.uint32]


def token_row(text: str) -> str:
    """Return the token row of a text; a single space if the text has no tokens."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFD", text))
    return " " + "".join(f"{token.lower()} " for token in tokens)


def token_rows(texts: Sequence[str]) -> list[str]:
    """Return the token rows of texts, much faster than by one call of ``token_row`` per text."""
    return [row for start in range(0, len(texts), _BATCH_TEXTS) for row in _rows(texts[start : start + _BATCH_TEXTS])]


def _rows(texts: Sequence[str]) -> list[str]:
    decomposed = [unicodedata.normalize("NFD", text) for text in texts]
    points = np.frombuffer("\n".join([*decomposed, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(text) + 1 for text in decomposed]) - 1  # position of the line break after each text
    characters = _characters()
    kinds = characters.kinds.take(points)
    is_word = kinds == _WORD
    is_start = kinds == _SYMBOL  # first characters of tokens; a space is written before each
    is_start[0] |= is_word[0]
    is_start[1:] |= is_word[1:] & ~is_word[:-1]
    n_written = (kinds != _SEPARATOR).view(np.int8) + is_start.view(np.int8)
    n_written[ends] = 1  # the space after the last token
    ends_written = n_written.cumsum(dtype=np.int32)
    visible = np.flatnonzero(kinds)
    row_points = np.full(ends_written[-1], _SPACE, np.uint32)
    row_points[ends_written[visible] - 1] = characters.lower.take(points[visible])
    whole = row_points.tobytes().decode("utf-32-le")  # surrogates are separators and not written
    offsets = [0, *ends_written[ends].tolist()]
    return [
        token_row(text) if _SIGMA in text else whole[begin:end]
        for text, begin, end in zip(decomposed, offsets[:-1], offsets[1:], strict=True)
    ]


@functools.cache
def _characters() -> _Characters:
    all_characters = "".join(map(chr, range(sys.maxunicode + 1)))
    kinds = np.full(len(all_characters), _SEPARATOR, np.uint8)
    for match in regex.finditer(r"[\p{L}\p{N}\p{M}]+", all_characters):
        kinds[match.start() : match.end()] = _WORD
    for match in regex.finditer(r"[^\p{L}\p{N}\p{M}\p{Z}\p{C}]+", all_characters):
        kinds[match.start() : match.end()] = _SYMBOL
    dotted = "\u0130"  # İ, whose lower case has two characters; NFD decomposes it
    lower = all_characters.replace(_SIGMA, " ").replace(dotted, " ").lower()
    return _Characters(kinds, np.frombuffer(lower.encode("utf-32-le", "surrogatepass"), np.uint32))


_PREPARE: Mapping[str, Callable[[Sequence[str]], list[str]]] = {
    "string": token_rows,
    "regex": lambda texts: [unicodedata.normalize("NFD", text) for text in texts],
    "kilt": lambda texts: list(map(dpr, texts)),
    "flashrag": lambda texts: list(map(squad, texts)),
}
"""Matching rule -> normalisation of texts and answers."""

MATCHES = tuple(_PREPARE)


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Return whether the text contains any of the answers, by the rule "string"."""
    row = token_row(text)
    return any(token_row(answer) in row for answer in answers)


def keep_retrieved_answers(questions: Sequence[Question], searcher: Searcher, depth: int = 1000) -> list[Question]:
    """Drop the gold answers that none of the first ``depth`` retrieved passages contains, by the rule "string".

    RA-ISF does so with TriviaQA, whose alternative answers include misspellings; a question may be left without answers.
    """
    kept = list[Question]()
    for start in range(0, len(questions), _BATCH_QUESTIONS):
        batch = questions[start : start + _BATCH_QUESTIONS]
        for question, ranking in zip(batch, searcher.search([one.text for one in batch], k=depth), strict=True):
            rows = token_rows([hit.passage.text for hit in ranking])
            answers = [answer for answer in question.golden_answers if any(token_row(answer) in row for row in rows)]
            kept.append(question._replace(golden_answers=tuple(answers)))
    return kept


def answer_hits(
    rankings: Sequence[Sequence[int]], texts: Sequence[str], answers: Sequence[Sequence[str]], match: str = "string"
) -> list[Hits]:
    """Test each passage of each ranking for an answer. Each text is normalised once.

    Args:
        rankings: for each question, the indices of its passages in ``texts``, best first.
        texts: the distinct passage texts.
        answers: for each question, its accepted answers; without answers, no passage is a hit.
        match: one of ``MATCHES``.

    Returns:
        For each question, whether each passage of its ranking is a hit: bool (passages,).

    Raises:
        UnknownNameError: the matching rule is unknown.
        ValueError: ``rankings`` and ``answers`` differ in length.
    """
    if match not in _PREPARE:
        raise unknown_name_error("rule of matching", match, MATCHES)
    prepared = _PREPARE[match](texts)
    targets = iter(_PREPARE[match]([answer for alternatives in answers for answer in alternatives]))
    finder = _pattern_finder if match == "regex" else _text_finder
    finders = [finder([next(targets) for _ in alternatives]) for alternatives in answers]
    return [
        np.fromiter((is_found(prepared[number]) for number in ranking), np.bool_, len(ranking))
        for ranking, is_found in zip(rankings, finders, strict=True)
    ]


def _text_finder(targets: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that tests whether a text contains any target. Targets that contain a shorter target are left out."""
    shortest = list[str]()
    for text in sorted(set(targets), key=len):
        if not any(other in text for other in shortest):
            shortest.append(text)
    return lambda text: any(target in text for target in shortest)


def _pattern_finder(targets: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that tests whether any pattern matches in a text."""
    patterns = list[Any]()
    for pattern in targets:
        with contextlib.suppress(*_NOT_A_PATTERN):
            patterns.append(regex.compile(pattern, flags=_FLAGS))
    return lambda text: any(pattern.search(text) is not None for pattern in patterns)
