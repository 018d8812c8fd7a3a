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
from wikidx.runtimes.evaluation.data_issues import issue_rules
from wikidx.runtimes.evaluation.outcomes import count_replies, find_answers, problem_masks
from wikidx.runtimes.evaluation.predictions import PredictionRow, Predictions, load_predictions
from wikidx.runtimes.evaluation.run_facts import run_facts
from wikidx.runtimes.evaluation.run_questions import RunQuestions, run_questions
from wikidx.runtimes.evaluation.scoring import ScoredRun, score_run
from wikidx.runtimes.execution.identity import questions_digest
from wikidx.runtimes.questions import Question, sample
from wikidx.runtimes.questions.base import gold

QUESTIONS = (
    Question("1", "one?", ("Paris",), gold(type="bridge")),
    Question("2", "two?", ("The",), gold(type="bridge")),
    Question("3", "three?", (), gold(type="comparison")),
    Question("4", "four?", ("x", "y")),
    Question("5", "five?", ("z",)),
)
SOURCE = RunQuestions(QUESTIONS, "dev.jsonl", "dev.jsonl")


def predictions(**answers: str | None | PredictionRow) -> Predictions:
    rows = {name[1:]: row if isinstance(row, PredictionRow) else PredictionRow(name[1:], row) for name, row in answers.items()}
    return Predictions(Path("run"), rows, {})


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
    unanswered = score_run("run", predictions(_1="x", _2=None), SOURCE, metrics("squad_em"))
    assert unanswered.values["squad_em"][1] == 0  # no answer is never right, although an empty text would be


def asked(id: str, text: str) -> PredictionRow:
    return PredictionRow(id, "Paris", question=text)


def test_an_answer_to_another_question_of_the_same_id_is_not_scored() -> None:
    scored = score_run("run", predictions(_1=asked("1", "One"), _2=asked("2", "what is two?")), SOURCE, metrics("squad_em"))
    assert issues_of(scored)["another question under this id"] == (1, ("2",))
    assert issues_of(scored)["questions without a prediction"] == (4, ("2", "3", "4", "5"))
    assert [row.answer for row in scored.rows] == ["Paris", None, None, None, None]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            predictions(_1=asked("1", "who?"), _9=asked("9", "one?")),
            "none of the 2 predictions in run is of the 5 questions from dev.jsonl: '1' was asked 'who",
        ),
        (predictions(_8="x"), "'8' is none's id: name the questions that were asked with --questions"),
    ],
)
def test_predictions_of_other_questions_are_refused(rows: Predictions, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        score_run("run", rows, SOURCE, metrics("squad_em"))


def test_the_rule_names_the_metrics_that_go_on_without_golds() -> None:
    source = RunQuestions((Question("1", "?"), Question("2", "?", ("x",))), "", "")
    plain = [metric for metric in METRICS.values() if not metric.name.startswith("flashrag_pattern")]
    values = score_run("run", predictions(_1=None, _2="x"), source, plain).values
    defined = {name for name, of_each in values.items() if not math.isnan(of_each[0])}
    assert defined == {"popqa_accuracy", "selfrag_match", *(name for name in values if name.startswith("flashrag_"))}
    rule = issue_rules()["questions without gold answers"]
    assert all(name in rule for name in ("popqa_accuracy", "selfrag_match", "flashrag_*", "squad2_*"))


@pytest.mark.parametrize(
    ("known", "n"), [(gold(answer_id="Q90", supporting=[["Paris", 0]]), 1), (gold(answer_id="Q90", aliases=["Lutetia"]), 0)]
)
def test_questions_whose_table_of_aliases_is_not_there(known: Any, n: int) -> None:  # noqa: ANN401 - gold data
    questions = (Question("1", "?", ("Paris",), known), Question("2", "?", ("no",)))
    found = issues_of(score_run("run", predictions(_1="x"), RunQuestions(questions, "", ""), []))
    assert found.get("questions without the table of aliases") == ((1, ("1",)) if n else None)


@pytest.mark.parametrize("n", [math.inf, math.nan, -(10**400), 1e300, True, "5"])
def test_a_cost_that_is_no_number_is_not_recorded(n: object) -> None:
    row = PredictionRow("1", "x", cost={"prompt_tokens": n, "completion_tokens": 1, "calls": 1})
    costs = score_run("run", predictions(_1=row), SOURCE, []).costs
    assert (costs["calls"][0], math.isnan(costs["prompt_tokens"][0]), math.isnan(costs["tokens"][0])) == (1, True, True)


def test_costs_are_nan_where_they_are_not_recorded() -> None:
    row = PredictionRow("1", "x", cost={"prompt_tokens": 10, "completion_tokens": 2, "calls": 1, "depth": 3}, timing={"seconds": 0.5})
    old = PredictionRow("2", "x", cost={"calls": 1, "waves": 2})  # the depth's name in older runs
    costs = score_run("run", predictions(_1=row, _2=old), SOURCE, []).costs
    assert [costs[cost][0] for cost in ("tokens", "calls", "depth", "seconds")] == [12, 1, 3, 0.5]
    assert costs["depth"][1] == 2
    assert np.isnan([costs["queries"][0], costs["tokens"][1]]).all()
    assert all(np.isnan(values[2:]).all() for values in costs.values())


def test_questions_of_each_type() -> None:
    types = score_run("run", predictions(_1="x", _2="", _3="y"), SOURCE, []).groups()["type"]
    assert {kind: of_kind.tolist() for kind, of_kind in types.items()} == {
        "bridge": [True, True, False, False, False],
        "comparison": [False, False, True, False, False],
    }
    assert score_run("run", predictions(_1="x", _2=""), SOURCE, []).groups() == {}  # one type alone is reached


PASSAGE = {"id": "1", "title": "Metals", "text": "Mercury is a liquid."}


@pytest.mark.parametrize(
    ("golds", "passages", "value"),
    [
        (("liquid",), [PASSAGE], 1.0),
        (("metals",), [PASSAGE], 1.0),  # in the title
        (("quid",), [PASSAGE], 0.0),  # whole words
        (("mercury", "yes"), [{}, PASSAGE], 1.0),
        (("yes", "No"), [{**PASSAGE, "text": "yes"}], np.nan),
        ((), [PASSAGE], np.nan),
        (("liquid",), [], np.nan),  # no prediction has passages
    ],
)
def test_whether_passages_hold_an_answer(golds: tuple[str, ...], passages: list[dict[str, str]], value: float) -> None:
    np.testing.assert_equal(find_answers([PredictionRow("1", "x", tuple(passages))], [Question("1", "?", golds)])[0], value)


def test_what_another_program_does_not_record_is_unknown() -> None:
    rows = [PredictionRow("1", "x"), PredictionRow("2", None)]
    found = {name: mask.tolist() for name, mask in problem_masks(rows).items()}
    assert found == {"failed": [False, False], "unanswered": [False, True], "empty": [False, False]}
    assert count_replies(rows) == {}


def numbered(n: int) -> list[Question]:
    return [Question(f"q{at}", f"number {at}?", (str(at),)) for at in range(n)]


def write(folder: Path, name: str, questions: Sequence[Question]) -> Path:
    lines = ({"id": one.id, "question": one.text, "golden_answers": one.golden_answers} for one in questions)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path, "nq-test.jsonl", numbered(6))


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


