"""Self-RAG's answer metrics and its preprocessing of outputs (AkariAsai/self-rag, retrieval_lm).

Nothing is normalised: a gold counts if the output contains it literally, including case.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.answers.metric import Metric
from wikidx.runtimes.questions import Question

_FEVER_GOLDS = {"SUPPORTS": "true", "REFUTES": "false"}


def match(output: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the output contains a gold, else 0.0 (metrics.py, match).

    Like the original, it treats a single text in place of the golds as a list of its letters.
    """
    return float(any(gold in output for gold in golds))


def contains_first_gold(output: str, golds: Sequence[str]) -> float | None:
    """Return 1.0 if the output contains the first gold, else 0.0; None without golds (run_baseline_lm.py, metric "accuracy")."""
    return float(golds[0] in output) if golds else None


def short_form(output: str) -> str:
    """Return an output without a leading "#" or ":" (run_short_form.py, which fails on an empty output)."""
    return output[1:] if output.startswith(("#", ":")) else output


def fever_answer(output: str) -> str:
    """Return "true" for an output that contains SUPPORTS, "false" for REFUTES, else the output (run_short_form.py)."""
    return "true" if "SUPPORTS" in output else "false" if "REFUTES" in output else output


def _fever_match(answer: str, question: Question) -> float | None:
    gold = _FEVER_GOLDS.get(question.gold.get("label", ""))
    return None if gold is None else match(fever_answer(short_form(answer)), [gold])


METRICS = (
    Metric(
        "selfrag_match",
        "Self-RAG's match: a gold stands in the answer, nothing normalised. Without golds 0; an empty gold is always right.",
        lambda answer, question: match(answer, question.golden_answers),
    ),
    Metric(
        "selfrag_accuracy",
        "Self-RAG's accuracy of baselines: the first gold stands in the answer, nothing normalised. Without golds not defined.",
        lambda answer, question: contains_first_gold(answer, question.golden_answers),
    ),
    Metric(
        "selfrag_fever_match",
        "Self-RAG's match on FEVER: SUPPORTS in the answer reads true, REFUTES false, which must be the label's; NOT ENOUGH INFO is not in "
        "its data and not defined. An empty answer, on which the original fails, is wrong.",
        _fever_match,
    ),
)
