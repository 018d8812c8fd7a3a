from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from ir_measures import AP, RR, P, R, Success, nDCG

from tests.runtimes.command_line import Command
from wikidx.corpora.known import sample
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.evaluation.retrieval.has_answer import has_answer
from wikidx.runtimes.evaluation.retrieval.scoring import gold_pages
from wikidx.runtimes.questions import Question

pytestmark = pytest.mark.usefixtures("sample_home")

SAMPLE = ("eval", "retrieval", "--corpus", "sample", "--questions", "sample")


def figures_of(printed: str, number: int = 0) -> dict[str, dict[str, float]]:
    report: dict[str, dict[str, float]] = json.loads(printed)["retrievers"][number]["figures"]
    return report


def test_recall_is_what_counting_gives_and_the_rest_trec_eval_s_of_the_files_written(idx: Command, tmp_path: Path) -> None:
    """The files and the report are written by the same command; its run, read again, is scored as the search is."""
    questions = sample.questions()
    outputs = ("--run-out", tmp_path, "--html", tmp_path / "report.html", "--per-question", tmp_path / "values")
    figures = figures_of(idx(*SAMPLE, "-k", 5, "-k", 20, "--json", *outputs))
    rankings = open_searcher("sample").search([one.question for one in questions], SearchOptions(k=20, depth=20))
    for k in (5, 20):
        pairs = zip(questions, rankings, strict=True)
        answered = [any(has_answer(hit.passage.text, one.answers) for hit in ranking[:k]) for one, ranking in pairs]
        assert figures[f"answer@{k}"]["mean"] == pytest.approx(sum(answered) / len(questions))
        assert figures[f"answer@{k}"]["low"] < figures[f"answer@{k}"]["mean"] <= figures[f"answer@{k}"]["high"]
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels")))  # type: ignore[no-untyped-call]
    run = list(ir_measures.read_trec_run(str(tmp_path / "bm25.run")))  # type: ignore[no-untyped-call]
    means = ir_measures.pytrec_eval.calc_aggregate([P @ 5, R @ 20, RR, AP, nDCG @ 10, Success @ 5], qrels, run)
    expected = {str(measure): pytest.approx(value) for measure, value in means.items()}
    assert {name: figures[name]["mean"] for name in expected} == expected
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<img") == 2
    values = [json.loads(line) for line in (tmp_path / "values").read_text().splitlines()]
    assert [line["id"] for line in values] == [one.id for one in questions]
    assert values[0]["retrievers"][0]["figures"].keys() >= {"answer@5", "answer@20", "Success@5", "AP"}
    printed = idx(*SAMPLE, "-k", 20, "--run", tmp_path / "bm25.run", "--qrels", tmp_path / "qrels", "--json")
    read = figures_of(printed)
    assert (read["AP"], read["answer@20"]) == (figures["AP"], figures["answer@20"])
    assert [one["queries"] for one in json.loads(printed)["retrievers"]] == ["run"]


def test_the_largest_cutoff_of_all_measures_is_searched_to(idx: Command, tmp_path: Path) -> None:
    """Judged are the passages that BM25 ranks at 4, 30 and 90."""
    questions = [one for one in sample.questions() if len(open_searcher("sample").search([one.question], k=90)[0]) == 90]
    rankings = open_searcher("sample").search([one.question for one in questions], k=100, depth=100)
    judged = {one.id: {ranking[rank - 1].passage.id: 1 for rank in (4, 30, 90)} for one, ranking in zip(questions, rankings, strict=True)}
    (tmp_path / "qrels").write_text("".join(f"{name}\t0\t{passage}\t1\n" for name, found in judged.items() for passage in found))
    deep = ("--qrels", tmp_path / "qrels", "-k", 1, "--measure", "R@100", "--measure", "nDCG@20", "--measure", "AP", "--json")
    figures = figures_of(idx(*SAMPLE, *deep))
    runs = {one.id: {hit.passage.id: hit.score for hit in ranking} for one, ranking in zip(questions, rankings, strict=True)}
    expected = pytrec_eval.RelevanceEvaluator(judged, {"recall.100", "ndcg_cut.20", "map"}).evaluate(runs)
    names = {"R@100": "recall_100", "nDCG@20": "ndcg_cut_20", "AP": "map"}
    assert questions
    for name, theirs in names.items():
        assert figures[name]["mean"] == pytest.approx(np.mean([values[theirs] for values in expected.values()]))


def test_queries_and_qrels_of_beir(idx: Command, tmp_path: Path) -> None:
    """Its queries are those of all splits; those without qrels are counted, and not searched."""
    questions = sample.questions()
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps({"_id": one.id, "text": one.question}) + "\n" for one in questions))
    judged = [f"{one.id}\t{gold}\t1\n" for one in questions[:60] for gold in one.gold_ids]
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    files = ("--questions", tmp_path / "queries.jsonl", "--qrels", tmp_path / "test.tsv")
    options = (*files, "--json", "--run-out", tmp_path / "out", "--query-dtype")
    assert "'half' is not one of 'float32', 'float16', 'bfloat16'" in idx(
        "eval", "retrieval", "--corpus", "sample", *options, "half", status=2
    )
    report = json.loads(idx("eval", "retrieval", "--corpus", "sample", *options, "float16"))
    assert report["query_encoders"] == {}  # BM25 has none
    assert report["retrievers"][0]["figures"].keys() >= {"nDCG@10", "Success@5"}
    assert report["retrievers"][0]["figures"]["nDCG@10"]["n"] == 60
    assert report["data_issues"][0]["n"] == len(questions) - 60
    searched = {line.split()[0] for line in (tmp_path / "out" / "bm25.run").read_text().splitlines()}
    assert searched == {one.id for one in questions[:60]}


