"""SearChain's two thresholds and its parsing of chains. Whole courses stand in ``transcripts/``."""

from __future__ import annotations

import math
import random

import pytest
from rouge_score import rouge_scorer

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.llms.base import YesNo
from wikidx.runtimes.methods.searchain import SearChainOptions, parse_chain, rouge_l, searchain

CHAIN = "[Query 1]: Who?\n[Answer 1]: {}\n[Final Content]: So the answer is: he."
AGAIN = "[Final Content]: So the answer is: she."


def run(read: str, verdict: YesNo, *rest: str, answer: str = "The Ann", **values: object) -> Driven:
    options = SearChainOptions(**values)  # type: ignore[arg-type]
    return drive(searchain("Q?", options), [CHAIN.format(answer), passages("Ann wrote it."), read, verdict, *rest])


@pytest.mark.parametrize("theta", [1.5, 0.0, 2.25])
@pytest.mark.parametrize(("excess", "verdict"), [(1e-6, "corrected"), (0, "unchecked"), (-1e-6, "unchecked")])
def test_an_answer_is_corrected_above_theta_alone(theta: float, excess: float, verdict: str) -> None:
    """The log-odds of yes are the reader's confidence, as the logit of the authors' reader is."""
    threshold = math.exp(theta) / (1 + math.exp(theta)) if excess else 1 / (1 + math.exp(-theta))
    odds = YesNo(p_positive=0.3 * (threshold + excess), p_negative=0.3 * (1 - threshold - excess))
    if not excess:
        odds = YesNo(p_positive=threshold, p_negative=1 - threshold)
    driven = run("Bob", odds, *[AGAIN] * (verdict == "corrected"), confidence=theta)
    assert driven.answer.detail["nodes"][0]["verdict"] == verdict


@pytest.mark.parametrize(
    ("read", "answer", "agrees"),
    [
        ("ann", "The Ann.", True),
        ("the Ann", "Ann", True),
        ("Ann Bee", "Ann", False),
        ("", "Ann", True),
        ("An", "Bob", True),
        ("x", "Bob", False),
    ],
)
def test_an_answer_agrees_if_it_contains_the_reader_s(read: str, answer: str, agrees: bool) -> None:
    """Without case, punctuation and articles, as ``match_or_not`` in the authors' code decides."""
    driven = run(read, YesNo(p_positive=0.9, p_negative=0.1), *[AGAIN] * (not agrees), answer=answer)
    assert driven.answer.detail["nodes"][0]["verdict"] == ("confirmed" if agrees else "corrected")


@pytest.mark.parametrize(("alpha", "agrees"), [(0.35, True), (2 / 5, False), (2 / 5 - 1e-6, True)])
def test_a_long_answer_agrees_above_alpha(alpha: float, agrees: bool) -> None:
    """Answer and passage have 2 and 3 words, and one in common: 2 / 5."""
    driven = run("x", YesNo(p_positive=0.9, p_negative=0.1), *[AGAIN] * (not agrees), match="rouge", overlap=alpha)
    assert driven.answer.detail["nodes"][0]["verdict"] == ("confirmed" if agrees else "corrected")


def test_rouge_is_that_of_its_authors() -> None:
    rng, scorer = random.Random(1), rouge_scorer.RougeScorer(["rougeL"])
    for _ in range(200):
        text, other = (" ".join(rng.choices("abcde", k=rng.randrange(12))) for _ in range(2))
        assert rouge_l(text, other) == pytest.approx(scorer.score(other, text)["rougeL"].fmeasure, abs=1e-6)


def test_lines_that_are_no_marks_belong_to_the_value_before() -> None:
    text = "Sure!\n[Query 1]: Who?\n(said she)\n[Answer 1]: He,\nor she\n* [Query 2]: When?\n[Answer 2]: (none)\n[Query 3]:\n"
    nodes, final = parse_chain(f"{text}[Final Content]: So.")
    assert [(node.query, node.answer, node.is_unsolved) for node in nodes] == [("Who?", "He,\nor she", False), ("When?", "", False)]
    assert final == "So."


def test_a_query_that_was_searched_is_not_searched_again_unless_it_is_unsolved() -> None:
    chain = "[Query 1]: Who?\n[Answer 1]: Bob"
    read = [passages("one"), "Ann", YesNo(p_positive=0.9, p_negative=0.1)]
    driven = drive(
        searchain("Q?", SearChainOptions(max_rounds=3)),
        [chain, *read, f"{chain}\n[Query 2]: When?\n[Unsolved Query]: when", *read, f"{chain}\n[Unsolved Query]: When?", *read, AGAIN],
    )
    assert driven.queries == [("Who?",), ("When?",), ("When?",)]
    assert driven.answer.text == "she"
