"""Write a TREC run and its qrels, for trec_eval and every tool that reads their files."""

from pathlib import Path

import wikidx as idx

QUESTIONS = {
    "q1": "Which metal is liquid at room temperature?",
    "q2": "Which planet has the Great Red Spot?",
    "q3": "Which radioactive substance was used to kill Alexander Litvinenko?",
}
QRELS = {"q1": {"element-80#0": 1}, "q2": {"planet-jupiter#0": 1}, "q3": {"element-84#0": 1}}

with idx.build("sample") as searcher:
    rankings = searcher.search(list(QUESTIONS.values()), k=100)

Path("bm25.run").write_text(rankings.to_trec(list(QUESTIONS), tag="idx-bm25"))
lines = [f"{question} 0 {passage} {grade}\n" for question, gold in QRELS.items() for passage, grade in gold.items()]
Path("sample.qrels").write_text("".join(lines))

first = [ranking[0].id in QRELS[question] for question, ranking in zip(QUESTIONS, rankings, strict=True)]
print(f"bm25.run: {sum(map(len, rankings)):,} lines; a gold passage is first for {sum(first)} of {len(first)} questions")
