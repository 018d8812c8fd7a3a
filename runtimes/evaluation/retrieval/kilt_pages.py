"""KILT's retrieval metrics (facebookresearch/KILT, kilt/eval_retrieval.py), on pages instead of passages.

A question has *evidence sets*: the pages that together prove one answer. A set counts once in the ranking, at the rank of its last page;
the pages of an incomplete set share one place, that of the latest; a page in no set has a place of its own.

    Rprec            with R pages in a set: the share of them among the first R; of all sets the best. No pages: 0
    precision@k      places among the first k where a set is complete, over k
    recall@k         the same over the number of different sets; an output without "provenance" has none, an empty one counts
    success_rate@k   whether there is such a place

Irregular input, as in KILT: without pages every place figure is 0; repeated pages and records without a page key
are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_HIT, _MISS = "hit", "miss"  # places; the place of an incomplete set is its number


def page_names(provenance: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """Return the distinct pages of a provenance in order, identified by these fields of a record; KILT's is "wikipedia_id"."""
    names = ("+".join(str(record[key]).strip() for key in keys) for record in provenance if all(key in record for key in keys))
    return list(dict.fromkeys(names))


def page_figures(evidence: Sequence[Sequence[str]], ranking: Sequence[str], cuts: Sequence[int]) -> dict[str, float]:
    """Return R-precision, and precision, recall and success rate at each cut.

    Args:
        evidence: the evidence sets, one for each gold output that has one.
        ranking: pages, best first, each once.
        cuts: the k.
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
