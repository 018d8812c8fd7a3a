"""Citation recall and precision as ALCE's evaluator computes them (Gao et al., 2023; princeton-nlp/ALCE, eval.py).

Of an answer the first line counts. A sentence cites passages by marks such as ``[1][2]``; what is left without the marks is its claim.

- recall: the share of an answer's sentences whose cited passages together entail the claim. A sentence without a mark, or with a
  mark beyond the last passage, fails.
- precision: the share of useful citations. If the passages together entail the claim, a citation is useful if its passage alone
  entails the claim, or the other passages do not.

The evaluator's peculiarities are kept: ``[1, 2]`` cites 1 alone, ``[0]`` the last passage, ``[3`` counts as a mark; the range of all
marks is checked before all but the first three are dropped; marks of a sentence with one out of range are not counted in
the precision; of a passage cited twice one citation at a time is left out. An answer without a sentence is undefined (NaN). The one
difference: ``[0]`` without passages is out of range, where the evaluator fails.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wikidx.corpora.errors import InputError
from wikidx.corpora.progress import Progress, silent
from wikidx.runtimes.evaluation.answers.alce_text import first_line, remove_citations
from wikidx.runtimes.evaluation.by_models.measured import Measured
from wikidx.runtimes.evaluation.by_models.nli import NLI, Pair
from wikidx.runtimes.evaluation.by_models.sentence_splitting import Splitter
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.questions import Question

RECALL, PRECISION = "alce_citation_recall", "alce_citation_precision"
ORIGIN = (
    "ALCE, eval.py: compute_autoais. An answer without a sentence is left out, and so is a question without an answer: a run that answers "
    "less may score higher; an answer without a citation has precision 0."
)

_MARK = re.compile(r"\[(\d+)")
_MANY_DIGITS = 1000  # more digits than any number of passages, fewer than the limit of int()
_AT_ONCE = 1024  # pairs between progress reports


class Claim(NamedTuple):
    """A sentence and its citations.

    Attributes:
        text: the sentence without its citation marks.
        cited: positions of the cited passages, in order, repetitions kept; negative ones count from the end, -1 being the last.
        n_marks: number of citations before those out of range were dropped.
    """

    text: str
    cited: tuple[int, ...]
    n_marks: int


_Useful = int | None
"""Number of useful citations of a claim; None: the claim is not entailed."""


class AlceCitations:
    """ALCE's citation recall and precision of predictions with their passages; a ``RowMetric``.

    Args:
        nli: the entailment model.
        splitter: of sentences; the evaluator's is "punkt".
        at_most: maximum number of citations per sentence; further ones are ignored.
        progress: called with (pairs judged, pairs) in each of the three rounds.
    """

    def __init__(self, nli: NLI, splitter: Splitter, *, at_most: int = 3, progress: Progress = silent) -> None:
        self._nli, self._splitter, self._at_most, self._progress = nli, splitter, at_most, progress

    def about(self) -> dict[str, Any]:
        """Return the NLI model, the splitter and the maximum number of citations."""
        return {"origin": ORIGIN, "nli": self._nli.about(), "sentences": self._splitter.name, "at_most_citations": self._at_most}

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> Measured:
        """Return recall and precision of each prediction.

        Raises:
            InputError: a passage has no title or no text.
            IdxError: the NLI model fails.
        """
        shown = [[_shown(passage, row.id) for passage in row.passages] for row in rows]
        claims = [
            claims_of(self._splitter.split(first_line(row.answer or "")), len(texts), at_most=self._at_most)
            for row, texts in zip(rows, shown, strict=True)
        ]
        verdicts = _Verdicts(self._nli, self._progress)
        judged = _judge(claims, shown, verdicts)
        recall = [_share(sum(useful is not None for useful in answer), len(answer), np.nan) for answer in judged]
        precision = [
            _share(sum(filter(None, of_claims)), sum(len(claim.cited) for claim in answer), 0.0 if answer else np.nan)
            for answer, of_claims in zip(claims, judged, strict=True)
        ]
        values = {RECALL: np.array(recall, dtype=np.float64), PRECISION: np.array(precision, dtype=np.float64)}
        return Measured(values, {**_counts(claims, judged), "nli_pairs": len(verdicts)})


def claims_of(sentences: Iterable[str], n_passages: int, *, at_most: int = 3) -> list[Claim]:
    """Return each sentence's claim with its citations: none if one is out of range, otherwise the first ``at_most``."""
    claims = []
    for sentence in sentences:
        places = [int(digits[:_MANY_DIGITS]) - 1 for digits in _MARK.findall(sentence)]
        is_in_range = all(-n_passages <= place < n_passages for place in places)
        claims.append(Claim(remove_citations(sentence).strip(), tuple(places[:at_most]) if is_in_range else (), len(places)))
    return claims


