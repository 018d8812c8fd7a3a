"""Search a question together with its rewritings, and see which query and retriever found each passage.

The corpus ``sample`` ships with idx; it is built if it is not there yet.
"""

import wikidx as idx

GROUPS = [
    ["Where does the river of Egypt end?", "river of Egypt", "country where the Nile ends"],
    ["Which metal is liquid at room temperature?", "liquid metal", "chemical element mercury"],
]

with idx.build("sample", "bm25+minilm") as searcher:
    for group, ranking in zip(GROUPS, searcher.search_groups(GROUPS, k=3, merge="max", dedup="text"), strict=True):
        print(group[0])
        for rank, hit in enumerate(ranking, 1):
            best = min(hit.provenance, key=lambda match: match.rank)
            print(f"  {rank}  {hit.title}: rank {best.rank} of {best.retriever} for '{best.query}'")
