"""Whether a passage holds an answer, as the field's retrieval figures count it; one passage, or many rankings at once.

string     DPR's (facebookresearch/DPR, dpr/data/qa_validation.py): the answer's tokens stand in the text's in a row, see ``answer_tokens``;
           an answer without tokens is in every text
regex      DPR's for CuratedTREC: the answer is a pattern, searched in the text whatever the case, both NFD-normalised; so "é" is two
           characters in both; a pattern that cannot be compiled is in no text
kilt       DPR's ``has_answer_kilt``: a substring after DPR's normalisation
flashrag   FlashRAG's retrieval recall and precision: a substring after SQuAD's normalisation
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
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

_PREPARE: Mapping[str, Callable[[Sequence[str]], list[str]]] = {
    "string": token_rows,
    "regex": lambda texts: [unicodedata.normalize("NFD", text) for text in texts],
    "kilt": lambda texts: list(map(dpr, texts)),
    "flashrag": lambda texts: list(map(squad, texts)),
}
"""Rule -> what is done to texts and answers before these are looked for."""

MATCHES = tuple(_PREPARE)

_FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
_NOT_A_PATTERN = (regex.error, ValueError, OverflowError, RecursionError)


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Return whether any of the answers is in the text, by the rule "string"."""
    row = token_row(text)
    return any(token_row(answer) in row for answer in answers)


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
    """Return what tells whether a text holds one of those that are sought, of which the shortest suffice: they are in the others."""
    shortest = list[str]()
    for text in sorted(set(sought), key=len):
        if not any(other in text for other in shortest):
            shortest.append(text)
    return lambda text: any(one in text for one in shortest)


def _pattern_finder(sought: Sequence[str]) -> Callable[[str], bool]:
    """Return what tells whether one of the patterns is found in a text."""
    patterns = list[Any]()
    for pattern in sought:
        with contextlib.suppress(*_NOT_A_PATTERN):
            patterns.append(regex.compile(pattern, flags=_FLAGS))
    return lambda text: any(pattern.search(text) is not None for pattern in patterns)
