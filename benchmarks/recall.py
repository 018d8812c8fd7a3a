"""How often is the answer, or a gold passage, among the first k? Several retrievers over the same questions.

    python -m benchmarks.recall dpr-union --questions queries.nq_oracle.jsonl.gz --retriever bm25 --retriever minilm --retriever bm25+minilm
    python -m benchmarks.recall sample

Questions are JSON lines with ``question``, ``answers`` and ``gold_ids``; the sample corpus brings its own. "answer" is the share of all
questions for which one of the first k passages has an answer in its text (DPR's ``has_answer``), "gold" the share, of the questions with
gold passages, for which one of those is among the first k.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import Figure, circumstances, show
from corpora import sample
from corpora.compression import open_bytes
from retrievers import Ranking, SearchOptions
from retrievers.opening import open_searcher
from runtimes.evaluation.has_answer import has_answer

CUTS = (5, 20, 100)


class Question(NamedTuple):
    """A question with its answers and the ids of passages that hold the evidence."""

    question: str
    answers: Sequence[str]
    gold_ids: Sequence[str]


def read_questions(path: Path) -> list[Question]:
    """Read JSON lines, compressed or not."""
    with open_bytes(path) as lines:
        return [Question(item["question"], item["answers"], item["gold_ids"]) for item in map(json.loads, lines)]


def recall(rankings: Sequence[Ranking], questions: Sequence[Question]) -> dict[str, Figure]:
    """Return answer and gold recall at every cut, in percent."""
    figures: dict[str, Figure] = {}
    pairs = list(zip(rankings, questions, strict=True))
    n_gold = sum(1 for question in questions if question.gold_ids)
    for k in CUTS:
        n_answered = sum(any(has_answer(hit.passage.text, question.answers) for hit in ranking[:k]) for ranking, question in pairs)
        figures[f"answer@{k}"] = round(100 * n_answered / len(pairs), 2)
    for k in CUTS:
        n_found = sum(any(hit.passage.id in question.gold_ids for hit in ranking[:k]) for ranking, question in pairs)
        figures[f"gold@{k}"] = round(100 * n_found / max(1, n_gold), 2)
    return figures


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall")
    parser.add_argument("corpus")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--retriever", action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.questions:
        questions = read_questions(options.questions)
    else:
        questions = [Question(item.question, item.answers, item.gold_ids) for item in sample.questions()]
    rows = []
    for retriever in options.retriever or ["bm25", "minilm", "bm25+minilm"]:
        searcher = open_searcher(options.corpus, retriever, device="auto")
        started = time.perf_counter()
        rankings = searcher.search([question.question for question in questions], SearchOptions(k=max(CUTS), depth=max(CUTS)))
        seconds = time.perf_counter() - started
        rows.append({"retriever": retriever, **recall(rankings, questions), "questions/s": len(questions) / seconds})
    show(f"Recall on '{options.corpus}', {len(questions):,} questions", rows, circumstances("numba", "torch"), options.json)


if __name__ == "__main__":
    main()
