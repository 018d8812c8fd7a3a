"""``idx reproduce`` with scripted models: runs, resuming, estimates, the report, refusals."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.command_line import Command
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.evaluation.uncertainty import Bootstrap
from wikidx.runtimes.execution import opening
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.opening import Plan
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.experiments.jobs import locate, model_options_of, models_of
from wikidx.runtimes.llms.base import Call, Deliver, Reply
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.methods.templates import packaged_prompts

Script = Callable[..., str]
Reproduce = Callable[..., str]

pytestmark = pytest.mark.usefixtures("sample_home")
FILE = Path(__file__).with_name("two_methods.toml").read_text(encoding="utf-8")
QUESTIONS = {"a": ("who?", ["Mercury"]), "b": ("which metal?", ["mercury", "Hg"]), "c": ("where?", ["Rome"]), "d": ("when?", ["1867"])}


@pytest.fixture
def reproduce(idx: Command, script: Script, tmp_path: Path) -> Reproduce:
    """Write an experiment and its questions, and return the command, with a model that always says the same."""
    (tmp_path / "mine.toml").write_text(FILE, encoding="utf-8")
    lines = [json.dumps({"id": name, "question": text, "golden_answers": golds}) for name, (text, golds) in QUESTIONS.items()]
    (tmp_path / "nq-small.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    mercury = script({"match": "", "text": "Mercury"})

    def run(*more: object, llm: str | None = mercury, status: int = 0) -> str:
        files = (tmp_path / "mine.toml", "--questions-from", tmp_path, "--out", tmp_path / "out")
        return idx("reproduce", *files, *(("--llm", llm) if llm else ()), *more, status=status)

    return run


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results in a report by "row, metric"."""
    return {f"{each['row']}, {each['metric']}": each for each in json.loads((folder / "out/report.json").read_text())["results"]}


CLOSED_BOOK, RAG = "backbone closed-book, dpr_em", "Retrieve-then-Read, dpr_em"


def test_runs_stand_beside_the_papers_figures(reproduce: Reproduce, script: Script, tmp_path: Path) -> None:
    model = script({"match": "who?", "text": "Mercury"}, {"match": "which metal?", "text": "hg"}, {"match": "", "text": "no idea"})
    output, out = reproduce(llm=model), tmp_path / "out"
    folders = ["backbone-closed-book/nq", "retrieve-then-read/nq/seed-0", "retrieve-then-read/nq/seed-1"]
    assert sorted(str(file.parent.relative_to(out)) for file in out.rglob(PREDICTIONS)) == folders
    for folder in folders:
        answers = {name: record["answer"] for name, record in dict(read_predictions(out / folder)).items()}
        assert answers == {"a": "Mercury", "b": "hg", "c": "no idea", "d": "no idea"}
    without, run = (json.loads((out / folder / "run.json").read_text())["settings"] for folder in folders[:2])
    assert (run["seed"], run["search"]["corpus"], run["options"]["k"]["value"], without["search"]) == (0, "sample", 2, None)

    closed_book, rag, genread = (rows(tmp_path)[name] for name in (CLOSED_BOOK, RAG, "GenRead, dpr_em"))
    interval = Bootstrap().interval(np.array([1.0, 1.0, 0.0, 0.0]))
    assert closed_book["ours"] == {"mean": 0.5, "low": interval.low, "high": interval.high, "n": 4}
    assert closed_book["paper"]["value"] == pytest.approx(0.299)
    difference = {"mean": 0.5 - 0.299, "low": interval.low - 0.299, "high": interval.high - 0.299, "n": 4}
    assert closed_book["difference"] == pytest.approx(difference)
    assert closed_book["comparable"] is False  # four questions, not 3,610
    assert (rag["ours"], rag["difference"]["mean"]) == ({"mean": 0.5, "deviation": 0.0, "n": 2}, pytest.approx(0.5 - 0.317))
    remarks = ("LLM: text-davinci-003 / scripted:", "questions: 3,610 test questions / 4 questions", "corpus: Wikipedia / sample")
    assert [remark for remark in remarks if remark not in rag["remark"]] == []
    assert "retriever: " not in rag["remark"]  # BM25 in both
    assert "passages in sample: 784; questions of nq-small.jsonl; prompts: the paper's / ours" in rag["remark"]
    assert (genread["ours"], genread["difference"], genread["remark"]) == (None, None, "left out")
    page = (out / "report.html").read_text()
    assert "left out" in page
    assert "passages in sample: 784" in page
    assert f"our models: scripted:{Path(model.removeprefix('scripted:')).name}" in output
    assert [line.split()[-1] for line in output.splitlines() if line.startswith("backbone closed-book  em")] == ["no"]
    assert "+70.1]" in output


