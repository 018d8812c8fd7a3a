"""Reports on runs made by hand, ``tests/data/reports``: in every form as they were recorded, and figures of them counted by hand.

After a change that is meant, ``python -m tests.runtimes.evaluation.test_recorded_reports`` writes them anew; the difference shows what it
changes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.runtimes.command_line import Command

FOLDER = ROOT / "tests" / "data" / "reports"
_RUNS = ("compare", "rag", "again", "ra_isf", "theirs.jsonl", "--every-pair")
_OF_OTHERS = ("--run", "retrieval/theirs.run", "--qrels", "retrieval/qrels", "--groups", "retrieval/groups.jsonl")
_RETRIEVAL = (
    "retrieval",
    "--corpus",
    "sample",
    "--retriever",
    "bm25",
    *_OF_OTHERS,
    "-k",
    "1",
    "-k",
    "20",
    "--measure",
    "RR",
    "--measure",
    "R@2",
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "answers.json": ("answers", "rag", "--json"),
    "compare.json": (*_RUNS, "--json"),
    "compare.txt": _RUNS,
    "folder.json": ("folder", ".", "--json"),
    "folder.txt": ("folder", "."),
    "judged.json": ("compare", "rag", "again", "--dataset", "HotpotQA", "--judge", "scripted:judge.jsonl", "--votes", "1", "--json"),
    "judged.table": ("rag", "--judge", "scripted:judge.jsonl", "--votes", "1", "--table", "Scores"),
    "retrieval.json": (*_RETRIEVAL, "--json"),
    "retrieval.txt": _RETRIEVAL,
    **{f"answers.{form}": ("rag", "--format", form) for form in ("table", "markdown", "csv", "latex", "html")},
}


RECORDS = ("answers.json", "compare.json", "retrieval.json")


def command(name: str) -> tuple[str, ...]:
    """Return the arguments of ``idx eval`` that write a file."""
    return (*COMMANDS[name], "--questions", "retrieval/questions.jsonl" if name.startswith("retrieval") else "nq-test.jsonl")


def shown(printed: str) -> Any:  # noqa: ANN401 - JSON or text
    """Return what is compared: numbers to nine digits, HTML without images, whose bytes depend on matplotlib."""
    if printed.startswith("{"):
        return json.loads(printed, parse_float=lambda number: round(float(number), 9))
    return re.sub(r'src="data:[^"]*"', 'src=""', printed)


@pytest.fixture(autouse=True)
def in_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)


def check(idx: Command, name: str, folder: Path) -> None:
    """The report and, of a command with records, the values of each question are those recorded."""
    each = ("--per-question", folder / "each.jsonl") if name in RECORDS else ()
    assert shown(idx("eval", *command(name), *each)) == shown((FOLDER / name).read_text(encoding="utf-8"))
    if each:
        assert (folder / "each.jsonl").read_text() == (FOLDER / name.replace("json", "each.jsonl")).read_text()


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("retrieval")])
def test_a_report_is_as_recorded(idx: Command, name: str, tmp_path: Path) -> None:
    check(idx, name, tmp_path)


@pytest.mark.usefixtures("sample_home")
@pytest.mark.parametrize("name", ["retrieval.json", "retrieval.txt"])
def test_a_report_on_searches_is_as_recorded(idx: Command, name: str, tmp_path: Path) -> None:
    check(idx, name, tmp_path)


def test_the_recorded_figures_of_a_run_are_those_counted_by_hand() -> None:
    found = json.loads((FOLDER / "answers.json").read_text())
    # "never asked" has no prediction; ten texts are two of each question but that and the failed one
    assert found["problems"] == {"failed": 1, "unanswered": 1, "empty": 1, "cut": 1, "unparsed": 2, "degraded": 1, "unsure": 1}
    assert found["replies"] == {"texts": 10, "cut": 2, "empty": 1}
    assert found["metrics"]["squad_em"]["mean"] == pytest.approx(2 / 7)
    means = {name: {group: by["squad_em"]["mean"] for group, by in groups.items()} for name, groups in found["groups"].items()}
    assert means == {
        "hops": {"1": pytest.approx(2 / 3), "2": 0.0},
        # "right", "empty" and "cut" have the passage; "unsure" has no passage, "sure" another; the rest have no answer
        "passages": {"hold an answer": pytest.approx(1 / 3), "hold none": 0.5},
        "yes and no": {"below 0.5": 1.0, "from 0.5": 0.0},
    }
    assert found["throughput"]["prompt_tokens_per_s"] == 36.0  # six predictions of 30 tokens in 5 s
    assert (found["costs"]["service"]["sum"], found["answered_by"], found["yes_no"]["mass"]) == (3.0, "qwen-2", (2 * 0.25 + 0.75) / 3)


def test_the_recorded_figures_of_several_runs_are_those_counted_by_hand() -> None:
    found = json.loads((FOLDER / "compare.json").read_text())
    first = next(one for one in found["differences"] if one["metric"] == "squad_em")
    # again is right on "right", "failed", "cut" and "sure", rag on "right" and "unsure"
    assert (first["first"], first["second"], first["wins"], first["losses"], first["ties"]) == ("again", "rag", 3, 1, 3)
    assert first["difference"] == pytest.approx(2 / 7)
    assert found["seeds"][0]["metrics"]["squad_em"] == {"mean": pytest.approx(3 / 7), "deviation": pytest.approx(2**0.5 / 7), "n": 2}
    tree = found["runs"][2]
    counted = {"self-knowledge": 2, "passage relevance": 1, "decomposition": 3, "fallback": 3, "unanswered": 9}
    assert tree["modules"] == {module: {"n": n, "share": n / 18} for module, n in counted.items()}
    assert (tree["costs"]["sub_questions"]["sum"], tree["costs"]["sub_questions"]["n"]) == (12, 6)
    assert {kind: issue["n"] for kind, issue in found["runs"][3]["data_issues"].items()} == {
        "duplicate ids": 1,
        "without an id": 1,
        "several fields for an answer": 1,
        "answers that are numbers": 1,
        "answers that are no text": 1,
        "another question under this id": 1,
        "ids without a question": 1,
        "questions without a prediction": 1,
    }


def test_the_recorded_figures_of_searches_are_those_counted_by_hand() -> None:
    found = json.loads((FOLDER / "retrieval.json").read_text())
    theirs = next(one["figures"] for one in found["retrievers"] if one["queries"] == "run")
    # "1" has its passage second, behind one that the corpus does not have, and another judged one nowhere; "3" has its passage first
    assert (theirs["RR"]["mean"], theirs["R@2"]["mean"], theirs["RR"]["n"]) == (0.75, 0.75, 2)
    assert (theirs["answer@1"]["mean"], theirs["answer@20"]["mean"], theirs["answer@1"]["n"]) == (1 / 3, 2 / 3, 3)
    assert {(one["source"], one["issue"], one["n"]) for one in found["data_issues"]} >= {
        ("questions", "without answers", 1),
        ("questions", "without gold passages", 1),
        ("qrels", "question is not asked", 1),
        ("gold passages", "not in the corpus", 1),
        ("theirs.run", "question is not asked", 1),
        ("theirs.run", "question without a ranking", 1),
        ("theirs.run", "passage is not in the corpus", 1),
    }


def _write() -> None:
    program = (sys.executable, "-c", "from wikidx.runtimes.cli import main; main()")
    with tempfile.TemporaryDirectory() as home:
        given: Any = {"cwd": FOLDER, "env": {**os.environ, "PYTHONPATH": str(ROOT), "IDX_HOME": home}, "check": True}
        subprocess.run([*program, "build", "sample", "--bm25"], **given)
        for name in COMMANDS:
            each = ("--per-question", name.replace("json", "each.jsonl")) if name in RECORDS else ()
            ran = subprocess.run([*program, "eval", *command(name), *each], stdout=subprocess.PIPE, **given)
            (FOLDER / name).write_text(re.sub(r'src="data:[^"]*"', 'src=""', ran.stdout.decode()), encoding="utf-8")


if __name__ == "__main__":
    _write()
