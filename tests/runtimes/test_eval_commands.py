"""``idx eval answers`` and ``idx eval compare``: the sample corpus from run to report, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
from wikidx.corpora.known import sample
from wikidx.runtimes.questions import sample_questions

Script = Callable[..., str]

SAMPLE = ("--corpus", "sample", "--questions", "sample")


@pytest.fixture
def runs(idx: Command, script: Script, sample_home: Path, tmp_path: Path) -> dict[str, Path]:
    """Run two methods over the sample's questions: ``direct`` knows a third of the answers, ``rag`` two thirds, one in a sentence."""
    rng, folders = random.Random(8), dict[str, Path]()
    for method, knows in (("direct", 1 / 3), ("rag", 2 / 3)):
        answers = [{"match": one.question, "text": one.answers[0] if rng.random() < knows else "unknown"} for one in sample.questions()]
        if method == "rag":
            answers[0]["text"] = f"It is {sample.questions()[0].answers[0]}."
            answers[1]["text"] = ""
        folders[method] = tmp_path / method
        idx("run", method, *SAMPLE, "--llm", script(*answers), "--out", folders[method])
    return folders


@pytest.mark.usefixtures("sample_home")
def test_questions_and_sub_questions_are_counted_by_module(idx: Command, script: Script, tmp_path: Path) -> None:
    """One question that the model knows, and one of two sub-questions: of passages, and known."""
    model = script(
        {"role": "know", "match": "Which river", "text": "yes"},
        {"role": "relevance", "match": "Question: What runs through Cairo?", "text": "yes"},
        {"role": "decompose", "text": "1. What runs through Cairo?\n2. Which river is it?"},
        {"role": "answer", "text": "the Nile"},
        {"match": "", "text": "no"},
    )
    file = tmp_path / "rivers.jsonl"
    file.write_text('{"id": "a", "question": "Which river is long?"}\n{"id": "b", "question": "How long is it?"}\n')
    idx("run", "ra_isf", "--questions", file, "--corpus", "sample", "--llm", model, "--set", "k=1", "--out", tmp_path / "out")
    report = json.loads(idx("eval", "answers", tmp_path / "out", "--metrics", "flashrag_acc", "--json"))
    shares = {"self-knowledge": 0.5, "passage relevance": 0.25, "decomposition": 0.25, "fallback": 0, "unanswered": 0}
    assert report["modules"] == {module: {"n": 4 * share, "share": share} for module, share in shares.items()}
    assert (report["costs"]["sub_questions"]["mean"], report["costs"]["searches"]["mean"]) == (1.0, 1.0)
    rows = [line.split() for line in idx("eval", "answers", tmp_path / "out", "--metrics", "flashrag_acc").splitlines()]
    assert ["4", "50.0", "25.0", "25.0", "0.0", "0.0"] in rows


def said_right(run: Path) -> list[bool]:
    """Return which questions a run answered with the gold answer, letter for letter."""
    answers = {record["id"]: record["answer"] for record in map(json.loads, (run / "predictions.jsonl").read_text().splitlines())}
    return [answers[one.id] in one.answers for one in sample.questions()]


