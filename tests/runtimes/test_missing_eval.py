"""``idx eval`` in a process without the packages of the extra ``eval``: what needs them is left out, and the rest is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wikidx.base.errors import install_argument

PACKAGES = ("adjustText", "ir_measures", "matplotlib", "nltk", "rouge_score")
PROGRAM = "import sys; sys.modules.update(dict.fromkeys({}, None)); from wikidx.runtimes.cli import main; main()"
RETRIEVAL = ("eval", "retrieval", "--corpus", "sample", "--json", "-k", "1", "-k", "5", "--questions")
PLOTS, TREC_EVAL, ROUGE, DPR, HAS_ANSWER = (
    f"{feature} the extra 'eval': pip install {install_argument('eval')}"
    for feature in ("plots need", "figures of trec_eval need", "ROUGE-Lsum needs", "DPR's normalisation needs", "has_answer needs")
)


def bare(*arguments: object, packages: tuple[str, ...] = PACKAGES, status: int = 0) -> tuple[str, list[str]]:
    """Return what a command prints, and its lines on standard error."""
    command = [sys.executable, "-c", PROGRAM.format(packages), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == status, ran.stderr
    return ran.stdout, ran.stderr.splitlines()


@pytest.mark.usefixtures("sample_home")
def test_rankings_are_scored_by_answers_without_trec_eval(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("sample-001 Q0 element-80#0 1 2.0 t\n")
    (tmp_path / "qrels").write_text("sample-001 0 element-80#0 1\n")
    page = tmp_path / "page.html"
    (tmp_path / "asked.jsonl").write_text(
        '{"id": "sample-001", "question": "Who?", "golden_answers": ["Hg"], "gold_ids": ["element-80#0"]}'
    )
    out, said = bare(*RETRIEVAL, tmp_path / "asked.jsonl", "-r", "bm25", "--run", tmp_path / "run", "--html", page)
    assert [list(one["figures"]) for one in json.loads(out)["retrievers"]] == [["answer@1", "answer@5"]] * 2
    assert [line for line in said if "left out" in line] == [f"left out: {TREC_EVAL}", f"left out: {PLOTS}"]
    assert (page.read_text().count("<table"), page.read_text().count("<img")) == (2, 0)
    (tmp_path / "bare.jsonl").write_text('{"id": "sample-001", "question": "Who?"}')
    _, said = bare(*RETRIEVAL, tmp_path / "bare.jsonl", "--qrels", tmp_path / "qrels", status=2)
    assert said[-1] == f"error: {TREC_EVAL}"  # there is nothing else to show


def test_answers_are_scored_without_rouge_and_regex(tmp_path: Path) -> None:
    record = {"sample_id": "1", "question": "Who?", "qa_pairs": [{"question": "Who?", "short_answers": ["fox"], "context": ""}]}
    (tmp_path / "asqa.json").write_text(json.dumps([record | {"answer": "A fox."}]))
    (tmp_path / "one.jsonl").write_text('{"id": "1", "answer": "a fox"}')
    answers = ("eval", "answers", tmp_path / "one.jsonl", "--questions", tmp_path / "asqa.json")
    out, said = bare(*answers, "--json")
    assert {name: value["mean"] for name, value in json.loads(out)["metrics"].items()} == {"alce_str_em": 1, "alce_str_hit": 1}
    assert said == [f"left out: {ROUGE}"]
    assert bare(*answers, "--metrics", "alce_rouge_lsum", status=2)[1] == [f"error: {ROUGE}"]
    out, said = bare(*answers, "--metrics", "dpr_em,alce_str_em", packages=("regex",))
    assert ("dpr_em" in out, "alce_str_em" in out, said) == (False, True, [f"left out: {DPR}", f"left out: {HAS_ANSWER}"])


def test_runs_are_compared_without_plots(tmp_path: Path) -> None:
    for name, answer in (("first", "tin"), ("second", "iron")):
        record = {"id": "1", "question": "Who?", "golden_answers": ["iron"], "answer": answer}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    out, said = bare("eval", "compare", tmp_path / "first.jsonl", tmp_path / "second.jsonl", "--html", tmp_path / "page.html")
    assert "second - first" in out
    assert "wins: questions on which second scores higher" in out
    assert said == [f"left out: {PLOTS}", f"report: {tmp_path / 'page.html'}"]
