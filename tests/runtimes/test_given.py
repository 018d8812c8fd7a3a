"""``--retriever given``: runs that read the passages of their file of questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
from wikidx.runtimes.execution.runs import RUN, read_predictions
from wikidx.runtimes.pages.viewing import Viewer

Script = Callable[..., str]

CARMEN = {"id": "a", "title": "Carmen", "text": "An opera by Georges Bizet."}
QUESTIONS: list[dict[str, Any]] = [
    {
        "id": "one",
        "question": "Who wrote Carmen?",
        "golden_answers": ["Bizet"],
        "docs": [
            {**CARMEN, "score": 2.5},
            {"title": "Opera", "text": "It is sung."},
            {"id": "d", "title": "Verdi", "text": "He wrote Aida."},
        ],
    },
    {
        "id": "two",
        "question": "Which metal is liquid?",
        "golden_answers": ["mercury"],
        "docs": [{"id": "b", "title": "Iron", "text": "Iron is hard."}, {"id": "c", "title": "Mercury", "text": "It is the one: mercury."}],
    },
]


@pytest.fixture
def file(tmp_path: Path, home: Path) -> Path:
    """Write the questions; no corpus is built."""
    return write(tmp_path, QUESTIONS)


def write(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def line(file: Path, method: str, model: str, *more: object) -> tuple[object, ...]:
    return ("run", method, "--questions", file, "--retriever", "given", "--llm", model, "--out", file.parent / "out", *more)


def test_a_question_is_answered_from_its_first_k_passages(idx: Command, script: Script, file: Path) -> None:
    model = script({"match": "Georges", "text": "Bizet"}, {"match": "Which metal", "text": "iron"})
    idx(*line(file, "rag", model, "--set", "k=2"))
    records = dict(read_predictions(file.parent / "out"))
    assert [passage["id"] for passage in records["one"]["passages"]] == ["a", "one:2"]
    search, call = records["one"]["steps"]
    assert (search["queries"], search["k"]) == (["Who wrote Carmen?"], 2)
    assert search["result"] == [{"id": "a", "title": "Carmen", "score": 2.5}, {"id": "one:2", "title": "Opera", "score": None}]
    assert "An opera by Georges Bizet." in call["prompt"][-1]["content"]
    assert "Verdi" not in call["prompt"][-1]["content"]
    assert (records["one"]["answer"], records["one"]["cost"]["searches"], records["one"]["cost"]["queries"]) == ("Bizet", 1, 1)
    scored = idx.json("eval", "answers", file.parent / "out")
    assert (scored["retriever"], scored["corpus"]) == ("given", "")
    assert scored["groups"]["passages"]["hold an answer"]["squad_em"]["n"] == 2
    texts = json.loads(Viewer([file.parent / "out"]).trace("one"))["texts"]
    assert texts == [{"a": CARMEN["text"], "one:2": "It is sung."}]


def test_the_trace_and_the_prompts_of_a_dry_run_have_them(idx: Command, script: Script, file: Path) -> None:
    output = idx(*line(file, "self_reasoning", script(), "--dry-run"))
    assert "→ Carmen [a] 2.500" in output
    assert "→ Opera [one:2]\n" in output
    assert "He wrote Aida." in output


def test_noise_is_the_passages_of_another_question(idx: Command, script: Script, file: Path) -> None:
    idx(*line(file, "rag", script({"match": "", "text": "x"}), "--set", "k=2", "--set", "noise=1"))
    records = dict(read_predictions(file.parent / "out"))
    assert {passage["id"] for passage in records["one"]["passages"]} == {"b", "c"}
    assert {passage["id"] for passage in records["two"]["passages"]} == {"a", "one:2"}


def test_a_run_is_not_resumed_with_other_passages(idx: Command, script: Script, file: Path) -> None:
    asked = line(file, "rag", script({"match": "", "text": "x"}))
    idx(*asked, "--limit", 1)
    settings = json.loads((file.parent / "out" / RUN).read_text())["settings"]
    assert settings["search"]["retriever"] == "given"
    assert len(settings["search"]["fingerprints"]["passages"]) == 64
    idx(*asked)  # the same passages
    for changed in ({**CARMEN, "text": "An opera."}, {**CARMEN, "score": 2.5}):
        write(file.parent, [{**QUESTIONS[0], "docs": [changed]}, QUESTIONS[1]])
        assert "holds a run with other settings: search.fingerprints.passages was" in idx(*asked, status=2)


@pytest.mark.parametrize(
    ("method", "option"),
    [("retrorag", "max_rounds=1"), ("retrorag", "ellery=false"), ("iter_retgen", "rounds=1"), ("ra_isf", "max_depth=0")],
)
def test_methods_that_ask_the_question_alone_are_not(method: str, option: str, idx: Command, script: Script, file: Path) -> None:
    idx(*line(file, method, script(*[{"match": "", "text": "no"}] * 40), "--set", option))
    assert all(record["error"] is None for record in dict(read_predictions(file.parent / "out")).values())


EXPERIMENT = """
title = "passages of the file"
corpus = "nowhere"
retriever = "bm25"
search = { depth = 7 }

[questions.mine]
file = "questions"
metrics = ["squad_em"]
retriever = "given"

[[rows]]
name = "direct"
method = "direct"

[[rows]]
name = "RAG"
method = "rag"
"""


def test_an_experiment_reads_them(idx: Command, script: Script, file: Path) -> None:
    """Options of searches are for its other sets of questions."""
    (file.parent / "mine.toml").write_text(EXPERIMENT, encoding="utf-8")
    model = script({"match": "Georges", "text": "Bizet"}, {"match": "", "text": "iron"})
    line = ("reproduce", file.parent / "mine.toml", "--questions-from", file.parent, "--out", file.parent / "all", "--llm", model)
    idx(*line, "--corpus", "nowhere")
    report = json.loads((file.parent / "all" / "report.json").read_text())
    assert {result["row"]: result["ours"]["mean"] for result in report["results"]} == {"direct": 0.0, "RAG": 0.5}
    assert {run["method"]: run["retriever"] for run in report["runs"]} == {"direct": "", "rag": "given"}
    assert json.loads((file.parent / "all" / "rag" / "mine" / RUN).read_text())["settings"]["search"]["retriever"] == "given"
    idx(*line, "--url", "http://127.0.0.1:1")
    idx(*line, "--reranker", "x", "--search", "depth=3")
    for option, value in (("--url", "http://127.0.0.1:1"), ("--corpus", "x"), ("--reranker", "x"), ("--search", "depth=3")):
        assert f"{option} says where" in idx(*line, option, value, "--retriever", "given", status=2)
