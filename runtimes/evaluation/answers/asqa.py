"""ASQA's metrics of long answers, as computed by ALCE (princeton-nlp/ALCE, eval.py) and ASQA's authors (google-research, language/asqa).

An ambiguous question has several interpretations ("readings"). Each reading has its own short answers, a group in ``answer_groups``. A long
answer answers a reading if it contains one of the reading's short answers. STR-EM is the share of answered readings. STR-hit is 1 if all
readings are answered, else 0. ALCE scores the first line of the output, without citations; ASQA's authors score the whole output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.alce_text import first_line, remove_citations
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.evaluation.answers.rouge import rouge_lsum
from wikidx.runtimes.questions import Question

_REFERENCES = 2  # number of reference answers that ALCE uses


def strip_citations(output: str) -> str:
    """Return the first line of an output, without citations."""
    return remove_citations(first_line(output))


def answered_readings(text: str, groups: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each group of short answers whether the text contains an answer of the group, both normalised as in SQuAD.

    A short answer that normalises to the empty string is contained in every text. A group without short answers yields False.
    """
    normalised = normalizing.squad(text)
    return [any(normalizing.squad(answer) in normalised for answer in group) for group in groups]


def str_em(text: str, groups: Sequence[Sequence[str]]) -> float | None:
    """Return the share of readings that the text answers; None if there are no readings."""
    return fmean(answered_readings(text, groups)) if groups else None


def str_hit(text: str, groups: Sequence[Sequence[str]]) -> float | None:
    """Return 1.0 if the text answers every reading, else 0.0; None if there are no readings."""
    return float(all(answered_readings(text, groups))) if groups else None


def rouge_lsum_f(text: str, references: Sequence[str]) -> float | None:
    """Return the best ROUGE-Lsum F1 of the text with one of the first two references; None if there are no references."""
    return max((rouge_lsum(text, reference).f for reference in references[:_REFERENCES]), default=None)


def _of_groups(score: Callable[[str, Sequence[Sequence[str]]], float | None]) -> Callable[[str, Question], float | None]:
    return lambda answer, question: score(answer, question.gold.get("answer_groups", ()))


METRICS = (
    official("alce_str_em", _of_groups(lambda answer, groups: str_em(strip_citations(answer), groups))),
    official("alce_str_hit", _of_groups(lambda answer, groups: str_hit(strip_citations(answer), groups))),
    official("alce_rouge_lsum", lambda answer, question: rouge_lsum_f(strip_citations(answer), question.gold.get("long_answers", ()))),
    official("asqa_str_em", _of_groups(str_em)),
)
