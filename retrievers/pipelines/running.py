"""Run of a pipeline over the lists of its sources, for all queries of a search at once, with a report of each stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from wikidx.retrievers.base import StageReport
from wikidx.retrievers.fusion import Fusion, compact, concatenate, fuse
from wikidx.retrievers.kernels import Lists
from wikidx.retrievers.rerank import truncate

from .tree import Fused, Node, Source

Rerank = Callable[[str, Lists], Lists]
"""Function: name of a reranker, a list for each query without gaps -> these lists in the reranker's order."""


class Stages(list[StageReport]):
    """Reports of the stages of a search, in the order in which they ended; none if the search is not explained."""

    def __init__(self, *, is_explained: bool = False) -> None:
        super().__init__()
        self._is_explained = is_explained

    @contextmanager
    def measure(self, stage: str, candidates: Lists | None = None) -> Iterator[Callable[[Lists], None]]:
        """Time a stage with these candidates (a retriever has none); it calls the yielded function with its results."""
        results, started = list[Lists](), time.perf_counter()
        yield results.append
        if self._is_explained:
            seconds, n_candidates = time.perf_counter() - started, 0 if candidates is None else _count(candidates)
            self.append(StageReport(stage, n_candidates, _count(results[-1]), seconds))


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
        with stages.measure(node.label, lists) as report:
            results = _keep(fuse(lists, Fusion(node.rule, node.weights, rank_constant=node.k)), node)
            report(results)
        return results
    candidates = compact(run(node.source, retrieved, rerank, stages))
    with stages.measure(f">> {node.label}", candidates) as report:
        results = _keep(rerank(node.reranker, candidates), node)
        report(results)
    return results


def _count(lists: Lists) -> int:
    """Return the number of entries of all lists."""
    return int((lists.ends - lists.starts).sum())


def _keep(lists: Lists, node: Node) -> Lists:
    return lists if node.keep is None else truncate(lists, node.keep)
