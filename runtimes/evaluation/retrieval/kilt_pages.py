"""KILT's retrieval metrics (facebookresearch/KILT, kilt/eval_retrieval.py), on pages instead of passages.

A question has *evidence sets*: the pages of one set together prove an answer. The metrics at k are computed on a list of places. An
evidence set has one place, at its lowest-ranked page in the ranking. The place is a hit if the ranking contains all pages of the set. Each
page outside the evidence sets has its own place, which is a miss.

    Rprec            share of an evidence set's R pages that are among the first R pages; the maximum over the evidence sets
    precision@k      number of hits among the first k places, divided by k
    recall@k         number of hits among the first k places, divided by the number of distinct evidence sets; an empty set counts
    success_rate@k   1 if any of the first k places is a hit, else 0

A question without evidence sets scores 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_HIT, _MISS = "hit", "miss"  # values of places; an incomplete evidence set's place holds the number of the set


def page_names(provenance: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """Return the distinct page names of a provenance, in order.

    Args:
        provenance: records of pages; a record without one of the fields is skipped.
        keys: the record fields that identify a page; KILT's evaluator uses "wikipedia_id".
    """
    names = ("+".join(str(record[key]).strip() for key in keys) for record in provenance if all(key in record for key in keys))
    return list(dict.fromkeys(names))


def page_figures(evidence: Sequence[Sequence[str]], ranking: Sequence[str], cuts: Sequence[int]) -> dict[str, float]:
    """Return R-precision, and precision, recall and success rate at each cut.

    Args:
        evidence: the evidence sets of the gold outputs.
        ranking: distinct pages, best first.
        cuts: the values of k.
    """
    r_precisions = (sum(page in pages for page in ranking[: len(pages)]) / len(pages) for pages in evidence if pages)
    figures = {"Rprec": max(r_precisions, default=0.0)}
    distinct = set(map(frozenset, evidence))
    places, n_sets = _places(distinct, ranking), len(distinct)
    for k in cuts:
        n_hits = places[:k].count(_HIT)
        figures[f"precision@{k}"] = n_hits / k
        figures[f"recall@{k}"] = n_hits / n_sets if n_sets else 0.0
        figures[f"success_rate@{k}"] = float(n_hits > 0)
    return figures


def _places(sets: Iterable[frozenset[str]], ranking: Sequence[str]) -> list[str | int]:
    missing = [set(pages) for pages in sets]
    places = list[str | int]()
    for page in ranking:
        concerned = [number for number, pages in enumerate(missing) if page in pages]
        for number in concerned:
            if number in places:
                places.remove(number)
            missing[number].remove(page)
            places.append(number if missing[number] else _HIT)
        if not concerned:
            places.append(_MISS)
    return places
