"""Properties of every answer metric on any answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.alce_text import remove_citations
from wikidx.runtimes.evaluation.answers.metrics import METRICS, default_metrics
from wikidx.runtimes.questions import Question

PATTERNS = {"flashrag_pattern_em", "flashrag_pattern_acc"}  # golds are regular expressions
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
    figures = {name: METRICS[name].score(gold, question) for name in METRICS.keys() - PATTERNS - LABELLED - {"strategyqa_accuracy"}}
    assert figures == pytest.approx(dict.fromkeys(figures, 1.0), abs=1e-8)


@given(ANSWERS, GOLDS)
def test_exact_match_implies_the_looser_figures(answer: str, golds: tuple[str, ...]) -> None:
    figures = {name: METRICS[name].score(answer, Question("1", "?", golds)) or 0.0 for name in METRICS.keys() - PATTERNS}
    assert figures["squad_em"] <= figures["flashrag_acc"]
    assert figures["flashrag_em"] <= figures["flashrag_acc"]
    assert figures["kilt_accuracy"] <= figures["kilt_em"]
    assert figures["flashrag_f1"] <= figures["squad_f1"]  # which has partial credit for yes and no
    assert figures["hotpotqa_f1"] <= max(figures["hotpotqa_precision"], figures["hotpotqa_recall"]) + 1e-12


@pytest.mark.parametrize("label", ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"])
def test_a_label_itself_is_right(label: str) -> None:
    names = LABELLED - {"selfrag_fever_match"}
    assert [METRICS[name].score(label, Question("1", "?", (), {"label": label})) for name in names] == [1, 1, 1]


def test_selfrag_reads_two_of_the_labels() -> None:
    score = METRICS["selfrag_fever_match"].score
    given = [("SUPPORTS", "SUPPORTS"), ("#true", "SUPPORTS"), ("it REFUTES it", "REFUTES"), ("", "REFUTES"), ("true", "NOT ENOUGH INFO")]
    assert [score(answer, Question("1", "?", (), {"label": label})) for answer, label in given] == [1, 1, 1, 0, None]


def test_without_golds_a_figure_is_the_evaluators_or_none() -> None:
    zero = {"squad2_em", "squad2_f1", "popqa_accuracy", "selfrag_match"} | {name for name in METRICS if name.startswith("flashrag")}
    for answer in ("Paris", ""):
        figures = {name: metric.score(answer, Question("1", "?")) for name, metric in METRICS.items()}
        assert {name for name, figure in figures.items() if figure is not None} == zero
        assert {name for name, figure in figures.items() if figure == 1.0} == (set() if answer else {"squad2_em", "squad2_f1"})


def test_kilt_scores_a_blank_answer_0_even_if_a_gold_normalises_to_nothing() -> None:
    question = Question("1", "?", ("The", " "))
    assert [METRICS[name].score(" \n", question) for name in KILT] == [0.0, 0.0, 0.0, 0.0]
    assert METRICS["kilt_em"].score("a", question) == 1.0
    for answer in ("a", "", " "):
        assert [METRICS[name].score(answer, Question("1", "?", (" ",))) for name in KILT] == [None] * 4


@given(st.text())
def test_normalising_again_changes_nothing(text: str) -> None:
    for normalise in (normalizing.squad, normalizing.dpr, normalizing.triviaqa):
        assert normalise(normalise(text)) == normalise(text)


def test_strategyqa_reads_a_plain_yes_or_no() -> None:
    score = METRICS["strategyqa_accuracy"].score
    yes = Question("1", "?", ("yes",))
    assert [score(answer, yes) for answer in ("Yes.", "true", "no", "Yes, they can", "")] == [1, 1, 0, 0, 0]
    assert score("yes", Question("1", "?", ("Paris",))) is None


def test_asqas_authors_score_the_whole_answer_and_alce_its_first_line() -> None:
    question = Question("1", "?", (), {"answer_groups": [["Paris"], ["New York"]]})
    answer = "New [1] York.\nParis."
    assert [METRICS[name].score(answer, question) for name in ("asqa_str_em", "alce_str_em", "alce_str_hit")] == [0.5, 0.5, 0.0]
    assert METRICS["alce_str_em"].score("New [1] York, Paris [2].", question) == 1.0
    assert METRICS["asqa_str_em"].score("New York\nParis", question) == 1.0


def test_alce_takes_every_closing_bracket_and_bar_for_part_of_a_citation() -> None:
    assert remove_citations("Rome [1][2] | is 19[3]99 [a]") == "Rome is 1999 [a"


@pytest.mark.parametrize("gold", [")", "*NSYNC", "a{9999999999}"])
def test_pattern_metrics_are_not_defined_where_a_gold_is_no_pattern(gold: str) -> None:
    question = Question("1", "?", ("Paris", gold))
    assert [METRICS[name].score("Paris", question) for name in sorted(PATTERNS)] == [None, None]
    assert [METRICS[name].score("in Paris", Question("1", "?", ("P[a]ris",))) for name in sorted(PATTERNS)] == [1.0, 0.0]


HOTPOTQA = ["hotpotqa_em", "hotpotqa_f1", "hotpotqa_precision", "hotpotqa_recall"]
TWOWIKI = ["twowiki_em", "twowiki_f1", "twowiki_precision", "twowiki_recall"]
KILT = ["kilt_accuracy", "kilt_em", "kilt_f1", "kilt_rouge_l"]


@pytest.mark.parametrize(
    ("questions", "names"),
    [
        ([], []),
        ([Question("1", "?")], []),
        ([Question("1", "?", ("Paris",)), Question("2", "?", ("yes",))], ["squad_em", "squad_f1", "flashrag_acc"]),
        ([Question("1", "?", ("no",)), Question("2", "?", ("yes",))], ["strategyqa_accuracy"]),
        ([Question("1", "?", ("yes",), {"supporting": [["A", 0]]})], [*HOTPOTQA, "flashrag_acc"]),
        (
            [
                Question("1", "?", ("A", "B"), {"supporting": [["A", 0]], "aliases": ["B"]}),
                Question("2", "?", ("C",), {"supporting": [["A", 0]]}),
            ],
            [*TWOWIKI, "flashrag_acc"],
        ),
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
