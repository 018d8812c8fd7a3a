"""Scores of hand-made predictions against values that can be counted by eye."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.answers.metrics import METRICS, Metric
from wikidx.runtimes.evaluation.by_models.row_metrics import RowValues
from wikidx.runtimes.evaluation.data_issues import issue_rules
from wikidx.runtimes.evaluation.predictions import PredictionRow, Predictions, load_predictions
from wikidx.runtimes.evaluation.run_facts import run_facts
from wikidx.runtimes.evaluation.run_questions import RunQuestions, run_questions
from wikidx.runtimes.evaluation.scoring import ScoredRun, score_run
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.execution.identity import questions_digest
from wikidx.runtimes.questions import Question
from wikidx.runtimes.questions.base import gold

QUESTIONS = (
    Question("1", "one?", ("Paris",), gold(type="bridge")),
    Question("2", "two?", ("The",), gold(type="bridge")),
    Question("3", "three?", (), gold(type="comparison")),
    Question("4", "four?", ("x", "y")),
    Question("5", "five?", ("z",)),
)
SOURCE = RunQuestions(QUESTIONS, "dev.jsonl", "dev.jsonl")


def predictions(**answers: str | None) -> Predictions:
    return Predictions(Path("run"), {name[1:]: PredictionRow(name[1:], answer) for name, answer in answers.items()}, {})


def metrics(*names: str) -> list[Metric]:
    return [METRICS[name] for name in names]


def issues_of(run: ScoredRun) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {issue.issue: (issue.n, issue.examples) for issue in run.data_issues}


def test_values_and_data_issues() -> None:
    scored = score_run(
        "run", predictions(_1="paris!", _2="", _3="x", _4=None, _9="z"), SOURCE, metrics("squad_em", "squad2_em", "flashrag_acc")
    )
    # 2: the empty answer equals a gold that normalises to nothing. 3: without golds; SQuAD 2.0 wants nothing said. 4, 5: no answer.
    np.testing.assert_array_equal(scored.values["squad_em"], [1, 1, math.nan, 0, 0])
    np.testing.assert_array_equal(scored.values["squad2_em"], [1, 1, 0, math.nan, math.nan])
    assert scored.values["flashrag_acc"][1] == 1
    assert issues_of(scored) == {
        "ids without a question": (1, ("9",)),
        "questions without a prediction": (1, ("5",)),
        "empty answers": (1, ("2",)),
        "questions without gold answers": (1, ("3",)),
        "golds that normalise to nothing": (1, ("2",)),
    }
    assert set(issues_of(scored)) <= set(issue_rules())
    assert [row.id for row in scored.rows] == ["1", "2", "3", "4", "5"]


def test_no_answer_is_never_right_although_an_empty_text_would_be() -> None:
    golds = (Question("1", "?", ("The",)), Question("2", "?", ("x",)))
    source = RunQuestions(golds, "", "")
    for answer, value in ((None, 0.0), ("", 1.0)):
        assert score_run("run", predictions(_1=answer), source, metrics("squad_em")).values["squad_em"][0] == value
    assert score_run("run", predictions(_2="x"), source, metrics("squad_em")).values["squad_em"][0] == 0.0


def answered_questions(**texts: str) -> Predictions:
    """Predictions "Paris" with the question of each id."""
    return Predictions(Path("run"), {name[1:]: PredictionRow(name[1:], "Paris", question=text) for name, text in texts.items()}, {})


def test_an_answer_to_another_question_of_the_same_id_is_not_scored() -> None:
    scored = score_run("run", answered_questions(_1="One", _2="what is two?"), SOURCE, metrics("squad_em"))
    assert issues_of(scored)["another question under this id"] == (1, ("2",))
    assert issues_of(scored)["questions without a prediction"] == (4, ("2", "3", "4", "5"))
    assert [row.answer for row in scored.rows] == ["Paris", None, None, None, None]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            answered_questions(_1="who?", _9="one?"),
            "none of the 2 predictions in run is of the 5 questions from dev.jsonl: '1' was asked 'who",
        ),
        (predictions(_8="x"), "'8' is none's id: name the questions that were asked with --questions"),
    ],
)
def test_predictions_of_other_questions_are_refused(rows: Predictions, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        score_run("run", rows, SOURCE, metrics("squad_em"))


def test_without_golds_a_metric_is_not_defined_although_nothing_was_answered() -> None:
    """Undefined values are those of all metrics except the ones that the rule names."""
    source = RunQuestions((Question("1", "?"), Question("2", "?", ("x",))), "", "")
    plain = [metric for metric in METRICS.values() if not metric.name.startswith("flashrag_pattern")]
    for answer in ("", None, "x"):
        values = score_run("run", predictions(_1=answer, _2="x"), source, plain).values
        defined = {name for name, of_each in values.items() if not math.isnan(of_each[0])}
        goes_on = {"popqa_accuracy", "selfrag_match", *(name for name in values if name.startswith("flashrag_"))}
        assert defined == goes_on | ({"squad2_em", "squad2_f1"} if answer is not None else set())
        assert all(values[name][0] == 0 for name in goes_on)
    assert all(
        name in issue_rules()["questions without gold answers"] for name in ("popqa_accuracy", "selfrag_match", "flashrag_*", "squad2_*")
    )


def test_questions_whose_table_of_aliases_is_not_there() -> None:
    known = gold(answer_id="Q90", supporting=[["Paris", 0]])
    questions = (Question("1", "?", ("Paris",), known), Question("2", "?", ("no",)))
    assert issues_of(score_run("run", predictions(_1="x"), RunQuestions(questions, "", ""), []))[
        "questions without the table of aliases"
    ] == (1, ("1",))
    named = (questions[0]._replace(gold=gold(**known, aliases=["Lutetia"])), Question("2", "?", ("no",), gold(answer_id="Q1")))
    assert "questions without the table of aliases" not in issues_of(score_run("run", predictions(_1="x"), RunQuestions(named, "", ""), []))


@pytest.mark.parametrize("n", [math.inf, math.nan, 10**400, -(10**400), 1e300, True, "5"])
def test_a_cost_that_is_no_number_is_not_recorded(n: object) -> None:
    row = PredictionRow("1", "x", cost={"prompt_tokens": n, "completion_tokens": 1, "calls": 1})
    scored = score_run("run", Predictions(Path("run"), {"1": row}, {}), SOURCE, [])
    assert math.isnan(scored.costs["prompt_tokens"][0])
    assert (scored.costs["calls"][0], math.isnan(scored.costs["tokens"][0])) == (1, True)


def test_questions_of_each_type() -> None:
    types = score_run("run", predictions(_1="x", _2="", _3="y"), SOURCE, []).groups()["type"]
    assert {kind: of_kind.tolist() for kind, of_kind in types.items()} == {
        "bridge": [True, True, False, False, False],
        "comparison": [False, False, True, False, False],
    }
    assert score_run("run", predictions(_1="x", _2=""), SOURCE, []).groups() == {}  # one type alone is reached
    of_one_kind = RunQuestions(QUESTIONS[:2], "", "")
    assert score_run("run", predictions(_1="x"), of_one_kind, []).groups() == {}


def test_costs_are_nan_where_they_are_not_recorded() -> None:
    row = PredictionRow("1", "x", cost={"prompt_tokens": 10, "completion_tokens": 2, "calls": 1, "depth": 3}, timing={"seconds": 0.5})
    scored = score_run("run", Predictions(Path("run"), {"1": row, "2": PredictionRow("2", "y")}, {}), SOURCE, [])
    assert [scored.costs[cost][0] for cost in ("tokens", "calls", "depth", "seconds")] == [12, 1, 3, 0.5]
    assert np.isnan(scored.costs["queries"][0])
    assert all(np.isnan(values[1:]).all() for values in scored.costs.values())


def test_the_depth_of_older_runs_is_read_under_its_former_name() -> None:
    row = PredictionRow("1", "x", cost={"calls": 1, "depth": 2})
    scored = score_run("run", Predictions(Path("run"), {"1": row}, {}), SOURCE, [])
    assert scored.costs["depth"][0] == 2


class AnswerLength:
    """A row metric of the test's own."""

    def metadata(self) -> dict[str, Any]:
        return {"rule": "characters / 10"}

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> RowValues:
        assert [row.id for row in rows] == [question.id for question in questions]
        return RowValues({"length": np.array([len(row.answer or "") / 10 for row in rows])}, {"without an answer": 4})

    def __call__(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> dict[str, FloatArray]:
        return self.measure(rows, questions).values


def test_metrics_of_whole_rows() -> None:
    scored = score_run("run", predictions(_1="abc"), SOURCE, metrics("squad_em"), [AnswerLength()])
    assert scored.values["length"].tolist() == [0.3, 0, 0, 0, 0]
    assert scored.row_metrics == {"AnswerLength": {"values": ["length"], "rule": "characters / 10", "counts": {"without an answer": 4}}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nq-test.jsonl"
    lines = (json.dumps({"id": f"q{n}", "question": f"number {n}?", "golden_answers": [str(n)]}) + "\n" for n in range(6))
    path.write_text("".join(lines))
    return path


def a_run(folder: Path, file: object, source: list[Question], n: int, **selection: object) -> Predictions:
    """Write what ``idx run`` writes, of questions of which two are answered so far."""
    digest = questions_digest([(one.id, one.text, one.golden_answers) for one in source])
    settings = {"method": "rag", "questions": {"sha256": digest, "n": len(source), **selection}}
    about = {"format": 1, "settings": settings, "sessions": [{"questions": n, "source": {"file": str(file), "format": None}}]}
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(about))
    records = ({"id": one.id, "question": one.text, "answer": "1", "error": None, "golden_answers": ["1"]} for one in source[:2])
    (folder / "predictions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return load_predictions(folder)


def numbered(n: int) -> list[Question]:
    return [Question(f"q{at}", f"number {at}?", (str(at),)) for at in range(n)]


@pytest.mark.parametrize("named", [True, False])
def test_a_run_is_scored_on_what_it_was_to_ask(named: bool, file: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", file, numbered(6), 4)
    source = run_questions(run, str(file) if named else None)
    assert [one.id for one in source.questions] == ["q0", "q1", "q2", "q3"]
    assert (source.origin, source.n_missing, source.dataset) == (str(file), 0, "NQ")
    assert issues_of(score_run("run", run, source, metrics("squad_em"))) == {"questions without a prediction": (2, ("q2", "q3"))}


def test_a_drawn_sample_is_drawn_again(file: Path, tmp_path: Path) -> None:
    from wikidx.runtimes.questions import sample

    drawn = sample(numbered(6), 3, seed=5)
    run = a_run(tmp_path / "run", file, drawn, 3, sample={"n": 3, "seed": 5})
    assert run_questions(run).questions == tuple(drawn)
    assert run_questions(run, str(file)).questions == tuple(drawn)


def test_the_same_questions_in_another_format_are_those_of_the_sample(file: Path, tmp_path: Path) -> None:
    from wikidx.runtimes.questions import sample

    drawn = sample(numbered(6), 2, seed=5)
    run = a_run(tmp_path / "run", file, drawn, 2, sample={"n": 2, "seed": 5})
    other = tmp_path / "other.jsonl"
    lines = ({"id": f"q{n}", "question": f"number {n}?", "golden_answers": [str(n), "more"]} for n in range(6))
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = run_questions(run, str(other))
    assert [one.id for one in source.questions] == [one.id for one in drawn]
    assert source.questions[0].golden_answers[1:] == ("more",)
    assert "questions without a prediction" not in issues_of(score_run("run", run, source, metrics("squad_em")))


def test_other_questions_under_the_ids_of_a_run_are_not_its_own(file: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", file, numbered(6), 3)
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"id": f"q{n}", "question": f"which {n}?", "golden_answers": ["x"]}) + "\n" for n in range(6)))
    source = run_questions(run, str(other))
    assert len(source.questions) == 6
    with pytest.raises(InputError, match="none of the 2 predictions"):
        score_run("run", run, source, metrics("squad_em"))


