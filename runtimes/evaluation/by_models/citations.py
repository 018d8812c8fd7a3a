"""Citation recall and precision as ALCE's evaluator computes them (Gao et al., 2023; princeton-nlp/ALCE, eval.py).

Only the first line of an answer is scored. A sentence cites passages by marks such as ``[1][2]``; its claim is the text without the marks.

- Recall is the share of an answer's sentences whose cited passages together entail the claim.
- Precision is the share of an answer's citations that are useful. If a sentence is not entailed by its cited passages together, none of its
  citations is useful. Otherwise, a citation is useful if its passage alone entails the claim, or if the other cited passages do not.

The rules of the evaluator are kept:

- ``[1, 2]`` cites passage 1 only, ``[0]`` cites the last passage, and ``[3`` is a mark.
- If any mark of a sentence is out of range, the sentence has no citations. A sentence without citations is not entailed.
- After this check, citations beyond the third are dropped.
- If a sentence cites a passage twice, each of the two citations counts the passage among the other cited passages.
- An answer without sentences has no values (NaN). An answer without citations has precision 0.

One rule differs: if there are no passages, ``[0]`` is out of range here, whereas the evaluator fails.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wikidx.base.errors import InputError
from wikidx.base.progress import Progress, silent
from wikidx.runtimes.evaluation.answers.alce_text import first_line, remove_citations
from wikidx.runtimes.evaluation.by_models.nli import NLI, Pair
from wikidx.runtimes.evaluation.by_models.row_metrics import RowValues
from wikidx.runtimes.evaluation.by_models.sentence_splitting import Splitter
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.questions import Question

RECALL, PRECISION = "alce_citation_recall", "alce_citation_precision"
ORIGIN = (
    "ALCE, eval.py: compute_autoais. Answers without a sentence and unanswered questions are left out, so that a run with fewer answers "
    "may score higher. An answer without a citation has precision 0."
)

_MARK = re.compile(r"\[(\d+)")
_MAX_DIGITS = 1000  # digits read of a citation's number; int() refuses more than 4,300
_BATCH_PAIRS = 1024  # number of pairs between progress reports


class Claim(NamedTuple):
    """A sentence and its citations.

    Attributes:
        text: the sentence without its citation marks.
        cited: positions of the cited passages from 0, in the order of the marks, with repetitions; -1 is the last passage.
        n_marks: number of marks in the sentence, including those not in ``cited``.
    """

    text: str
    cited: tuple[int, ...]
    n_marks: int


_Useful = int | None
"""Number of a claim's useful citations; None: the claim is not entailed."""


class AlceCitations:
    """ALCE's citation recall and precision of predictions with passages; a ``RowMetric``.

    Args:
        nli: the entailment model.
        splitter: the sentence splitter; the evaluator uses "punkt".
        max_citations: maximum number of citations per sentence; further citations are ignored.
        progress: called with (pairs judged, pairs of the round) in each of three rounds.
    """

    def __init__(self, nli: NLI, splitter: Splitter, *, max_citations: int = 3, progress: Progress = silent) -> None:
        self._nli, self._splitter, self._max_citations, self._progress = nli, splitter, max_citations, progress

    def metadata(self) -> dict[str, Any]:
        """Return the origin, the NLI model, the splitter and the maximum number of citations."""
        return {"origin": ORIGIN, "nli": self._nli.metadata(), "sentences": self._splitter.name, "max_citations": self._max_citations}

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> RowValues:
        """Return the citation recall and precision of each prediction.

        Raises:
            InputError: a passage has no title or no text.
            IdxError: the NLI model fails.
        """
        premises = [[_premise(passage, row.id) for passage in row.passages] for row in rows]
        claims = [
            parse_claims(self._splitter.split(first_line(row.answer or "")), len(texts), max_citations=self._max_citations)
            for row, texts in zip(rows, premises, strict=True)
        ]
        verdicts = _Verdicts(self._nli, self._progress)
        n_useful = _judge(claims, premises, verdicts)
        recall = [_ratio(sum(useful is not None for useful in answer), len(answer), np.nan) for answer in n_useful]
        precision = [
            _ratio(sum(filter(None, counts)), sum(len(claim.cited) for claim in answer), 0.0 if answer else np.nan)
            for answer, counts in zip(claims, n_useful, strict=True)
        ]
        values = {RECALL: np.array(recall, dtype=np.float64), PRECISION: np.array(precision, dtype=np.float64)}
        return RowValues(values, {**_counts(claims, n_useful), "nli_pairs": len(verdicts)})


