"""Self-RAG's answer metrics and its preprocessing of outputs (AkariAsai/self-rag, retrieval_lm).

Texts are not normalised: a gold matches only in its exact spelling and case.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.questions import Question

_FEVER_GOLDS = {"SUPPORTS": "true", "REFUTES": "false"}


def match(output: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the output contains a gold, else 0.0 (metrics.py, match).

    As in the original, a string passed as ``golds`` counts as a sequence of one-character golds.
    """
    return float(any(gold in output for gold in golds))


def contains_first_gold(output: str, golds: Sequence[str]) -> float | None:
    """Return 1.0 if the output contains the first gold, else 0.0; None if there are no golds (run_baseline_lm.py, "accuracy")."""
    return float(golds[0] in output) if golds else None


def short_form(output: str) -> str:
    """Return an output without a leading "#" or ":" (run_short_form.py; the original fails on an empty output)."""
    return output[1:] if output.startswith(("#", ":")) else output


def fever_answer(output: str) -> str:
    """Return "true" if the output contains SUPPORTS, else "false" if it contains REFUTES, else the output (run_short_form.py)."""
    return "true" if "SUPPORTS" in output else "false" if "REFUTES" in output else output


def _fever_match(answer: str, question: Question) -> float | None:
    gold = _FEVER_GOLDS.get(question.gold.get("label", ""))
    return None if gold is None else match(fever_answer(short_form(answer)), [gold])


METRICS = (
    official("selfrag_match", lambda answer, question: match(answer, question.golden_answers)),
    official("selfrag_accuracy", lambda answer, question: contains_first_gold(answer, question.golden_answers)),
    official("selfrag_fever_match", _fever_match),
)