def test_a_file_that_has_changed_is_refused_and_another_one_counts_whole(file: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", file, numbered(5), 2)
    with pytest.raises(InputError, match="does not hold the questions of"):
        run_questions(run)
    assert len(run_questions(run, str(file)).questions) == 6


def test_questions_of_a_file_that_is_gone_are_those_of_the_predictions(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "gone/hotpot_dev.json", numbered(6), 6)
    source = run_questions(run)
    assert (len(source.questions), source.n_missing, source.dataset) == (2, 4, "HotpotQA")
    assert source.origin == "the predictions, because gone/hotpot_dev.json is missing"
    assert issues_of(score_run("run", run, source, metrics("squad_em"))) == {"questions not reached": (4, ())}


def test_the_sample_corpus_and_predictions_that_tell_nothing(tmp_path: Path) -> None:
    assert len(run_questions(predictions(_1="x"), "sample").questions) == 107
    with pytest.raises(InputError, match="does not tell its questions: name their file with --questions"):
        run_questions(predictions(_1="x"))


def test_what_a_run_was_made_with() -> None:
    script = {"backend": "scripted", "model": "/a/b/answers.jsonl", "sha256": "…"}
    searched = {"corpus": "wiki2018", "retriever": "bm25+minilm", "reranker": "simlm"}
    options = {"k": {"value": 5, "default": 5, "origin": "ours"}}
    facts = run_facts({"settings": {"method": "rag", "options": options, "models": {"answer": script}, "search": searched, "seed": 3}})
    assert facts == ("rag", "scripted:answers.jsonl", "bm25+minilm, reranked by simlm", "wiki2018", "3", "5", "")
    two = {"answer": {"backend": "openai", "model": "gpt-4o"}, "know": {"backend": "hf", "model": "meta/llama"}}
    assert run_facts({"settings": {"models": two, "search": None}}).model == "answer: gpt-4o, know: meta/llama"
    assert run_facts({}) == ("",) * 7
