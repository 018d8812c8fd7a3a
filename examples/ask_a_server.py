"""Send many searches to a running ``idx serve`` at once; the server combines them into batches.

In another terminal: ``idx serve sample``. Then: ``python ask_a_server.py http://127.0.0.1:8000``.
"""

import asyncio
import sys

import wikidx as idx

QUERIES = ["chemical symbol Au", "river of Egypt", "planet with the Great Red Spot", "capital of Bhutan"]


async def main(url: str) -> None:
    """Print the first passage of each query."""
    async with idx.AsyncRemoteSearcher(url) as searcher:
        answers = await asyncio.gather(*(searcher.search([query], k=1) for query in QUERIES))
    for query, (ranking,) in zip(QUERIES, answers, strict=True):
        print(f"{query}: {ranking[0].title}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"))