@pytest.mark.parametrize("named", [True, False])
def test_a_run_is_scored_on_what_it_was_to_ask(named: bool, file: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", file, numbered(6), 4)
    source = run_questions(run, str(file) if named else None)
    assert [one.id for one in source.questions] == ["q0", "q1", "q2", "q3"]
    assert (source.origin, source.n_missing, source.dataset) == (str(file), 0, "NQ")
    assert issues_of(score_run("run", run, source, metrics("squad_em"))) == {"questions without a prediction": (2, ("q2", "q3"))}
    drawn = sample(numbered(6), 3, seed=5)
    run = a_run(tmp_path / "sample", file, drawn, 3, sample={"n": 3, "seed": 5})
    assert run_questions(run, str(file) if named else None).questions == tuple(drawn)


def test_the_same_questions_in_another_format_are_those_of_the_sample_and_others_are_not(file: Path, tmp_path: Path) -> None:
    drawn = sample(numbered(6), 2, seed=5)
    run = a_run(tmp_path / "run", file, drawn, 2, sample={"n": 2, "seed": 5})
    more = [one._replace(golden_answers=(*one.golden_answers, "more")) for one in numbered(6)]
    source = run_questions(run, str(write(tmp_path, "other.jsonl", more)))
    assert source.questions == tuple(sample(more, 2, seed=5))
    assert "questions without a prediction" not in issues_of(score_run("run", run, source, metrics("squad_em")))
    source = run_questions(run, str(write(tmp_path, "other.jsonl", [one._replace(text=f"which {one.id}?") for one in more])))
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
    assert len(run_questions(predictions(_1="x"), "sample").questions) == 107
    with pytest.raises(InputError, match="does not tell its questions: name their file with --questions"):
        run_questions(predictions(_1="x"))


def test_what_a_run_was_made_with() -> None:
    script = {"backend": "scripted", "model": "/a/b/answers.jsonl", "sha256": "…"}
    searched = {"corpus": "wiki2018", "retriever": "bm25+minilm", "reranker": "simlm"}
    facts = run_facts({"settings": {"models": {"answer": script}, "search": searched}})
    assert facts == ("", "scripted:answers.jsonl", "bm25+minilm, reranked by simlm", "wiki2018", "", "", "")
    two = {"answer": {"backend": "openai", "model": "gpt-4o"}, "know": {"backend": "hf", "model": "meta/llama"}}
    assert run_facts({"settings": {"models": two, "search": None}}).model == "answer: gpt-4o, know: meta/llama"
    assert run_facts({}) == ("",) * 7