def test_speed_is_that_of_the_searches_after_the_first(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher, clock = open_searcher("sample"), [0.0]

    def search_groups(groups: list[list[str]], options: SearchOptions) -> list[Ranking]:
        clock[0] += 0.01 * len(groups) if clock[0] else 100.0
        return searcher.search_groups(groups, options)

    monkeypatch.setattr("wikidx.retrievers.opening.open_searcher", lambda *_, **__: SimpleNamespace(search_groups=search_groups))
    times = SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: clock[0] / 2)
    monkeypatch.setattr("wikidx.runtimes.cli.eval_retrieval.time", times)
    many, few = (json.loads(idx(*SAMPLE, "--sample", n, "--json"))["retrievers"][0] for n in (40, 30))
    assert (many["questions_per_s"], many["cpu_s_per_question"]) == pytest.approx((100, 0.005))
    assert (few["questions_per_s"], few["cpu_s_per_question"]) == (None, None)


def test_gold_pages_match_by_title(idx: Command, tmp_path: Path) -> None:
    one = sample.questions()[0]
    passage = open_searcher("sample").search([one.question], SearchOptions(k=1))[0][0].passage
    record = {"id": "1", "input": one.question, "output": [{"answer": "?", "provenance": [{"title": passage.title}]}, {"answer": "!"}]}
    (tmp_path / "kilt").write_text(json.dumps(record) + "\n")
    figures = figures_of(
        idx("eval", "retrieval", "--corpus", "sample", "--questions", tmp_path / "kilt", "--question-format", "kilt", "--json")
    )
    assert figures["kilt_Rprec"]["mean"] == figures["kilt_recall@1"]["mean"] == 1
    assert "AP" not in figures


@pytest.mark.parametrize(
    ("gold", "pages"),
    [
        ({"provenance": [[{"title": " A "}, {"title": "B"}, {"title": "A"}], [], [{"wikipedia_id": "1"}]]}, [["A", "B"], []]),
        ({"titles": ["A", "B", "A"]}, [["A", "B"]]),
        ({}, []),
    ],
)
def test_gold_pages_of_a_question(gold: Any, pages: list[list[str]]) -> None:  # noqa: ANN401 - gold data
    assert gold_pages(Question("1", "?", gold=gold)) == pages


def test_excluded_passages_are_left_out_of_searches_and_runs(idx: Command, tmp_path: Path) -> None:
    """As by BRIGHT's evaluation: the best passage is excluded, the second, which is gold, is first, and another fills the ranking up."""
    one = sample.questions()[0]
    first, second = open_searcher("sample").search([one.question], k=2)[0].ids
    (tmp_path / "run").write_text(f"0 Q0 {first} 1 2 t\n0 Q0 {second} 2 1 t\n")
    (tmp_path / "questions").write_text(
        json.dumps({"id": "0", "query": one.question, "gold_ids": [second], "excluded_ids": [first]}) + "\n"
    )
    files = ("--corpus", "sample", "--questions", tmp_path / "questions")
    printed = idx("eval", "retrieval", *files, "-r", "bm25", "--run", tmp_path / "run", "-k", 10, "--json", "--run-out", tmp_path)
    for number in (0, 1):
        assert figures_of(printed, number)["nDCG@10"]["mean"] == figures_of(printed, number)["RR"]["mean"] == 1
    ranked = [line.split()[2] for line in (tmp_path / "bm25.run").read_text().splitlines()]
    assert (len(ranked), ranked[0], first in ranked) == (20, second, False)
    assert "excluded_ids, which idx tune cannot leave out" in idx("tune", "sample", "--retriever", "bm25", *files[2:], status=2)


def test_what_a_question_excludes_changes_no_other_s_fused_ranking(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    idx("build", "sample", "--bm25", "--index", "bm25-1.2-0.75")
    asked, runs = sample.questions()[:6], []
    for excluded in ([], open_searcher("sample").search([asked[0].question], k=60)[0].ids):
        records = [{"id": one.id, "query": one.question, "gold_ids": one.gold_ids} for one in asked]
        records[0]["excluded_ids"] = excluded
        (tmp_path / "questions").write_text("".join(json.dumps(record) + "\n" for record in records))
        fused = ("-r", "bm25+bm25-1.2-0.75", "-k", 5, "--run-out", tmp_path)
        idx("eval", "retrieval", "--corpus", "sample", "--questions", tmp_path / "questions", *fused)
        lines = (tmp_path / "bm25+bm25-1.2-0.75.run").read_text().splitlines()
        runs.append([line for line in lines if line.split()[0] != asked[0].id])
        assert not {line.split()[2] for line in lines if line.split()[0] == asked[0].id} & set(excluded)
    assert runs[0] == runs[1] != []
