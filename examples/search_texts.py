"""Rank a list of texts by BM25, by meaning, and by both. Nothing is kept on disk afterwards."""

import wikidx as idx

TEXTS = [
    "Employees apply for annual leave in the portal, at least two weeks ahead.",
    "The canteen opens at eleven and closes at two.",
    "A laptop that was lost or stolen is reported to the service desk at once.",
    "Visitors are registered at the reception and wear a badge.",
]
QUESTION = "How do I book a holiday?"

for retriever in ("bm25", "minilm", "bm25+minilm"):
    with idx.build(TEXTS, retriever) as searcher:
        (ranking,) = searcher.search([QUESTION], k=1)
        print(f"{retriever:12} {ranking[0].text if ranking else 'nothing: no word in common'}")
