"""Two different ROUGE scores with similar names.

``rouge_l`` follows the package ``rouge`` 1.0 (pltrdy/rouge), used by KILT and GenRead: words are separated by white space and
case-sensitive, every full stop ends a sentence, and a repeated word counts once. It is reimplemented here because the package fails on
texts of about a thousand words (RecursionError) and its other versions count differently.

``rouge_lsum`` follows the package ``rouge_score`` (Google), used by ALCE and ASQA: words are stemmed, and repetitions count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from wikidx.corpora.errors import MissingExtraError
from wikidx.runtimes.evaluation.answers.alce_text import split_sentences

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

_EPSILON = 1e-8  # the package's constant, which avoids division by 0; identical texts score just below 1


class Rouge(NamedTuple):
    """Precision, recall and F1 of a text against a reference, each from 0 to 1."""

    precision: float
    recall: float
    f: float


def rouge_l(text: str, reference: str) -> Rouge:
    """Return the summary-level ROUGE-L of the package ``rouge`` 1.0.

    The common words of two texts are the union of the longest common subsequences over all pairs of sentences. If a text is empty or has
    only full stops, the package fails; all values are then 0, as in KILT and GenRead.
    """
    ours, theirs = _sentences(text), _sentences(reference)
    if not ours or not theirs:
        return Rouge(0.0, 0.0, 0.0)
    shared = len(set().union(*(_common_subsequence(gold, sentence) for gold in theirs for sentence in ours)))
    precision, recall = shared / len(set().union(*ours)), shared / len(set().union(*theirs))
    return Rouge(precision, recall, 2.0 * ((precision * recall) / (precision + recall + _EPSILON)))


def rouge_lsum(text: str, reference: str) -> Rouge:
    """Return ROUGE-Lsum as ALCE and ASQA compute it: lower case, one sentence per line, words stemmed.

    Args:
        text: the answer; without an ASCII letter or digit, all values are 0.
        reference: the reference text; likewise.

    Raises:
        MissingExtraError: ``rouge_score`` is not installed.
    """
    lines = ("\n".join(split_sentences(item.lower())) for item in (reference, text))
    precision, recall, f = _scorer().score(*lines)["rougeLsum"]
    return Rouge(float(precision), float(recall), float(f))


def _sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence. A sentence of white space only has one empty word, as in the package."""
    return [sentence.split() or [""] for sentence in text.split(".") if sentence]


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> set[str]:
    """Return the words of a longest common subsequence.

    Of several, it is the one that the package finds: on a tie, backtracking drops a word of ``second``.
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
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise MissingExtraError("ROUGE-Lsum", "eval") from error
    return RougeScorer(["rougeLsum"], use_stemmer=True)
