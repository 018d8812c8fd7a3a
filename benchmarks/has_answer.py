"""Speed of answer matching in 100 passages per question, and agreement with the reference definition.

    python -m benchmarks.has_answer dpr-union --questions topics.dpr.nq.test.txt.gz

BM25 retrieves 100 passages for each question, and "hits" looks for the answers in them. In the case "as found" many passages are shared
between questions and tokenised once; in "distinct" every passage of every question is made a distinct text, as in a corpus of
millions. DPR's definition tokenises text and answer for every pair and compares lists of tokens; it is timed, and compared, on some
questions.
"""

from __future__ import annotations

import argparse
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import regex

from benchmarks.report import Figure, environment, print_table
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.evaluation.retrieval.has_answer import answer_hits
from wikidx.runtimes.questions import read_questions

_K = 100
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def plain_has_answer(text: str, answers: Sequence[str]) -> bool:
    """Return whether any answer's tokens occur consecutively in the text, by comparing lists."""
    tokens = _tokens(text)
    for answer in map(_tokens, answers):
        if any(tokens[start : start + len(answer)] == answer for start in range(len(tokens) - len(answer) + 1)):
            return True
    return False


def _tokens(text: str) -> list[str]:
    return [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]


def measure(rankings: Sequence[Sequence[int]], texts: Sequence[str], answers: Sequence[Sequence[str]], n_plain: int) -> dict[str, Figure]:
    """Time the hits of all questions, and the definition on some; count the differences."""
    answer_hits(rankings[:1], texts[:_K], answers[:1])  # loads the character classes
    started = time.perf_counter()
    hits = answer_hits(rankings, texts, answers)
    seconds = time.perf_counter() - started
    chosen = np.random.default_rng(0).permutation(len(rankings))[:n_plain].tolist()
    started = time.perf_counter()
    plain = [[plain_has_answer(texts[number], answers[question]) for number in rankings[question]] for question in chosen]
    of_plain = time.perf_counter() - started
    n_pairs, n_plain_pairs = sum(map(len, rankings)), sum(map(len, plain))
    return {
        "questions": len(rankings),
        "pairs": n_pairs,
        "texts": len(texts),
        "hits s": seconds,
        "definition s": of_plain * n_pairs / n_plain_pairs,
        "(measured on pairs)": n_plain_pairs,
        "differ": sum(hits[question].tolist() != of_question for question, of_question in zip(chosen, plain, strict=True)),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.has_answer")
    parser.add_argument("corpus", help="a built corpus with BM25")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--plain", type=int, default=100, help="number of questions matched by the plain definition")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    questions = read_questions(options.questions)
    answers = [question.golden_answers for question in questions]
    rankings = open_searcher(options.corpus).search([question.text for question in questions], SearchOptions(k=_K, depth=_K))
    numbers = {row: number for number, row in enumerate(dict.fromkeys(hit.row for ranking in rankings for hit in ranking))}
    texts = {numbers[hit.row]: hit.passage.text for ranking in rankings for hit in ranking}
    once = [[numbers[hit.row] for hit in ranking] for ranking in rankings]
    ends = np.cumsum([len(ranking) for ranking in rankings]).tolist()
    apart = [range(end - len(ranking), end) for ranking, end in zip(rankings, ends, strict=True)]
    apart_texts = [f"{hit.passage.text} {number}" for number, ranking in enumerate(rankings) for hit in ranking]
    rows: list[dict[str, Figure]] = [
        {"passages": "as found", **measure(once, list(texts.values()), answers, options.plain)},
        {"passages": "distinct", **measure(apart, apart_texts, answers, options.plain)},
    ]
    print_table(f"Answers in {_K} passages per question, '{options.corpus}'", rows, environment("regex"), options.json)


if __name__ == "__main__":
    main()
