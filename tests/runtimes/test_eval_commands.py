"""``idx eval answers`` and ``idx eval compare``: the sample corpus from run to report, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.test_similarity import MadeEncoder
from wikidx.corpora.known import sample
from wikidx.indexer.encoders import transformer
from wikidx.runtimes.questions import Question, sample_questions

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


def said_right(run: Path) -> list[bool]:
    """Return which questions a run answered with the gold answer, letter for letter."""
    answers = {record["id"]: record["answer"] for record in map(json.loads, (run / "predictions.jsonl").read_text().splitlines())}
    return [answers[one.id] in one.answers for one in sample.questions()]


def test_the_sample_corpus_from_run_to_report(idx: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    right = {name: said_right(run) for name, run in runs.items()}
    n_right = sum(right["rag"])
    found = json.loads(idx("eval", runs["rag"], "--json", "--per-question", tmp_path / "each.jsonl"))
    assert [found[name] for name in ("dataset", "questions", "questions_from", "method", "retriever")] == [
        "sample",
        107,
        "sample",
        "rag",
        "bm25",
    ]
    em, contained = found["metrics"]["squad_em"], found["metrics"]["flashrag_acc"]
    assert (em["mean"], em["n"]) == (pytest.approx(n_right / 107), 107)
    assert contained["mean"] == pytest.approx((n_right + 1) / 107)  # the answer in a sentence
    assert 0 < em["low"] < em["mean"] < em["high"] < 1
    assert found["costs"]["calls"]["sum"] == 107
    issue = {"n": 1, "rule": "scored by each metric's own rule", "examples": [sample.questions()[1].id]}
    assert found["data_issues"] == {"empty answers": issue}
    each = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    assert [one["metrics"]["squad_em"] == 1 for one in each] == right["rag"]

    page = tmp_path / "report.html"
    report = json.loads(idx("eval", *runs.values(), "--json", "--html", page))
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
    every = idx("eval", "compare", runs["rag"], "--dataset", "NQ", "--metrics", "dpr_em,genread_f1", "--every-figure")
    assert "Self-RAG_13B" in every
    assert "RECOMP" not in every  # an accuracy, which is not among these metrics


def test_two_runs_make_the_self_knowledge_by_which_skr_decides(
    idx: Command, script: Script, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = dict(zip((one.id for one in sample.questions()), zip(*map(said_right, runs.values()), strict=True), strict=True))
    direct = {record["id"]: record["answer"] for record in map(json.loads, (runs["direct"] / "predictions.jsonl").read_text().splitlines())}
    left_out = sample.questions()[5].id
    (tmp_path / "direct.json").write_text(json.dumps({name: answer for name, answer in direct.items() if name != left_out}))
    told = idx("eval", "self-knowledge", tmp_path / "direct.json", runs["rag"], "--questions", "sample", "--out", tmp_path / "known.json")
    known = json.loads((tmp_path / "known.json").read_text())
    status = {(False, True): "ir better", (True, False): "ir worse", (True, True): "same", (False, False): "same"}
    expected = {one.question: status[pairs[one.id]] for one in sample.questions() if one.id != left_out}
    assert {record["Question"]: record["status"] for record in known} == expected
    assert (known[0]["Gold answer"], known[0]["cot"]) == (list(sample.questions()[0].answers), direct[sample.questions()[0].id])
    n_better, n_worse = (list(expected.values()).count(name) for name in ("ir better", "ir worse"))
    counts = {"ir better": n_better, "ir worse": n_worse, "same": 106 - n_better - n_worse}
    assert told.splitlines()[:3] == [f"{name}: {n} questions (by squad_em)" for name, n in counts.items()]

    monkeypatch.setattr(transformer, "open_encoder", lambda spec, device: MadeEncoder())
    chosen = ("--set", f"self_knowledge={tmp_path / 'known.json'}", "--set", "neighbours=1", "--set", "output=answer")
    idx("run", "skr", *SAMPLE, *chosen, "--llm", script({"match": "", "text": "x"}), "--out", tmp_path / "skr")
    made = {
        record["question"]: record["detail"] for record in map(json.loads, (tmp_path / "skr/predictions.jsonl").read_text().splitlines())
    }
    asked = {text: told for text, told in expected.items() if told != "same"}  # each is its own nearest neighbour
    assert {text: made[text]["neighbours"][0]["question"] for text in asked} == {text: text for text in asked}
    assert {text: made[text]["retrieved"] for text in asked} == {text: told == "ir better" for text, told in asked.items()}


def test_runs_without_a_common_answer_or_metric_make_no_self_knowledge(idx: Command, tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"{number}.json").write_text(json.dumps({sample.questions()[number].id: "x"}))
    known = ("--questions", "sample", "--out", tmp_path / "known.json")
    said = idx("eval", "self-knowledge", tmp_path / "0.json", tmp_path / "1.json", *known, status=2)
    assert said.endswith("share no answered question, or no metric: name one with --metrics")
    assert not (tmp_path / "known.json").exists()


def write_asked(folder: Path, questions: Sequence[Question]) -> tuple[object, ...]:
    """Write questions and a prediction "x" for each; return the arguments of ``idx eval answers``."""
    records = [{"id": one.id, "question": one.text, "golden_answers": list(one.golden_answers)} for one in questions]
    (folder / "q.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "p.jsonl").write_text("".join(json.dumps({"id": one.id, "answer": "x"}) + "\n" for one in questions))
    return (folder / "p.jsonl", "--questions", folder / "q.jsonl")


def test_a_judge_is_a_metric_beside_the_others_and_its_failures_are_told(idx: Command, script: Script, tmp_path: Path) -> None:
    first, second = sample_questions()[:2]
    each = tmp_path / "each.jsonl"
    asked = (*write_asked(tmp_path, [first, second]), "--votes", "1", "--per-question", each, "--judge")
    judge = script({"match": first.text, "text": "Yes"}, {"match": second.text, "text": "No"})
    report = json.loads(idx("eval", "answers", *asked, judge, "--json"))
    assert (report["metrics"]["retrorag_judge"]["mean"], report["row_metrics"]["Judge"]["votes"]) == (0.5, 1)
    output = idx("eval", "answers", *asked, script({"match": first.text, "text": "Yes"}), status=1)
    assert output.startswith("p: Judge failed on 1 answers, most often (1 calls): ")
    assert [json.loads(line)["metrics"]["retrorag_judge"] for line in each.read_text().splitlines()] == [1, None]
    output = idx("eval", "compare", *asked, script({"match": "nobody asks this", "text": "Yes"}), status=2)
    assert "failed on all 2 answers, most often (1 calls): " in output