def _shown(passage: Mapping[str, Any], prediction: str) -> str:
    """Return a passage as a premise; a passage reduced to one sentence has it in ``sent``, as in ALCE's files."""
    title, text = passage.get("title"), passage.get("sent", passage.get("text"))
    if not isinstance(title, str) or not isinstance(text, str):
        raise InputError(f"the prediction '{prediction}' has a passage without a 'title' or a 'text': citations need both")
    return f"Title: {title}\n{text}"


class _Verdicts(dict[Pair, bool]):
    """Verdicts of the NLI model; each pair is judged once."""

    def __init__(self, nli: NLI, progress: Progress) -> None:
        super().__init__()
        self._nli, self._progress = nli, progress

    def ask(self, pairs: Iterable[Pair]) -> None:
        """Judge pairs and store the verdicts."""
        fresh = [pair for pair in dict.fromkeys(pairs) if pair not in self]
        for start in range(0, len(fresh), _AT_ONCE):
            some = fresh[start : start + _AT_ONCE]
            self.update(zip(some, self._nli.entails(some), strict=True))
            self._progress(start + len(some), len(fresh))


def _judge(claims: Sequence[Sequence[Claim]], shown: Sequence[Sequence[str]], verdicts: _Verdicts) -> list[list[_Useful]]:
    """Judge all claims of all answers in three rounds, each depending on the one before."""

    def together(answer: int, claim: Claim, places: Sequence[int]) -> Pair:
        return Pair("\n".join(shown[answer][place] for place in places), claim.text)

    def each_alone(answer: int, claim: Claim) -> list[Pair]:
        return [together(answer, claim, (place,)) for place in claim.cited]

    def each_left_out(answer: int, claim: Claim) -> list[Pair]:
        return [together(answer, claim, _without(claim.cited, place)) for place in claim.cited]

    cited = [(number, claim) for number, answer in enumerate(claims) for claim in answer if claim.cited]
    verdicts.ask(together(*one, one[1].cited) for one in cited)
    several = [one for one in cited if len(one[1].cited) > 1 and verdicts[together(*one, one[1].cited)]]
    verdicts.ask(pair for one in several for pair in each_alone(*one))
    verdicts.ask(rest for one in several for alone, rest in zip(each_alone(*one), each_left_out(*one), strict=True) if not verdicts[alone])

    def n_useful(answer: int, claim: Claim) -> _Useful:
        if not claim.cited or not verdicts[together(answer, claim, claim.cited)]:
            return None
        if len(claim.cited) == 1:
            return 1
        pairs = zip(each_alone(answer, claim), each_left_out(answer, claim), strict=True)
        return sum(verdicts[alone] or not verdicts[rest] for alone, rest in pairs)

    return [[n_useful(number, claim) for claim in answer] for number, answer in enumerate(claims)]


def _without(places: Sequence[int], place: int) -> list[int]:
    """Return positions without the first occurrence of one."""
    left = list(places)
    left.remove(place)
    return left


def _share(part: int, whole: int, otherwise: float) -> float:
    return part / whole if whole else otherwise


def _counts(claims: Sequence[Sequence[Claim]], judged: Sequence[Sequence[_Useful]]) -> dict[str, int]:
    """Return the evaluator's printed counts, and counts of undefined values and of those that count as wrong."""
    all_claims = list(zip(itertools.chain(*claims), itertools.chain(*judged), strict=True))
    several = [useful for claim, useful in all_claims if (len(claim.cited) or claim.n_marks) > 1]
    return {
        "answers_without_a_sentence": sum(not answer for answer in claims),
        "sentences": len(all_claims),
        "sentences_without_a_citation": sum(not claim.n_marks for claim, _ in all_claims),
        "sentences_citing_out_of_range": sum(claim.n_marks > 0 and not claim.cited for claim, _ in all_claims),
        "sentences_with_several_citations": len(several),
        "of_these_entailed": sum(useful is not None for useful in several),
        "useless_citations": sum(len(claim.cited) - useful for claim, useful in all_claims if useful is not None),
    }