def test_the_sample_corpus_from_run_to_report(idx: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    right = {name: said_right(run) for name, run in runs.items()}
    n_right = sum(right["rag"])
    assert 50 < n_right < 90

    found = json.loads(idx("eval", "answers", runs["rag"], "--json", "--per-question", tmp_path / "each.jsonl"))
    assert (found["dataset"], found["questions"], found["questions_from"], found["method"], found["retriever"]) == (
        "sample",
        107,
        "sample",
        "rag",
        "bm25",
    )
    em, contained = found["metrics"]["squad_em"], found["metrics"]["flashrag_acc"]
    assert (em["mean"], em["n"]) == (pytest.approx(n_right / 107), 107)
    assert contained["mean"] == pytest.approx((n_right + 1) / 107)  # the answer in a sentence
    assert 0 < em["low"] < em["mean"] < em["high"] < 1
    assert found["costs"]["calls"]["sum"] == 107
    assert found["data_issues"] == {
        "empty answers": {"n": 1, "rule": "scored by each metric's own rule", "examples": [sample.questions()[1].id]}
    }
    each = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    assert [one["metrics"]["squad_em"] == 1 for one in each] == right["rag"]

    page = tmp_path / "report.html"
    report = json.loads(idx("eval", "compare", runs["direct"], runs["rag"], "--json", "--html", page))
    (difference,) = (one for one in report["differences"] if one["metric"] == "squad_em")
    pairs = list(zip(right["rag"], right["direct"], strict=True))
    assert (difference["first"], difference["second"], difference["n"]) == ("rag", "direct", 107)
    assert (difference["wins"], difference["losses"]) == (pairs.count((True, False)), pairs.count((False, True)))
    assert difference["difference"] == pytest.approx((n_right - sum(right["direct"])) / 107)
    assert difference["p"] < 0.01
    assert report["papers"] == []  # none is on the sample corpus
    text = page.read_text(encoding="utf-8")
    assert text.count("<img ") == 7  # three metrics, the searches, three costs
    assert "http://" not in text
    assert "https://" not in text


def test_the_same_figures_as_text_and_markdown(idx: Command, runs: dict[str, Path]) -> None:
    text, marked = idx("eval", "answers", runs["rag"]), idx("eval", "answers", runs["rag"], "--format", "markdown")
    line = next(line for line in text.splitlines() if line.startswith("squad_em "))
    name, mean, low, high, *_ = line.split()
    assert f"| {name} | {mean} {low} {high} | 107 | 0 | 107 of 107 |" in marked.splitlines()
    assert "exact_match of SQuAD v1.1" in text
    assert marked.startswith("# rag on sample\n")
    compared = idx("eval", "compare", runs["rag"], runs["direct"], "--format", "markdown")
    assert "| sample | squad_em | direct - rag |" in compared


def test_the_papers_figures_beside_ours_on_their_data_set(idx: Command, runs: dict[str, Path]) -> None:
    options = ("--dataset", "NQ", "--metrics", "dpr_em,genread_f1")
    report = json.loads(idx("eval", "compare", runs["rag"], runs["direct"], *options, "--json"))
    (raisf,) = (one for one in report["papers"] if one["paper"] == "RA-ISF" and one["system"] == "RAG" and one["model"] == "llama2-13b")
    assert (raisf["value"], raisf["our_metric"], raisf["note"]) == (pytest.approx(0.216), "dpr_em", "the paper's own figure")
    assert [own["run"] for own in raisf["own_results"]] == ["rag"]
    assert "retriever: Contriever-MS-MARCO / bm25" in raisf["own_results"][0]["differences"]
    assert all(one["method"] in ("rag", "direct") for one in report["papers"])
    text = idx("eval", "compare", runs["rag"], *options, "--every-figure")
    assert "RECOMP" not in text  # an accuracy, which is not among these metrics
    assert "Self-RAG_13B" in text


def test_predictions_of_another_program(idx: Command, tmp_path: Path) -> None:
    questions = sample_questions()
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({**{one.id: one.golden_answers[0] for one in questions[:50]}, "not-there": "x", questions[50].id: 7}))
    report = json.loads(idx("eval", "answers", file, "--questions", "sample", "--metrics", "squad_em", "--json"))
    assert report["metrics"]["squad_em"]["mean"] == pytest.approx(50 / 107)
    assert {kind: issue["n"] for kind, issue in report["data_issues"].items()} == {
        "answers that are numbers": 1,
        "ids without a question": 1,
        "questions without a prediction": 56,
    }
    assert report["costs"]["tokens"]["mean"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["answers", "{file}"], "does not tell its questions: name their file with --questions"),
        (["answers", "{file}", "--questions", "sample", "--metrics", "squad_emm"], "unknown metric 'squad_emm'"),
        (["answers", "{file}", "--questions", "{bare}"], "no metric applies to the questions"),
        (["answers", "{file}", "--questions", "sample", "--metrics", " , "], "--metrics ' , ' names no metric"),
        (["answers", "{file}", "--questions", "{bare}", "--metrics", "popqa_accuracy"], "none of the 1 predictions"),
        (["answers", "{file}", "--questions", "sample", "--json", "--format", "csv"], "--json and --format csv: use one of them"),
        (["answers", "{file}", "--questions", "sample", "--html", "nowhere/x.html"], "there is no folder"),
        (["answers", "{file}", "--questions", "sample", "--format", "cvs"], "unknown format 'cvs': did you mean 'csv'"),
        (["answers", "{file}", "--questions", "sample", "--table", "scoers"], "no table's title begins with 'scoers': there are 'Scores'"),
        (["answers", "{file}", "--questions", "sample", "--table", "scores", "--json"], "--table selects tables, which JSON has not"),
        (["folder", "nowhere"], "there is no folder nowhere"),
        (["answers", "nowhere", "--questions", "sample"], "there is no file nowhere"),
        (["compare", "{file}", "{file}", "--questions", "sample"], "is named twice: name each run once"),
        (["compare", "{file}", "--dataset", "a", "--dataset", "b", "--questions", "sample"], "2 --dataset for 1 runs"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, idx: Command, tmp_path: Path) -> None:
    file, bare = tmp_path / "p.json", tmp_path / "q.jsonl"
    file.write_text('{"sample-001": "x"}')
    bare.write_text('{"id": "1", "question": "?"}\n')
    output = idx("eval", *(word.format(file=file, bare=bare) for word in arguments), status=2)
    assert message in output


