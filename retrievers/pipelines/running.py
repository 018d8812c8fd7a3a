"""Run of a pipeline over the lists of its sources, for all queries of a search at once, with a report of each stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from wikidx.retrievers.base import StageReport
from wikidx.retrievers.fusion import Fusion, compact, concatenate, fuse
from wikidx.retrievers.kernels import Lists
from wikidx.retrievers.rerank import truncate

from .tree import Fused, Node, Source

Result = TypeVar("Result")
Rerank = Callable[[str, Lists], Lists]
"""Function: name of a reranker, a list for each query without gaps -> these lists in the reranker's order."""


class Stages(list[StageReport]):
    """Reports of the stages of a search, in the order in which they ended; none if the search is not explained."""

    def __init__(self, *, is_explained: bool = False) -> None:
        super().__init__()
        self._is_explained = is_explained

    def measure(self, stage: str, candidates: Lists | None, run: Callable[[], Result], results: Lists | None = None) -> Result:
        """Run a stage, and return what it returns: its results, unless ``results`` are. A retriever has no candidates."""
        started = time.perf_counter()
        returned = run()
        if self._is_explained:
            seconds, after = time.perf_counter() - started, returned if isinstance(returned, Lists) else results
            self.append(StageReport(stage, _count(candidates), _count(after), seconds))
        return returned


def run(node: Node, retrieved: Mapping[str, Lists], rerank: Rerank, stages: Stages) -> Lists:
    """Return a list for each query, best first.

    Args:
        node: the pipeline.
        retrieved: a list for each query from each source, by name.
        rerank: the rerankers.
        stages: receives the reports of fusions and rerankers.
    """
    if isinstance(node, Source):
        return _keep(retrieved[node.name], node)
    if isinstance(node, Fused):
        lists = concatenate([run(below, retrieved, rerank, stages) for below in node.inputs])
        fusion = Fusion(node.rule, node.weights, rank_constant=node.k)
        return stages.measure(node.label, lists, lambda: _keep(fuse(lists, fusion), node))
    candidates = compact(run(node.source, retrieved, rerank, stages))
    return stages.measure(f">> {node.label}", candidates, lambda: _keep(rerank(node.reranker, candidates), node))


def _count(lists: Lists | None) -> int:
    """Return the number of entries of all lists."""
    return 0 if lists is None else int((lists.ends - lists.starts).sum())


def _keep(lists: Lists, node: Node) -> Lists:
    return lists if node.keep is None else truncate(lists, node.keep)