def test_a_repeated_command_asks_for_what_is_missing_alone(reproduce: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = list[Call](), ScriptedLLM.run

    def count(self: ScriptedLLM, batch: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        calls.extend(batch if self.name != "stand-in" else ())
        return run(self, batch, deliver)

    monkeypatch.setattr(ScriptedLLM, "run", count)
    opened, open_services = list[Plan](), opening.open_services

    def open_counted(plan: Plan, *, cache: Path) -> AbstractContextManager[Services]:
        opened.append(plan)
        return open_services(plan, cache=cache)

    monkeypatch.setattr(opening, "open_services", open_counted)

    def n_asked(*more: object) -> int:
        calls.clear()
        reproduce(*more)
        return len(calls)

    assert n_asked("--limit", 1) == 3
    assert [plan.target is None for plan in opened] == [True, False]  # both runs of RAG share a searcher and the models
    assert n_asked("--limit", 1) == 0
    assert len(opened) == 2
    predictions = tmp_path / "out" / "backbone-closed-book" / "nq" / PREDICTIONS
    predictions.write_bytes(predictions.read_bytes()[:-5])  # an interruption
    assert n_asked("--limit", 1) == 1
    assert n_asked() == 9


def test_an_estimate_needs_neither_model_nor_corpus(reproduce: Reproduce, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(home))
    estimate = json.loads(reproduce("--dry-run", "--json", llm=None))
    runs = {run["run"]: run for run in estimate["runs"]}
    assert [(run["questions"], run["calls"], run["searches"]) for run in runs.values()] == [(4, 4, 0), (4, 4, 4), (4, 4, 4), (12, 12, 8)]
    assert runs["all"]["completion_tokens"] == 12 * 256
    with_passages, without = runs["Retrieve-then-Read, NQ, seed 0"], runs["backbone closed-book, NQ"]
    assert with_passages["prompt_tokens"] - without["prompt_tokens"] > 4 * 2 * 140
    assert estimate["seconds"] == pytest.approx((runs["all"]["prompt_tokens"] + runs["all"]["completion_tokens"]) / 1000)


def test_failed_questions_are_told_and_retried(reproduce: Reproduce, script: Script) -> None:
    failing = script({"match": "who?", "text": "Mercury"})
    line = ("--row", "backbone closed-book", "--limit", 2)
    assert reproduce(*line, llm=failing, status=1) == "1 question failed: add --retry-failed to repeat failed questions"
    Path(failing.removeprefix("scripted:")).write_text('{"match": "", "text": "Hg"}\n')
    assert "holds a run with other settings" in reproduce(*line, "--retry-failed", llm=failing, status=2)


def test_a_selection_limits_what_is_run_and_the_report_holds_all_runs(reproduce: Reproduce, tmp_path: Path) -> None:
    assert "different numbers" not in reproduce("--row", "backbone closed-book")
    assert [rows(tmp_path)[name]["remark"] for name in (RAG, "GenRead, dpr_em")] == ["not run", "left out"]
    whole = rows(tmp_path)[CLOSED_BOOK]
    output = reproduce("--row", "Retrieve-then-Read", "--limit", 2)
    assert rows(tmp_path)[CLOSED_BOOK] == whole
    assert [rows(tmp_path)[name]["answered"] for name in (CLOSED_BOOK, RAG)] == ["4 of 4", "2 of 2"]
    assert "asked different numbers of questions: repeat the command with the highest --limit" in output
    assert "asked different numbers" not in reproduce("--limit", 4)
    assert "asked different numbers" not in reproduce("--limit", 1)
    assert [rows(tmp_path)[name]["answered"] for name in (CLOSED_BOOK, RAG)] == ["4 of 4", "4 of 4"]


def test_runs_that_cannot_be_read_or_whose_row_has_changed_are_left_out_with_advice(reproduce: Reproduce, tmp_path: Path) -> None:
    reproduce()
    (tmp_path / "out/backbone-closed-book/nq/run.json").write_text("{")
    advice = "remove its folder to make the run anew"
    assert advice in reproduce(status=2)
    reproduce("--row", "Retrieve-then-Read")
    assert rows(tmp_path)[CLOSED_BOOK]["ours"] is None
    assert advice in rows(tmp_path)[CLOSED_BOOK]["remark"]
    shutil.rmtree(tmp_path / "out/backbone-closed-book")
    shutil.rmtree(tmp_path / "out/retrieve-then-read/nq/seed-1")
    reproduce("--row", "backbone closed-book")
    assert [rows(tmp_path)[name]["answered"] for name in (CLOSED_BOOK, RAG)] == ["4 of 4", "4 of 4, 1 of 2 seeds"]

    (tmp_path / "mine.toml").write_text(FILE.replace("k = 2", "k = 3"), encoding="utf-8")
    reproduce("--row", "backbone closed-book")
    assert rows(tmp_path)[CLOSED_BOOK]["answered"] == "4 of 4"  # has no k
    assert rows(tmp_path)[RAG]["ours"] is None
    assert "was made before the row changed, k was 2 and is 3: remove it to run the row anew" in rows(tmp_path)[RAG]["remark"]
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/answer.txt").write_text(packaged_prompts("rag")["answer.txt"].replace("Passages:", "Texts:"))
    (tmp_path / "mine.toml").write_text(FILE.replace('"rag"', f'"rag"\nprompts = "{tmp_path / "prompts"}"'), encoding="utf-8")
    reproduce("--row", "backbone closed-book")
    assert "was made before the row changed, it has other prompts: remove it" in rows(tmp_path)[RAG]["remark"]
    shutil.rmtree(tmp_path / "out/retrieve-then-read")
    reproduce()
    assert rows(tmp_path)[RAG]["answered"] == "4 of 4"


def test_each_missing_value_has_a_reason_and_costs_have_a_table_of_their_own(reproduce: Reproduce, tmp_path: Path) -> None:
    metrics = '["dpr_em", "retrorag_judge", "alce_str_em", "sub_questions", "searches"]'
    (tmp_path / "mine.toml").write_text(FILE.replace('["dpr_em"]', metrics).replace('table = "T1-zero-shot"', ""))
    output = reproduce()
    reasons = {
        "retrorag_judge": "retrorag_judge needs --judge",
        "alce_str_em": "no question has the gold answers that alce_str_em needs",
        "sub_questions": "the predictions do not record 'sub_questions'",
    }
    assert {name: rows(tmp_path)[f"Retrieve-then-Read, {name}"]["remark"] for name in reasons} == reasons
    shares, costs = output.split("\nNQ, per question; service and latency_s in seconds\n")
    assert "50.0 ± 0.0" in shares
    assert ["1 ± 0"] == re.findall(r"searches +(\d.*?)  ", costs.partition("Retrieve")[2])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--judge", "scripted:x"), "--judge scripted:x: no question set of this experiment has a metric that needs it: leave it out"),
        (("--citations", "scripted:x"), "--citations scripted:x: no question set of this experiment has a metric that needs it: leave it"),
        (("--llm", "reader=scripted:x"), "unknown role 'reader'"),
    ],
)
def test_a_model_of_no_metric_and_of_no_method_is_refused(reproduce: Reproduce, option: tuple[str, str], message: str) -> None:
    assert message in reproduce(*option, status=2)


