"""Properties of every answer metric on any answer."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.alce_text import remove_citations
from wikidx.runtimes.evaluation.answers.metrics import METRICS, default_metrics
from wikidx.runtimes.questions import Question

PATTERNS = ["flashrag_pattern_acc", "flashrag_pattern_em"]  # golds are regular expressions
ASQA = ["asqa_str_em", "alce_str_em", "alce_str_hit"]
OF_TWO = Question("1", "?", (), {"answer_groups": [["Paris"], ["New York"]]})
KILT = ["kilt_accuracy", "kilt_em", "kilt_f1", "kilt_rouge_l"]
LABELLED = {"fever_label_accuracy", "react_fever_em", "genread_fever_hit", "selfrag_fever_match"}  # scored by the label
FIRST_GOLD = {"hotpotqa_em", "hotpotqa_f1", "hotpotqa_precision", "hotpotqa_recall", "selfrag_accuracy"}

INTERMEDIATE = st.sampled_from(
    ["Paris", "paris", "the", "a", "New York", "twenty-one", "no", "yes", "...", " ", "\n", "é", "e\u0301", "a²", "1,000", "[1]", "."]
)
ANSWERS = st.lists(INTERMEDIATE, max_size=6).map(" ".join) | st.text(max_size=20)
GOLDS = st.lists(ANSWERS, max_size=4).map(tuple)
LABELS = st.sampled_from(["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"])
QUESTIONS = st.builds(
    lambda golds, label, groups: Question(
        "1", "?", golds, {"label": label, "answer_groups": groups, "long_answers": list(golds), "aliases": list(golds[1:])}
    ),
    GOLDS,
    LABELS,
    st.lists(GOLDS, max_size=3),
)
WORD = st.from_regex(r"[b-z][a-z]{3,8}", fullmatch=True)


def test_every_metric_tells_its_origin_and_its_rule() -> None:
    assert all(name == metric.name and metric.origin.endswith(".") for name, metric in METRICS.items())
    assert {name for name, metric in METRICS.items() if metric.missing is None} == {"squad2_em", "squad2_f1"}


@given(ANSWERS, QUESTIONS)
def test_figures_lie_between_0_and_1(answer: str, question: Question) -> None:
    for name in METRICS:
        figure = METRICS[name].score(answer, question)
        assert figure is None or (type(figure) is float and 0 <= figure <= 1), name


@given(ANSWERS, GOLDS.flatmap(lambda golds: st.tuples(st.just(golds), st.permutations(golds).map(tuple))))
def test_the_order_of_golds_does_not_matter(answer: str, orders: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    questions = [Question("1", "?", golds) for golds in orders]
    for name in METRICS.keys() - FIRST_GOLD:
        one, other = (METRICS[name].score(answer, question) for question in questions)
        assert one == other, name


@given(st.lists(WORD, min_size=1, max_size=5).map(" ".join), GOLDS)
def test_a_gold_itself_is_right(gold: str, others: tuple[str, ...]) -> None:
    question = Question("1", "?", (gold, *others), {"answer_groups": [[gold]], "long_answers": [gold]})
    figures = {name: METRICS[name].score(gold, question) for name in METRICS.keys() - {*PATTERNS} - LABELLED - {"strategyqa_accuracy"}}
    assert figures == pytest.approx(dict.fromkeys(figures, 1.0), abs=1e-8)


@given(ANSWERS, GOLDS)
def test_exact_match_implies_the_looser_figures(answer: str, golds: tuple[str, ...]) -> None:
    figures = {name: METRICS[name].score(answer, Question("1", "?", golds)) or 0.0 for name in METRICS.keys() - {*PATTERNS}}
    assert figures["squad_em"] <= figures["flashrag_acc"]
    assert figures["flashrag_em"] <= figures["flashrag_acc"]
    assert figures["kilt_accuracy"] <= figures["kilt_em"]
    assert figures["flashrag_f1"] <= figures["squad_f1"]  # which has partial credit for yes and no
    assert figures["hotpotqa_f1"] <= max(figures["hotpotqa_precision"], figures["hotpotqa_recall"]) + 1e-12


def scores(names: Iterable[str], answer: str, question: Question) -> list[float | None]:
    return [METRICS[name].score(answer, question) for name in names]


@pytest.mark.parametrize(
    ("answer", "label", "figure"),
    [("#true", "SUPPORTS", 1), ("it REFUTES it", "REFUTES", 1), ("", "REFUTES", 0), ("true", "NOT ENOUGH INFO", None)],
)
def test_a_label_itself_is_right_and_selfrag_reads_two_of_them(answer: str, label: str, figure: float | None) -> None:
    question = Question("1", "?", (), {"label": label})
    assert scores(LABELLED - {"selfrag_fever_match"}, label, question) == [1, 1, 1]
    assert scores(["selfrag_fever_match"], answer, question) == [figure]


def test_without_golds_a_figure_is_the_evaluators_or_none() -> None:
    zero = {"squad2_em", "squad2_f1", "popqa_accuracy", "selfrag_match"} | {name for name in METRICS if name.startswith("flashrag")}
    for answer in ("Paris", ""):
        figures = {name: metric.score(answer, Question("1", "?")) for name, metric in METRICS.items()}
        assert {name for name, figure in figures.items() if figure is not None} == zero
        assert {name for name, figure in figures.items() if figure == 1.0} == (set() if answer else {"squad2_em", "squad2_f1"})


def test_kilt_scores_a_blank_answer_0_even_if_a_gold_normalises_to_nothing() -> None:
    assert scores(KILT, " \n", Question("1", "?", ("The", " "))) == [0.0] * 4
    assert scores(["kilt_em"], "a", Question("1", "?", ("The", " "))) == [1.0]
    assert scores(KILT, "a", Question("1", "?", (" ",))) == scores(KILT, " ", Question("1", "?", (" ",))) == [None] * 4


@given(st.text())
def test_normalising_again_changes_nothing(text: str) -> None:
    for normalise in (normalizing.squad, normalizing.dpr, normalizing.triviaqa):
        assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("names", "answer", "question", "figures"),
    [
        (["strategyqa_accuracy"], "Yes.", Question("1", "?", ("yes",)), [1]),
        (["strategyqa_accuracy"], "true", Question("1", "?", ("yes",)), [1]),
        (["strategyqa_accuracy"], "Yes, they can", Question("1", "?", ("yes",)), [0]),
        (["strategyqa_accuracy"], "yes", Question("1", "?", ("Paris",)), [None]),
        (ASQA, "New [1] York.\nParis.", OF_TWO, [0.5, 0.5, 0.0]),  # ASQA's authors score the whole answer, ALCE its first line
        (ASQA, "New York\nParis", OF_TWO, [1.0, 0.5, 0.0]),
        (ASQA[1:], "New [1] York, Paris [2].", OF_TWO, [1.0, 1.0]),
        (PATTERNS, "Paris", Question("1", "?", ("Paris", ")")), [None, None]),  # no pattern
        (PATTERNS, "Paris", Question("1", "?", ("Paris", "a{9999999999}")), [None, None]),
        (PATTERNS, "in Paris", Question("1", "?", ("P[a]ris",)), [1.0, 0.0]),
    ],
)
def test_answers_by_hand(names: list[str], answer: str, question: Question, figures: list[float | None]) -> None:
    assert scores(names, answer, question) == figures


def test_alce_takes_every_closing_bracket_and_bar_for_part_of_a_citation() -> None:
    assert remove_citations("Rome [1][2] | is 19[3]99 [a]") == "Rome is 1999 [a"


MORE = Question("2", "?", ("C",), {"supporting": [["A", 0]]})
HOTPOTQA = ["hotpotqa_em", "hotpotqa_f1", "hotpotqa_precision", "hotpotqa_recall"]
TWOWIKI = ["twowiki_em", "twowiki_f1", "twowiki_precision", "twowiki_recall"]


@pytest.mark.parametrize(
    ("questions", "names"),
    [
        ([], []),
        ([Question("1", "?")], []),
        ([Question("1", "?", ("Paris",)), Question("2", "?", ("yes",))], ["squad_em", "squad_f1", "flashrag_acc"]),
        ([Question("1", "?", ("no",)), Question("2", "?", ("yes",))], ["strategyqa_accuracy"]),
        ([Question("1", "?", ("yes",), {"supporting": [["A", 0]]})], [*HOTPOTQA, "flashrag_acc"]),
        ([Question("1", "?", ("A",), {"supporting": [["A", 0]], "aliases": ["B"]}), MORE], [*TWOWIKI, "flashrag_acc"]),
        ([Question("1", "?", ("A",), {"supporting": [["A", 0]], "answer_id": "Q1"})], [*TWOWIKI, "flashrag_acc"]),
        ([Question("1", "?", ("A", "B"), {"supporting": [["A", 0]]})], [*TWOWIKI, "flashrag_acc"]),
        ([Question("1", "?", ("Paris",), {"popularity": 7})], ["popqa_accuracy", "selfrag_match", "flashrag_acc"]),
        ([Question("1", "?", ("SUPPORTS",), {"label": "SUPPORTS"})], ["fever_label_accuracy", "react_fever_em"]),
        (
            [Question("1", "?", ("Paris",), {"answer_groups": [["Paris"]], "long_answers": ["In Paris."]})],
            ["alce_str_em", "alce_str_hit", "alce_rouge_lsum"],
        ),
        ([Question("1", "?", ("Hi.",), {"provenance": [[{"wikipedia_id": "1"}]], "long_answers": ["Hi."]})], KILT),
        ([Question("1", "?", ("Hi.",), {"wrong_answers": ["Ho."]})], []),
    ],
)
def test_the_metrics_that_apply(questions: list[Question], names: list[str]) -> None:
    assert default_metrics(questions) == names
