"""Whether a passage holds an answer, as the field's retrieval figures count it; one passage, or many rankings at once.

string     DPR's (facebookresearch/DPR, dpr/data/qa_validation.py): the answer's tokens stand in the text's in a row, see ``answer_tokens``;
           an answer without tokens is in every text
regex      DPR's for CuratedTREC: the answer is a pattern, searched in the text whatever the case, both NFD-normalised; so "é" is two
           characters in both; a pattern that cannot be compiled is in no text
kilt       DPR's ``has_answer_kilt``: a substring after DPR's normalisation
flashrag   FlashRAG's retrieval recall and precision: a substring after SQuAD's normalisation
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import MissingExtraError
from wikidx.corpora.registry import near_names
from wikidx.runtimes.evaluation.normalizing import dpr, squad
from wikidx.runtimes.evaluation.retrieval.answer_tokens import token_row, token_rows

try:
    import regex
except ImportError as error:
    raise MissingExtraError("has_answer", "eval") from error

Hits = NDArray[np.bool_]

MATCHES = ("string", "regex", "kilt", "flashrag")

_FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
_NOT_A_PATTERN = (regex.error, ValueError, OverflowError, RecursionError)

_token_row = lru_cache(maxsize=1 << 17)(token_row)


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Return whether any of the answers is in the text, by the rule "string"."""
    row = _token_row(text)
    return any(_token_row(answer) in row for answer in answers)


def answer_hits(
    rankings: Sequence[Sequence[int]], texts: Sequence[str], answers: Sequence[Sequence[str]], match: str = "string"
) -> list[Hits]:
    """Return which passages of many rankings hold an answer; each text is prepared once.

    Args:
        rankings: for each question the numbers of its passages in ``texts``, best first.
        texts: of the passages, each once.
        answers: for each question, any of which counts; none: nothing does.
        match: one of ``MATCHES``.

    Returns:
        For each question, bool of the shape of its ranking.

    Raises:
        UnknownNameError: there is no such rule.
        ValueError: there are not as many rankings as questions.
    """
    prepare, prepare_answers, holds = _rule(match)
    prepared = prepare(texts)
    return [
        np.fromiter((holds(sought, prepared[number]) for number in ranking), np.bool_, len(ranking))
        for ranking, sought in zip(rankings, map(prepare_answers, answers), strict=True)
    ]


def _rule(
    match: str,
) -> tuple[Callable[[Sequence[str]], list[str]], Callable[[Sequence[str]], list[Any]], Callable[[list[Any], str], bool]]:
    """Return how texts and a question's answers are prepared, and how the latter are looked for."""
    match match:
        case "string":
            return token_rows, lambda answers: _shortest([_token_row(answer) for answer in answers]), _is_in
        case "kilt":
            return lambda texts: list(map(dpr, texts)), lambda answers: _shortest(list(map(dpr, answers))), _is_in
        case "flashrag":
            return lambda texts: list(map(squad, texts)), lambda answers: _shortest(list(map(squad, answers))), _is_in
        case "regex":
            return lambda texts: [unicodedata.normalize("NFD", text) for text in texts], _patterns, _is_found
    raise near_names("rule of matching", match, MATCHES)


def _shortest(sought: Sequence[str]) -> list[str]:
    """Return the texts that no other one is in: where another is, they are too."""
    kept = list[str]()
    for text in sorted(set(sought), key=len):
        if not any(other in text for other in kept):
            kept.append(text)
    return kept


def _is_in(sought: Sequence[str], text: str) -> bool:
    return any(one in text for one in sought)


def _patterns(patterns: Sequence[str]) -> list[Any]:
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(regex.compile(unicodedata.normalize("NFD", pattern), flags=_FLAGS))
        except _NOT_A_PATTERN:
            continue
    return compiled


def _is_found(patterns: Sequence[Any], text: str) -> bool:
    return any(pattern.search(text) is not None for pattern in patterns)