def test_a_table_runs_on_the_sample(idx: Command, script: Script, tmp_path: Path) -> None:
    options = ("--sample", "--limit", 1, "--llm", script({"match": "", "text": "no"}), "--out")
    idx("reproduce", "ra_isf/table1", *options, tmp_path / "out")
    results = rows(tmp_path).values()
    made = {result["row"] for result in results if result["ours"] is not None}
    compared = {"SKR_knn", "REPLUG", "Self-RAG_13B (made)"}
    assert made == {"Direct", "Least-to-most", "IRCoT", "RAG", "Iter-RetGen_3", "RA-ISF"} | compared
    shown = {(result["metric"], result["paper"] and result["paper"]["dataset"], result["difference"]) for result in results}
    assert shown == {("squad_em", "NQ", None), ("squad_em", None, None)}
    printed = idx("reproduce", "refeed/table1", *options, tmp_path / "two", "--row", "Closed-book", "--row", "Retrieve-then-Read")
    table = printed.partition("sample, in %\n")[2].splitlines()
    assert table[0].split("  ")[0] == "row"
    assert [line for line in table if "text-davinci-003" in line] == ["of all rows: the paper's LLM: text-davinci-003"]


def test_the_experiments_are_listed(idx: Command) -> None:
    listed = [line.split()[0] for line in idx("reproduce").splitlines()]
    assert {"ra_isf/table1", "self_reasoning/table1", "retrorag/table1", "refeed/table1"} <= set(listed)
    assert [each["experiment"] for each in json.loads(idx("reproduce", "--json"))["experiments"]] == listed


def test_questions_that_are_not_in_the_folder_are_named(idx: Command, tmp_path: Path) -> None:
    message = idx("reproduce", "refeed/table1", "--questions-from", tmp_path, "--dry-run", status=2)
    for name in ("nq", "triviaqa"):
        assert f"{tmp_path} has no file {name}-test.*: put the questions of '{name}:test' there; " in message
    assert message.endswith("; --dataset leaves out the rows of other sets, and --sample needs no questions")


def test_a_file_is_found_by_the_name_of_its_set(tmp_path: Path) -> None:
    for name in ("nq-test.qa.csv", "nq-test-small.jsonl"):
        (tmp_path / name).touch()
    assert locate("nq:test", tmp_path) == str(tmp_path / "nq-test.qa.csv")
    assert locate("data/nq-test-small.csv", tmp_path) == str(tmp_path / "nq-test-small.jsonl")


def test_models_and_their_options_go_to_the_methods_with_their_roles() -> None:
    models = ["openai:a@http://h/v1", "know=hf:/k", "judge=hf:/j"]
    assert models_of(["answer", "know"], models) == models[:2]
    options = ["dtype=bfloat16", "know.dtype=float32", "judge.dtype=float32"]
    assert model_options_of(["know"], options) == options[:2]
