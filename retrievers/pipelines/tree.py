"""Pipelines as trees: retrievers, whose results are fused and reranked for each query. ``str`` gives a node's notation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Rule = Literal["rrf", "minmax", "zscore", "weighted"]

RRF_K = 60
REMOTE = "remote:"  # begins the name of a retriever on a server


@dataclass(frozen=True, slots=True)
class Source:
    """A retriever by its name; ``keep`` is the number of results that stay, in all nodes (None: all)."""

    name: str
    keep: int | None = None

    def __str__(self) -> str:
        return self.name + _cut(self.keep)


@dataclass(frozen=True, slots=True)
class Fused:
    """A fusion of inputs, each with its weight."""

    inputs: tuple[Node, ...]
    weights: tuple[float, ...]
    rule: Rule = "rrf"
    k: int = RRF_K  # of rrf
    keep: int | None = None

    @property
    def label(self) -> str:
        """The fusion without its inputs."""
        return self.rule + (f"(k={self.k})" if self.k != RRF_K else "") + _cut(self.keep)

    def __str__(self) -> str:
        weights = ("" if weight == 1 else f":{weight:.9f}".rstrip("0").rstrip(".") for weight in self.weights)
        return f"{{{', '.join(f'{node}{weight}' for node, weight in zip(self.inputs, weights, strict=True))}}}{self.label}"


@dataclass(frozen=True, slots=True)
class Reranked:
    """Results of a node, all of which a reranker scores anew."""

    source: Node
    reranker: str
    keep: int | None = None

    @property
    def label(self) -> str:
        """The reranker without its source."""
        return self.reranker + _cut(self.keep)

    def __str__(self) -> str:
        return f"{self.source} >> {self.label}"


Node = Source | Fused | Reranked


def inputs(node: Node) -> tuple[Node, ...]:
    """Return the nodes whose results a node takes."""
    return node.inputs if isinstance(node, Fused) else (node.source,) if isinstance(node, Reranked) else ()


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, the inputs of a node before it."""
    for below in inputs(node):
        yield from walk(below)
    yield node


def replace_sources(node: Node, replacement: Callable[[Source], Node]) -> Node:
    """Return a node with each of its sources replaced."""
    if isinstance(node, Source):
        return replacement(node)
    if isinstance(node, Reranked):
        return replace(node, source=replace_sources(node.source, replacement))
    return replace(node, inputs=tuple(replace_sources(below, replacement) for below in node.inputs))


class Size(NamedTuple):
    """Upper bounds for one query: results of a node, and passages that rerankers read."""

    n_results: int
    n_reranked: int


def size(node: Node, depth: int) -> Size:
    """Return the size of a node whose sources retrieve ``depth`` results where they keep no other number."""
    if isinstance(node, Source):
        return Size(node.keep or depth, 0)
    below = [size(each, depth) for each in inputs(node)]
    n_inputs = sum(each.n_results for each in below)
    n_reranked = sum(each.n_reranked for each in below) + n_inputs * isinstance(node, Reranked)
    return Size(min(node.keep or n_inputs, n_inputs), n_reranked)


def source_depths(node: Node, depth: int) -> dict[str, int]:
    """Return the number of results that each source must retrieve for a query: the largest where one is named twice."""
    depths = dict[str, int]()
    for source in walk(node):
        if isinstance(source, Source):
            depths[source.name] = max(depths.get(source.name, 0), source.keep or depth)
    return depths


def _cut(keep: int | None) -> str:
    return "" if keep is None else f"%{keep}"
