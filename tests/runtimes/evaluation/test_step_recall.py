"""R@k of the searches that a run records: predictions made by hand with values by hand, and a recount of runs on the sample corpus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.command_line import Command
from wikidx.corpora.build import open_store
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.predictions import load_predictions
from wikidx.runtimes.evaluation.retrieval.passage_texts import PassageTexts
from wikidx.runtimes.evaluation.retrieval.search_steps import SearchStep, read_search_steps
from wikidx.runtimes.evaluation.step_recall import LAST, StepRecall, step_recall
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.questions import GivenPassage, Question
from wikidx.runtimes.questions.base import gold

Script = Callable[..., str]
NAN = float("nan")


def search(ids: str, k: int = 5, *path: str) -> dict[str, Any]:
    """Return a recorded search that found passages with one-letter ids."""
    hits = [{"id": name, "title": "", "score": 1.0} for name in ids]
    return {"depth": 0, "path": list(path), "request": "retrieve", "queries": ["?"], "k": k, "result": hits}


TEXTS = {"a": "Bizet wrote it.", "b": "A metal.", "c": "It is MERCURY, the metal.", "d": "Mercurys", "e": "bizet’s opera", "f": "yes"}
EVIDENCE = [{"id": name, "title": "Bizet", "text": text} for name, text in TEXTS.items()]
STEPS: dict[str, list[dict[str, Any]]] = {
    "carmen": [search("bcdea", 5), {"request": "generate", "path": []}, search("ab", 2, "round 2"), search("b", 2, "round 2")],
    "metal": [search("bdc", 5), search("ccc", 2, "round 2", "noise"), search("ccc", 2, "demonstrations")],
    "empty": [search("", 5)],
    "yes": [search("f", 5)],
    "claim": [search("a", 5)],
    "bare": [],
}
QUESTIONS = [
    Question("carmen", "Who wrote Carmen?", ("Georges Bizet", "bizet")),
    Question("metal", "Which metal is liquid?", ("mercury",)),
    Question("empty", "Who?", ("nobody",)),
    Question("yes", "Is it?", ("Yes",)),
    Question("claim", "It is.", ("SUPPORTS",), gold(label="SUPPORTS")),
    Question("bare", "Why?", ("because",)),
    Question("unreached", "When?", ("now",)),
]


def recall_of(
    folder: Path, evidence: Sequence[Mapping[str, Any]], questions: Sequence[Question], steps: Mapping[str, Any] = STEPS
) -> StepRecall:
    lines = [{"id": name, "answer": "x", "error": None, "passages": evidence, "steps": of} for name, of in steps.items()]
    (folder / "p.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    rows = load_predictions(folder / "p.jsonl").rows
    missing = load_predictions(folder / "p.jsonl").rows["bare"]._replace(id="unreached")
    return step_recall([rows.get(question.id, missing) for question in questions], questions, PassageTexts({}))


def test_values_by_hand(tmp_path: Path) -> None:
    recall = recall_of(tmp_path, EVIDENCE, QUESTIONS)
    expected: dict[str, dict[str, list[float]]] = {
        "first search": {"answer@1": [0, 0, 0], "answer@5": [1, 1, 0]},  # "bizet" in the fourth; "mercury" in the third, not in "Mercurys"
        "round 2": {"answer@1": [1, NAN, NAN]},
        "round 2, search 2": {"answer@1": [0, NAN, NAN]},
        LAST: {"answer@1": [0, 0, 0]},  # one of them returns two passages
    }
    assert list(recall.steps) == list(expected)
    for name, by_metric in expected.items():
        assert recall.steps[name].keys() == by_metric.keys()
        for metric, values in by_metric.items():
            np.testing.assert_array_equal(recall.steps[name][metric], [*values, NAN, NAN, NAN, NAN])
    assert recall.n_unknown == 0


def test_a_text_comes_from_the_prediction_or_the_question_else_the_search_is_left_out(tmp_path: Path) -> None:
    given = [GivenPassage(Passage(item["id"], "", item["text"])) for item in EVIDENCE]
    asked = [question._replace(passages=tuple(given)) for question in QUESTIONS]
    assert recall_of(tmp_path, [], asked).steps.keys() == recall_of(tmp_path, EVIDENCE, QUESTIONS).steps.keys()
    without_e = recall_of(tmp_path, [item for item in EVIDENCE if item["id"] != "e"], QUESTIONS)
    assert list(without_e.steps) == ["round 2", "round 2, search 2", LAST]
    assert without_e.n_unknown == 1
    without_c = recall_of(tmp_path, [item for item in EVIDENCE if item["id"] != "c"], QUESTIONS)
    assert list(without_c.steps) == ["round 2", "round 2, search 2"]  # c is also of a last search


def test_steps_of_other_programs_are_no_error() -> None:
    assert read_search_steps(None) == read_search_steps("retrieve") == read_search_steps([7, {"request": "retrieve"}]) == ()
    odd = [
        {"request": "retrieve", "result": [{"id": "a"}, {"id": 7}, None], "path": "x", "k": "many"},
        {"request": "retrieve", "result": []},
    ]
    assert read_search_steps(odd) == (SearchStep("first search", 1, ("a",)), SearchStep("search 2", 1, ()))
    nested = [search("a", 3, "sub-question 1", "sub-question 2")]
    assert read_search_steps(nested) == (SearchStep("sub-question 1 / sub-question 2", 3, ("a",)),)


def recount(folder: Path, k: int, *, at: int = -1) -> list[float]:
    """Return for each question of a run whether one of the first k passages of a search has an answer, by regular expressions alone."""
    store, records = open_store("sample"), dict(read_predictions(folder))
    golds = {one.id: one.answers for one in sample.questions()}
    values = []
    for name, record in records.items():
        found = [step for step in record["steps"] if step.get("request") == "retrieve"][at]["result"][:k]
        texts = [passage.text for passage in store.get_many(store.rows_of([hit["id"] for hit in found]))]
        patterns = [r"(?<!\w)" + r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", answer))) + r"(?!\w)" for answer in golds[name]]
        values.append(float(any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns for text in texts)))
    return values


@pytest.mark.usefixtures("sample_home")
def test_runs_on_the_sample_are_recounted(idx: Command, script: Script, tmp_path: Path) -> None:
    model = script({"match": "", "text": "phosphorus"})
    made = ("--questions", "sample", "--corpus", "sample", "--llm", model, "--set", "k=10")
    idx("run", "rag", *made, "--out", tmp_path / "rag")
    idx("run", "refeed", *made, "--set", "diverse=false", "--set", "ensemble=false", "--out", tmp_path / "refeed")
    compared = json.loads(idx("eval", "compare", tmp_path / "rag", tmp_path / "refeed", "--json"))
    for run, name in zip(compared["runs"], ("first search", "after feedback"), strict=True):
        assert run["searches"].keys() == {name, LAST}
        for k in (1, 5, 10):
            values = recount(tmp_path / run["run"], k)
            assert run["searches"][name][f"answer@{k}"]["mean"] == pytest.approx(np.mean(values))
            assert (run["searches"][name][f"answer@{k}"]["n"], run["passages_without_text"]) == (107, 0)
    retrieval = json.loads(idx("eval", "retrieval", "--corpus", "sample", "--questions", "sample", "--retriever", "bm25", "--json"))
    figures = retrieval["retrievers"][0]["figures"]
    assert {k: compared["runs"][0]["searches"]["first search"][k]["mean"] for k in ("answer@1", "answer@5")} == pytest.approx(
        {k: figures[k]["mean"] for k in ("answer@1", "answer@5")}
    )


@pytest.mark.usefixtures("sample_home")
def test_the_reports_have_them(idx: Command, script: Script, tmp_path: Path) -> None:
    out, file = tmp_path / "rag", tmp_path / "each.jsonl"
    idx(
        "run", "rag", "--questions", "sample", "--corpus", "sample", "--llm", script({"match": "", "text": "x"}), "--limit", 8, "--out", out
    )
    table = idx("eval", "answers", out, "--format", "csv", "--table", "Searches", "--html", tmp_path / "r.html", "--per-question", file)
    means = [100 * float(np.mean(recount(out, k))) for k in (1, 5)]
    head, line = (row.split(",") for row in table.splitlines())
    assert head == ["search", "questions", "R@1", "R@1 low", "R@1 high", "R@5", "R@5 low", "R@5 high"]
    assert [line[0], line[1], float(line[2]), float(line[5])] == ["first search", "8", *map(pytest.approx, means)]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Searches, R@k in %" in page
    assert 'alt="R@k of each search on sample"' in page
    each = [json.loads(row)["searches"]["first search"]["answer@5"] for row in file.read_text().splitlines()]
    assert each == recount(out, 5)


@pytest.mark.usefixtures("sample_home")
def test_figure_4_of_refeed_is_made_of_them(idx: Command, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = script({"match": "", "text": "mercury"})
    made = ("reproduce", "refeed/figure4", "--sample", "--limit", 20, "--llm", model, "--out", tmp_path)
    rows = ("--row", "Retrieve-then-Read", "--row", "ReFeed, one answer")
    idx(*made, *rows)
    report = json.loads((tmp_path / "report.json").read_text())
    ours = {(result["row"], result["metric"]): result["ours"]["mean"] for result in report["results"] if result["ours"]}
    for row, folder in (("Retrieve-then-Read", "retrieve-then-read"), ("ReFeed, one answer", "refeed-one-answer")):
        for k in (1, 5, 10):
            assert ours[row, f"answer@{k}"] == pytest.approx(np.mean(recount(tmp_path / folder / "sample", k)))
    assert ours["Retrieve-then-Read", "answer@1"] != ours["ReFeed, one answer", "answer@1"]

    predictions = tmp_path / "refeed-one-answer" / "sample" / PREDICTIONS
    records = [{**record, "passages": []} for _, record in read_predictions(predictions.parent)]
    predictions.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "elsewhere"))  # a machine without the corpus
    output = idx("eval", "answers", predictions.parent, "--questions", "sample", "--table", "Searches")
    assert "searches are left out that found passages whose texts this machine does not have" in output
    assert "after feedback" not in output
