"""Two ROUGE scores that share a name's beginning and little else.

``rouge_l`` is what the package ``rouge`` 1.0 (pltrdy/rouge) gives, KILT's and GenRead's: words are what stands between spaces, upper and
lower case differ, a full stop ends a sentence wherever it stands, a word counts once however often it occurs. It is written anew here,
because the package gives up on texts of about a thousand words (RecursionError) and other versions of it count otherwise.

``rouge_lsum`` is that of the package ``rouge_score`` (Google's), ALCE's and ASQA's: words are stemmed, and repeated ones count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from wikidx.corpora.errors import MissingExtraError
from wikidx.runtimes.evaluation.answers.alce_text import split_sentences

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

_EPSILON = 1e-8  # keeps the package's F from dividing by 0, and identical texts just below 1


class Rouge(NamedTuple):
    """Precision, recall and F of a text against a reference, each from 0 to 1."""

    precision: float
    recall: float
    f: float


def rouge_l(text: str, reference: str) -> Rouge:
    """Return the summary-level ROUGE-L that the package ``rouge`` 1.0 gives.

    Of every pair of sentences a longest common subsequence is taken; the words in any of them, as a set, are what the texts share. Where
    a text is empty or of full stops only the package fails, and all is 0, as KILT and GenRead count it.
    """
    ours, theirs = _sentences(text), _sentences(reference)
    if not ours or not theirs:
        return Rouge(0.0, 0.0, 0.0)
    shared = len(set().union(*(_common_subsequence(gold, sentence) for gold in theirs for sentence in ours)))
    precision, recall = shared / len(set().union(*ours)), shared / len(set().union(*theirs))
    return Rouge(precision, recall, 2.0 * ((precision * recall) / (precision + recall + _EPSILON)))


def rouge_lsum(text: str, reference: str) -> Rouge:
    """Return ROUGE-Lsum as ALCE and ASQA compute it: lower case, one sentence a line, words stemmed.

    Args:
        text: the answer; empty, or without an ASCII letter or digit, it scores 0.
        reference: the same.

    Raises:
        MissingExtraError: ``rouge_score`` is not installed.
    """
    lines = ("\n".join(split_sentences(one.lower())) for one in (reference, text))
    precision, recall, f = _scorer().score(*lines)["rougeLsum"]
    return Rouge(float(precision), float(recall), float(f))


def _sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence. A sentence of spaces has one word, the empty one, as in the package."""
    return [sentence.split() or [""] for sentence in text.split(".") if sentence]


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> set[str]:
    """Return the words of a longest common subsequence.

    Of several it is the package's: on the way back from both ends, words of ``second`` are given up first where that costs nothing.
    """
    lengths = [[0] * (len(second) + 1)]  # lengths[i][j]: of the subsequence of the first i and the first j words
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
