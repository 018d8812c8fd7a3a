"""PopQA's accuracy (AlexTMallen/adaptive-retrieval, run_model.py).

A gold counts if the first line of the output contains it literally, in lower case, or capitalised. The output is not normalised: "PARIS"
misses the gold "Paris", "usable" contains the gold "USA". An empty gold is in every text.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.answers.metric import Metric


def first_line(generation: str) -> str:
    """Return the scored part: the first line, after one blank line if there is one; a single leading line break leaves the empty text."""
    return generation.removeprefix("\n\n").split("\n")[0]


def is_correct(answer: str, golds: Sequence[str]) -> bool:
    """Return whether the answer contains a gold."""
    return any(form in answer for gold in golds for form in (gold, gold.lower(), gold.capitalize()))


METRICS = (
    Metric(
        "popqa_accuracy",
        "PopQA's accuracy (adaptive-retrieval): a gold, its lower-case or its capitalised form stands in the first line of the answer, "
        "nothing normalised. Without golds 0; an empty gold is always right.",
        lambda answer, question: float(is_correct(first_line(answer), question.golden_answers)),
    ),
)
