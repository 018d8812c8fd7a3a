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


def recall_of(folder: Path, evidence: Sequence[Mapping[str, Any]], questions: Sequence[Question]) -> StepRecall:
    lines = [{"id": name, "answer": "x", "error": None, "passages": evidence, "steps": of} for name, of in STEPS.items()]
    (folder / "p.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    rows = load_predictions(folder / "p.jsonl").rows
    missing = rows["bare"]._replace(id="unreached")
    return step_recall([rows.get(question.id, missing) for question in questions], questions, PassageTexts({}))


def test_values_by_hand(tmp_path: Path) -> None:
    recall = recall_of(tmp_path, EVIDENCE, QUESTIONS)
    expected: dict[str, dict[str, list[float]]] = {
        "first search": {"answer@1": [0, 0, 0], "answer@5": [1, 1, 0]},  # "bizet" in the fourth; "mercury" in the third, not in "Mercurys"
        "round 2": {"answer@1": [1, NAN, NAN]},
        "round 2, search 2": {"answer@1": [0, NAN, NAN]},
        LAST: {"answer@1": [0, 0, 0]},  # one of them returns two passages
    }
    found = {name: {metric: values.tolist() for metric, values in of.items()} for name, of in recall.steps.items()}
    wanted = {name: {metric: [*values, NAN, NAN, NAN, NAN] for metric, values in of.items()} for name, of in expected.items()}
    assert str(found) == str({name: {metric: list(map(float, values)) for metric, values in of.items()} for name, of in wanted.items()})
    assert recall.n_unknown == 0


def test_a_text_comes_from_the_prediction_or_the_question_else_the_search_is_left_out(tmp_path: Path) -> None:
    given = tuple(GivenPassage(Passage(item["id"], "", item["text"])) for item in EVIDENCE)
    asked = [question._replace(passages=given) for question in QUESTIONS]
    assert recall_of(tmp_path, [], asked).steps.keys() == recall_of(tmp_path, EVIDENCE, QUESTIONS).steps.keys()
    without_e = recall_of(tmp_path, [item for item in EVIDENCE if item["id"] != "e"], QUESTIONS)
    assert (list(without_e.steps), without_e.n_unknown) == (["round 2", "round 2, search 2", LAST], 1)
    without_c = recall_of(tmp_path, [item for item in EVIDENCE if item["id"] != "c"], QUESTIONS)
    assert list(without_c.steps) == ["round 2", "round 2, search 2"]  # c is also of a last search


def test_steps_of_other_programs_are_no_error() -> None:
    assert read_search_steps(None) == read_search_steps("retrieve") == read_search_steps([7, {"request": "retrieve"}]) == ()
    hits = [{"id": "a"}, {"id": 7}, None]
    odd = [{"request": "retrieve", "result": hits, "path": "x", "k": "many"}, {"request": "retrieve", "result": []}]
    assert read_search_steps(odd) == (SearchStep("first search", 1, ("a",)), SearchStep("search 2", 1, ()))
    nested = [search("a", 3, "sub-question 1", "sub-question 2")]
    assert read_search_steps(nested) == (SearchStep("sub-question 1 / sub-question 2", 3, ("a",)),)


def recount(folder: Path, k: int) -> list[float]:
    """Return for each question of a run whether one of the first k passages of its last search has an answer, by regular expressions."""
    store, golds = open_store("sample"), {one.id: one.answers for one in sample.questions()}
    values = []
    for name, record in read_predictions(folder):
        found = [step for step in record["steps"] if step.get("request") == "retrieve"][-1]["result"][:k]
        texts = [passage.text for passage in store.get_many(store.rows_of([hit["id"] for hit in found]))]
        patterns = [r"(?<!\w)" + r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", answer))) + r"(?!\w)" for answer in golds[name]]
        values.append(float(any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns for text in texts)))
    return values


@pytest.mark.usefixtures("sample_home")
def test_runs_on_the_sample_are_recounted(
    idx: Command, script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ("--questions", "sample", "--corpus", "sample", "--llm", script({"match": "", "text": "phosphorus"}), "--limit", "30")
    folders = {"rag": tmp_path / "rag", "refeed": tmp_path / "refeed"}
    idx("run", "rag", *made, "--set", "k=10", "--out", folders["rag"])
    idx("run", "refeed", *made, "--set", "k=10", "--set", "diverse=false", "--set", "ensemble=false", "--out", folders["refeed"])
    values = {name: {k: recount(folder, k) for k in (1, 5, 10)} for name, folder in folders.items()}
    compared = json.loads(idx("eval", "compare", *folders.values(), "--json"))
    for run, name in zip(compared["runs"], ("first search", "after feedback"), strict=True):
        assert run["searches"].keys() == {name, LAST}
        means = {f"answer@{k}": pytest.approx(np.mean(of)) for k, of in values[run["run"]].items()}
        assert {metric: found["mean"] for metric, found in run["searches"][name].items()} == means
        assert run["passages_without_text"] == 0
    predictions = folders["refeed"] / PREDICTIONS
    records = [{**record, "passages": []} for _, record in read_predictions(predictions.parent)]
    predictions.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "elsewhere"))  # a machine without the corpus
    output = idx("eval", "answers", predictions.parent, "--questions", "sample", "--table", "Searches")
    assert "searches are left out that found passages whose texts this machine does not have" in output
    assert "after feedback" not in output