def parse_claims(sentences: Iterable[str], n_passages: int, *, max_citations: int = 3) -> list[Claim]:
    """Return each sentence's claim with the first ``max_citations`` citations; with none if any mark of the sentence is out of range."""
    claims = []
    for sentence in sentences:
        positions = [int(digits[:_MAX_DIGITS]) - 1 for digits in _MARK.findall(sentence)]
        is_in_range = all(-n_passages <= position < n_passages for position in positions)
        claims.append(Claim(remove_citations(sentence).strip(), tuple(positions[:max_citations]) if is_in_range else (), len(positions)))
    return claims


def _premise(passage: Mapping[str, Any], prediction: str) -> str:
    """Return a passage as a premise: its title and, as in ALCE, its field ``sent`` or, if absent, ``text``."""
    title, text = passage.get("title"), passage.get("sent", passage.get("text"))
    if not isinstance(title, str) or not isinstance(text, str):
        raise InputError(f"the prediction '{prediction}' has a passage without a 'title' or a 'text': citations need both")
    return f"Title: {title}\n{text}"


class _Verdicts(dict[Pair, bool]):
    """Verdicts of the NLI model; each pair is judged once."""

    def __init__(self, nli: NLI, progress: Progress) -> None:
        super().__init__()
        self._nli, self._progress = nli, progress

    def judge(self, pairs: Iterable[Pair]) -> None:
        """Judge the pairs that have no verdict yet, and store their verdicts."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self]
        for start in range(0, len(new), _BATCH_PAIRS):
            batch = new[start : start + _BATCH_PAIRS]
            self.update(zip(batch, self._nli.entails(batch), strict=True))
            self._progress(start + len(batch), len(new))


def _judge(claims: Sequence[Sequence[Claim]], premises: Sequence[Sequence[str]], verdicts: _Verdicts) -> list[list[_Useful]]:
    """Return the number of useful citations of each answer's claims.

    All answers are judged together, in three rounds: all citations of each claim; single citations of entailed claims; and, for single
    citations that do not entail the claim, the other citations.
    """

    def joint_pair(answer: int, claim: Claim, positions: Sequence[int]) -> Pair:
        return Pair("\n".join(premises[answer][position] for position in positions), claim.text)

    def single_pairs(answer: int, claim: Claim) -> list[Pair]:
        return [joint_pair(answer, claim, (position,)) for position in claim.cited]

    def other_pairs(answer: int, claim: Claim) -> list[Pair]:
        return [joint_pair(answer, claim, _remove(claim.cited, position)) for position in claim.cited]

    citing = [(number, claim) for number, answer in enumerate(claims) for claim in answer if claim.cited]
    verdicts.judge(joint_pair(*sentence, sentence[1].cited) for sentence in citing)
    entailed = [sentence for sentence in citing if len(sentence[1].cited) > 1 and verdicts[joint_pair(*sentence, sentence[1].cited)]]
    verdicts.judge(pair for sentence in entailed for pair in single_pairs(*sentence))
    verdicts.judge(
        rest
        for sentence in entailed
        for single, rest in zip(single_pairs(*sentence), other_pairs(*sentence), strict=True)
        if not verdicts[single]
    )

    def n_useful(answer: int, claim: Claim) -> _Useful:
        if not claim.cited or not verdicts[joint_pair(answer, claim, claim.cited)]:
            return None
        if len(claim.cited) == 1:
            return 1
        pairs = zip(single_pairs(answer, claim), other_pairs(answer, claim), strict=True)
        return sum(verdicts[single] or not verdicts[rest] for single, rest in pairs)

    return [[n_useful(number, claim) for claim in answer] for number, answer in enumerate(claims)]


def _remove(positions: Sequence[int], position: int) -> list[int]:
    """Return ``positions`` without the first occurrence of ``position``."""
    rest = list(positions)
    rest.remove(position)
    return rest


def _ratio(part: int, whole: int, default: float) -> float:
    return part / whole if whole else default


def _counts(claims: Sequence[Sequence[Claim]], n_useful: Sequence[Sequence[_Useful]]) -> dict[str, int]:
    all_claims = list(zip(itertools.chain(*claims), itertools.chain(*n_useful), strict=True))
    multiple = [useful for claim, useful in all_claims if (len(claim.cited) or claim.n_marks) > 1]
    return {
        "answers_without_a_sentence": sum(not answer for answer in claims),
        "sentences": len(all_claims),
        "sentences_without_a_citation": sum(not claim.n_marks for claim, _ in all_claims),
        "sentences_citing_out_of_range": sum(claim.n_marks > 0 and not claim.cited for claim, _ in all_claims),
        "sentences_with_several_citations": len(multiple),
        "of_these_entailed": sum(useful is not None for useful in multiple),
        "useless_citations": sum(len(claim.cited) - useful for claim, useful in all_claims if useful is not None),
    }
