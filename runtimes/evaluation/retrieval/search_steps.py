"""Searches of a question as its recorded steps have them, and their names.

A search is named by its labels in the method's trace, such as "round 2" or "after feedback"; without labels it is the "first search".
Further searches with the same labels are numbered: "round 2, search 2", "search 2". Searches whose passages are not meant for the question
(noise, demonstrations) are left out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from wikidx.runtimes.methods.prompt_sets import DEMONSTRATIONS
from wikidx.runtimes.methods.reading import NOISE

CUTS = (1, 5, 10, 20, 100)
RECALL_METRICS = {f"answer@{k}": k for k in CUTS}
"""Name of R@k, as in ``idx eval retrieval`` -> k."""


class SearchStep(NamedTuple):
    """A search of a question: its name, the number of passages that were requested, and the ids of those found, best first."""

    name: str
    k: int
    ids: tuple[str, ...]


def read_search_steps(steps: object) -> tuple[SearchStep, ...]:
    """Return the searches among the recorded steps of a question, in order; records of another form are left out."""
    found, n_named = list[SearchStep](), Counter[str]()
    for step in steps if isinstance(steps, list) else ():
        if not isinstance(step, dict) or step.get("request") != "retrieve" or not isinstance(step.get("result"), list):
            continue
        path = [str(label) for label in step["path"]] if isinstance(step.get("path"), list) else []
        ids = tuple(hit["id"] for hit in step["result"] if isinstance(hit, dict) and isinstance(hit.get("id"), str))
        if not {NOISE, DEMONSTRATIONS}.intersection(path):
            labels = " / ".join(path)
            n_named[labels] += 1
            found.append(SearchStep(_name(labels, n_named[labels]), _depth(step.get("k"), len(ids)), ids))
    return tuple(found)


def _name(labels: str, number: int) -> str:
    return labels or "first search" if number == 1 else ", ".join(filter(None, (labels, f"search {number}")))


def _depth(k: Any, n_found: int) -> int:  # noqa: ANN401 - JSON
    return k if type(k) is int and k > 0 else max(n_found, 1)
