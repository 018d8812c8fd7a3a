"""ROUGE-L as in KILT and GenRead, and ROUGE-Lsum as in ALCE and ASQA.

``rouge_l`` equals the package ``rouge`` 1.0 (pltrdy/rouge), which KILT and GenRead use. Words are separated by white space, case counts,
every full stop ends a sentence, and a repeated word counts once. The package itself fails on texts of about a thousand words
(RecursionError), and its other versions count differently.

``rouge_lsum`` calls the package ``rouge_score`` (Google), which ALCE and ASQA use. Words are stemmed, and repetitions count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from wikidx.base.errors import require_packages
from wikidx.runtimes.evaluation.answers.alce_text import split_sentences

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

_EPSILON = 1e-8  # the package's constant against division by 0; with it, identical texts score slightly less than 1


class Rouge(NamedTuple):
    """Precision, recall and F1 of a text against a reference, each from 0 to 1."""

    precision: float
    recall: float
    f: float


def rouge_l(text: str, reference: str) -> Rouge:
    """Return the summary-level ROUGE-L of the package ``rouge`` 1.0.

    The common words of two texts are the union of the longest common subsequences over all pairs of sentences. If a text is empty or has
    only full stops, all values are 0; the package raises an error, which KILT and GenRead count as 0.
    """
    ours, theirs = _sentences(text), _sentences(reference)
    if not ours or not theirs:
        return Rouge(0.0, 0.0, 0.0)
    shared = len(set().union(*(_common_subsequence(gold, sentence) for gold in theirs for sentence in ours)))
    precision, recall = shared / len(set().union(*ours)), shared / len(set().union(*theirs))
    return Rouge(precision, recall, 2.0 * ((precision * recall) / (precision + recall + _EPSILON)))


def rouge_lsum(text: str, reference: str) -> Rouge:
    """Return ROUGE-Lsum of lower-cased texts with stemmed words, as ALCE and ASQA compute it.

    If either text has no ASCII letter or digit, all values are 0.

    Raises:
        MissingExtraError: ``rouge_score`` is not installed.
    """
    lines = ("\n".join(split_sentences(item.lower())) for item in (reference, text))
    precision, recall, f = _scorer().score(*lines)["rougeLsum"]
    return Rouge(float(precision), float(recall), float(f))


def _sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence; as in the package, a sentence of white space has one empty word."""
    return [sentence.split() or [""] for sentence in text.split(".") if sentence]


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> set[str]:
    """Return the distinct words of a longest common subsequence.

    If there are several longest subsequences, the package's choice is returned: on a tie, backtracking drops a word of ``second``.
    """
    lengths = [[0] * (len(second) + 1)]  # lengths[i][j]: length for the first i words of ``first`` and j of ``second``
    for word in first:
        above, row = lengths[-1], [0]
        for j, other in enumerate(second):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    words = set()
    i, j = len(first), len(second)
    while i and j:
        if first[i - 1] == second[j - 1]:
            i, j = i - 1, j - 1
            words.add(first[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words


@cache
def _scorer() -> RougeScorer:
    require_packages("ROUGE-Lsum", "eval", "rouge_score.rouge_scorer")
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeLsum"], use_stemmer=True)
