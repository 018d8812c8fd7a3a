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
    """Reports of the stages of a search, in the order in which they ended."""

    @contextmanager
    def measure(self, stage: str, n_in: int) -> Iterator[Callable[[int], None]]:
        """Time a stage; it calls the yielded function with the number of its results."""
        n_results, started = [0], time.perf_counter()
        yield n_results.append
        self.append(StageReport(stage, n_in, n_results[-1], time.perf_counter() - started))


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
        with stages.measure(node.label, count(lists)) as report:
            results = _keep(fuse(lists, Fusion(node.rule, node.weights, rank_constant=node.k)), node)
            report(count(results))
        return results
    candidates = compact(run(node.source, retrieved, rerank, stages))
    with stages.measure(f">> {node.label}", count(candidates)) as report:
        results = _keep(rerank(node.reranker, candidates), node)
        report(count(results))
    return results


def count(lists: Lists) -> int:
    """Return the number of entries of all lists."""
    return int((lists.ends - lists.starts).sum())


def _keep(lists: Lists, node: Node) -> Lists:
    return lists if node.keep is None else truncate(lists, node.keep)
