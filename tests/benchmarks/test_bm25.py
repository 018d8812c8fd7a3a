"""The side-by-side measurement of BM25: it runs with all engines on tiny data, and its figures of agreement and growth are right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.bm25.quality import agreement, search_with_ties
from benchmarks.bm25.tables import WIKI2018_TOKENS, Results, batch_rows, wiki2018_rows
from benchmarks.engines.build import Build
from benchmarks.engines.corpus import BenchmarkCorpus, Counts
from benchmarks.engines.rounds import Batches, Setting
from benchmarks.engines.worker import StartupTimes
from tests.conftest import ROOT
from wikidx.indexer.analysis import english
from wikidx.indexer.base import NO_ROW, Hits

N_PASSAGES = 300


def hits(*lines: Sequence[tuple[int, float]]) -> Hits:
    """Return the hits of some questions, given as (row, score); shorter lines are filled up."""
    width = max(map(len, lines))
    filled = [[*line, *[(NO_ROW, -np.inf)] * (width - len(line))] for line in lines]
    rows, scores = ([[pair[which] for pair in line] for line in filled] for which in (0, 1))
    return Hits(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32))


REFERENCE = hits([(5, 4.0), (2, 3.0), (7, 2.0), (8, 2.0), (9, 1.0)])


@pytest.mark.parametrize(
    ("found", "same_sets", "same_rows", "difference"),
    [
        (hits([(5, 4.0), (2, 3.0), (7, 2.0)]), 1, 1, 0),
        (hits([(5, 4.0), (2, 3.0), (8, 2.0)]), 1, 1, 0),  # another row of the third score
        (hits([(2, 4.5), (5, 4.0), (8, 2.0)]), 1, 1, 0.5),  # other scores
        (hits([(5, 4.0), (2, 3.0), (9, 1.0)]), 0, 2 / 3, 0),
        (hits([(5, 4.0), (7, 2.0), (8, 2.0)]), 0, 2 / 3, 0),  # of the third score only one can be among the best
        (hits([(5, 4.0), (2, 3.0)]), 0, 2 / 3, 0),
        (hits([(5, 4.0), (2, 3.0), (7, 2.0), (8, 2.0)]), 0, 1, 0),
        (hits([(6, 4.0), (3, 3.0), (1, 2.0)]), 0, 0, 0),
    ],
)
def test_agreement_but_for_ties_at_rank_k(found: Hits, same_sets: float, same_rows: float, difference: float) -> None:
    assert agreement(found, REFERENCE, 3)[:3] == pytest.approx((same_sets, same_rows, difference))


def test_agreement_over_questions_that_find_little() -> None:
    reference = hits([(4, 2.0), (1, 1.0)], [], [(3, 5.0)])
    assert agreement(reference, reference, 4)[:3] == (1, 1, 0)
    assert agreement(hits([(4, 2.0), (1, 1.0)], [], [(4, 5.0)]), reference, 4)[:3] == pytest.approx((2 / 3, 2 / 3, 0))


def test_the_reference_is_asked_until_the_tie_at_rank_k_ends() -> None:
    scores = np.array([[3.0] + [2.0] * 20 + [1.0] * 20, [9.0, 8.0] + [1.0] * 2 + [-np.inf] * 37], dtype=np.float32)
    depths = []

    def search(depth: int) -> Hits:
        depths.append(depth)
        return Hits(np.zeros((2, depth), dtype=np.int64), scores[:, :depth])

    assert search_with_ties(search, 3).scores.shape == (2, 24)
    assert depths == [6, 12, 24]


def results(n_tokens: int, seconds: float, batches: dict[Setting, Batches]) -> Results:
    counts = Counts("f", n_tokens // 50, n_tokens, n_tokens // 2, 6 * n_tokens)
    build = Build("bm25", 2, seconds, 2 * n_tokens, 10**8)
    return Results(BenchmarkCorpus("made", Path(), counts), {"bm25": build}, {"bm25": StartupTimes(1.0, 0.1, 10**8, 0.1)}, batches, {}, {})


def test_growth_goes_on_in_a_line() -> None:
    measured = [results(2_000_000, 25.0, {}), results(1_000_000, 15.0, {}), results(1000, 3.0, {})]  # 10 s a million tokens, and 5 s
    (row,) = wiki2018_rows(measured)
    assert row["build min"] == pytest.approx((5 + WIKI2018_TOKENS / 1e6 * 10) / 60)
    assert row["index GB"] == pytest.approx(2 * WIKI2018_TOKENS / 1e9)
    assert row["peak RSS GB"] == pytest.approx(0.1)
    assert row["RSS at open MB"] == pytest.approx(100)


def test_ratios_are_taken_round_by_round() -> None:
    measured = {
        Setting("bm25", 1, 10): Batches(100, [100.0, 50.0, 400.0]),
        Setting("other", 1, 10): Batches(100, [50.0, 20.0, 100.0]),
        Setting("bm25", 2, 10): Batches(100, [190.0, 95.0, 700.0]),
    }
    one, other, two = batch_rows(results(100, 1.0, measured))
    assert (one["questions/s, best"], one["median"]) == (400, 100)
    assert [row["bm25 is × faster"] for row in (one, other, two)] == [1, 2.5, 1]
    assert [row["× 1 thread"] for row in (one, other, two)] == pytest.approx([1, 1, 1.9])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return files of passages and of questions, whose words are as unequally frequent as natural ones."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500)])

    def text(n_words: int) -> str:
        return " ".join(words[np.minimum(rng.zipf(1.3, n_words), 500) - 1])

    passages, questions = tmp_path / "passages.jsonl", tmp_path / "questions.jsonl"
    records = [{"id": str(n), "title": text(2), "text": text(int(rng.integers(5, 80)))} for n in range(N_PASSAGES)]
    passages.write_text("".join(json.dumps(record) + "\n" for record in records))
    asked = [{"question": "the"}, *({"question": text(6)} for _ in range(50))]  # "the" is no term
    questions.write_text("".join(json.dumps(record) + "\n" for record in asked))
    return passages, questions


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.bm25", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def figures(passages: Path, questions: Path, *arguments: object) -> tuple[list[dict[str, Any]], str]:
    """Run the measurement on one processor and return its figures of each corpus, and its tables."""
    out = questions.with_name("out.json")
    options = ["--questions", questions, "--work", questions.with_name("work"), "--threads", 1, "--json", out]
    ran = run("--passages", passages, *arguments, *options)
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(out.read_bytes())["corpora"]
    return found, ran.stdout


@pytest.mark.exhaustive
@pytest.mark.slow  # a minute
def test_all_engines_find_the_same(files: tuple[Path, Path]) -> None:
    (found,), tables = figures(*files, "--k", 10, 100, "--rounds", 1, "--seconds", 0.01, "--sample", 20)
    texts = [english(f"{record['title']}\n{record['text']}") for record in map(json.loads, files[0].read_text().splitlines())]
    assert found["counts"]["passages"] == N_PASSAGES
    assert found["counts"]["tokens"] == sum(map(len, texts))
    assert found["counts"]["postings"] == sum(len(set(terms)) for terms in texts)
    agreed = {(one["engine"], one["k"]): one for one in found["agreements"]}
    assert len(agreed) == 8
    for k in (10, 100):
        assert agreed["bm25", k]["same_sets"] == agreed["pyserini", k]["same_sets"] == agreed["lucene", k]["same_sets"] == 1
        assert agreed["bm25", k]["score_difference"] <= 1e-6
        assert agreed["pyserini", k]["score_difference"] < 0.01  # it rounds to 4 decimals, and scores are low here
        assert agreed["bm25s", k]["same_rows"] > 0.95  # its lengths are not rounded
        assert agreed["bm25s", k]["score_difference"] < 0.05
    assert all(len(one["per_second"]) == 1 and one["per_second"][0] > 0 for one in found["batches"])
    assert all(one["index_bytes"] > 1000 and one["peak_bytes"] > 1e7 for one in found["builds"])
    assert "Batches on" in tables


@pytest.mark.slow
def test_growth(files: tuple[Path, Path], tmp_path: Path) -> None:
    passages, questions = files
    fewer = tmp_path / "fewer.jsonl"
    fewer.write_text("".join(passages.read_text().splitlines(keepends=True)[:100]))
    found, tables = figures(passages, questions, fewer, "--growth", "--engines", "bm25")
    assert [one["counts"]["passages"] for one in found] == [N_PASSAGES, 100]
    assert [one["batches"] for one in found] == [[], []]
    assert "The 21,015,324 passages" in tables


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", 1000], "--threads [1000]: this process may use 1 to "),
        (["--threads", 1, "--questions", "nowhere.jsonl"], "no questions at nowhere.jsonl"),
    ],
)
def test_mistakes_are_named(files: tuple[Path, Path], arguments: Sequence[object], message: str) -> None:
    ran = run("--passages", files[0], "--work", files[0].with_name("work"), *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