def test_a_judge_is_a_metric_beside_the_others(idx: Command, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    first, second = sample_questions()[:2]
    file.write_text("".join(json.dumps({"id": one.id, "answer": "x"}) + "\n" for one in (first, second)))
    questions_file = tmp_path / "q.jsonl"
    records: list[dict[str, Any]] = [
        {"id": one.id, "question": one.text, "golden_answers": list(one.golden_answers)} for one in (first, second)
    ]
    questions_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    judge = script({"match": first.text, "text": "Yes"}, {"match": second.text, "text": "No"})
    report = json.loads(idx("eval", "answers", file, "--questions", questions_file, "--judge", judge, "--votes", "1", "--json"))
    assert report["metrics"]["retrorag_judge"]["mean"] == 0.5
    assert report["row_metrics"]["Judge"]["votes"] == 1


def test_a_judge_that_fails_now_and_then_is_reported_and_exits_with_status_1(idx: Command, script: Script, tmp_path: Path) -> None:
    questions_file, file = tmp_path / "q.jsonl", tmp_path / "p.jsonl"
    questions = sample_questions()[:2]
    records = [{"id": one.id, "question": one.text, "golden_answers": list(one.golden_answers)} for one in questions]
    questions_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    file.write_text("".join(json.dumps({"id": one.id, "answer": "x"}) + "\n" for one in questions))
    options = ("--questions", questions_file, "--votes", "1", "--per-question", tmp_path / "each.jsonl")
    output = idx("eval", "answers", file, *options, "--judge", script({"match": questions[0].text, "text": "Yes"}), status=1)
    assert output.startswith("p: Judge failed on 1 answers, most often (1 calls): ")
    each = [json.loads(line)["metrics"]["retrorag_judge"] for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    assert each == [1, None]
    output = idx("eval", "compare", file, *options, "--judge", script({"match": "nobody asks this", "text": "Yes"}), status=2)
    assert "failed on all 2 answers, most often (1 calls): " in output


def test_the_rows_of_a_set_with_predictions_added_do_not_score_their_golds(idx: Command, tmp_path: Path) -> None:
    questions_file, file = tmp_path / "q.jsonl", tmp_path / "p.jsonl"
    rows = [{"id": str(n), "question": f"number {n}?", "answer": [str(n)]} for n in range(1, 5)]
    questions_file.write_text("".join(json.dumps({**row, "golden_answers": row["answer"]}) + "\n" for row in rows))
    file.write_text("".join(json.dumps({**row, "prediction": "1"}) + "\n" for row in rows))
    report = json.loads(idx("eval", "answers", file, "--questions", questions_file, "--metrics", "squad_em", "--json"))
    assert report["metrics"]["squad_em"]["mean"] == 0.25
    assert report["data_issues"]["several fields for an answer"]["n"] == 4


def test_a_folder_of_runs_is_one_table(idx: Command, runs: dict[str, Path], script: Script, tmp_path: Path) -> None:
    model = script({"match": "", "text": "x"})
    for seed in (1, 2):
        idx("run", "direct", "--questions", "sample", "--llm", model, "--seed", seed, "--out", tmp_path / "s" / str(seed))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "predictions.jsonl").write_text("no JSON\n")
    report = json.loads(idx("eval", tmp_path, "--json"))
    assert [run["run"] for run in report["runs"]] == ["direct", "rag", "s/1", "s/2"]
    assert [group["runs"] for group in report["seeds"]] == [["s/1", "s/2"]]
    assert "is no prediction" in report["left_out"]["broken"]
    n_right = {name: sum(said_right(run)) for name, run in runs.items()}
    rows = list(csv.DictReader(io.StringIO(idx("eval", "folder", tmp_path, "--format", "csv", "--table", "Runs"))))
    assert [row["run"] for row in rows] == ["direct", "rag", "s/1", "s/2"]
    assert [float(row["squad_em, %"]) for row in rows[:2]] == pytest.approx([100 * n_right[name] / 107 for name in ("direct", "rag")])
    assert (rows[1]["empty"], rows[1]["answered"], rows[1]["retriever, corpus"]) == ("1", "107 of 107", "bm25, sample")


def test_a_run_or_several_are_named_without_a_command(idx: Command, runs: dict[str, Path]) -> None:
    assert idx("eval", runs["rag"]) == idx("eval", "answers", runs["rag"])
    assert idx("eval", *runs.values()) == idx("eval", "compare", *runs.values())
    assert "No such command 'nowhere'" in idx("eval", "nowhere", status=2)


def test_every_format_holds_the_same_figures(idx: Command, runs: dict[str, Path]) -> None:
    mean = json.loads(idx("eval", runs["rag"], "--format", "json"))["metrics"]["squad_em"]["mean"]
    scores = ("eval", runs["rag"], "--table", "scores", "--format")
    assert f"\nsquad\\_em & {100 * mean:.1f} {{[}}" in idx(*scores, "latex")
    assert f'>squad_em</td><td class="number" data-name="mean, %">{100 * mean:.1f} [' in idx(*scores, "html")
    lines = idx(*scores, "csv").splitlines()
    assert lines[0] == 'metric,"mean, %","mean, % low","mean, % high",questions,not defined,answered'
    assert float(lines[1].split(",")[1]) == pytest.approx(100 * mean)
    assert "\n\n# Cost\n" in idx("eval", runs["rag"], "--format", "csv")
