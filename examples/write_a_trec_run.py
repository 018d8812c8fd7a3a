"""Write a TREC run and its qrels, for trec_eval and every tool that reads their files."""

from pathlib import Path

import wikidx as idx
from wikidx.corpora.known import sample

questions = sample.questions()

with idx.build("sample") as searcher:
    rankings = searcher.search([question.question for question in questions], k=100)

Path("bm25.run").write_text(rankings.to_trec([question.id for question in questions], tag="idx-bm25"))
Path("sample.qrels").write_text("".join(f"{question.id} 0 {gold} 1\n" for question in questions for gold in question.gold_ids))

first = [ranking[0].id in question.gold_ids for ranking, question in zip(rankings, questions, strict=True)]
print(f"bm25.run: {sum(map(len, rankings)):,} lines; a gold passage is first for {sum(first)} of {len(first)} questions")
