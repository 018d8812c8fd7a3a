"""PopQA's accuracy (AlexTMallen/adaptive-retrieval, run_model.py).

The answer is right if the first line of the output contains a gold as written, in lower case, or capitalised. The output is not normalised:
"PARIS" does not contain the gold "Paris", but "usable" contains the gold "USA" in lower case. Every text contains an empty gold.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.answers.metric import official


def first_line(generation: str) -> str:
    """Return the first line of an output without two leading line breaks; with one leading line break, the first line is empty."""
    return generation.removeprefix("\n\n").split("\n")[0]


def is_correct(answer: str, golds: Sequence[str]) -> bool:
    """Return whether the answer contains a gold as written, in lower case, or capitalised."""
    return any(form in answer for gold in golds for form in (gold, gold.lower(), gold.capitalize()))


METRICS = (official("popqa_accuracy", lambda answer, question: float(is_correct(first_line(answer), question.golden_answers))),)
