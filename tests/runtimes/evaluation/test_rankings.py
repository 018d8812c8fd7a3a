from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.retrieval.rankings import check_measures, gold_values, hit_values
from wikidx.runtimes.evaluation.retrieval.trec import trec_order

PASSAGES = st.sampled_from("abcdef")
MEASURES = ["Success@1", "Success@3", "R@2", "R@5", "P@2", "P@5", "RR", "RR@2", "AP", "AP@2", "nDCG", "nDCG@3", "Rprec"]


def by_definition(order: list[str], relevance: dict[str, int]) -> dict[str, float]:
    """Return the figures of one question as their definitions have them."""
    gains = [max(0, relevance.get(passage, 0)) for passage in order]
    hits = [gain > 0 for gain in gains]
    n_relevant = sum(gain > 0 for gain in relevance.values())
    first = next((rank for rank, hit in enumerate(hits, 1) if hit), 0)
    best = sorted((gain for gain in relevance.values() if gain > 0), reverse=True)

    def precision_sum(k: int) -> float:
        return sum(sum(hits[:rank]) / rank for rank, hit in enumerate(hits[:k], 1) if hit)

    def dcg(of: list[int], k: int) -> float:
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(of[:k], 1))

    return {
        **{f"Success@{k}": float(any(hits[:k])) for k in (1, 3)},
        **{f"R@{k}": sum(hits[:k]) / n_relevant for k in (2, 5)},
        **{f"P@{k}": sum(hits[:k]) / k for k in (2, 5)},
        "RR": 1 / first if first else 0.0,
        "RR@2": 1 / first if 0 < first <= 2 else 0.0,
        "AP": precision_sum(len(hits)) / n_relevant,
        "AP@2": precision_sum(2) / n_relevant,
        "nDCG": dcg(gains, len(gains)) / dcg(best, len(best)),
        "nDCG@3": dcg(gains, 3) / dcg(best, 3),
        "Rprec": sum(hits[:n_relevant]) / n_relevant,
    }


@given(
    st.dictionaries(PASSAGES, st.sampled_from([0.5, 1.0, 1.0 + 1e-9, 2.0]), min_size=1),
    st.dictionaries(PASSAGES, st.integers(0, 2), min_size=1).filter(lambda known: max(known.values()) > 0),
)
def test_figures_are_those_of_their_definitions(scores: dict[str, float], relevance: dict[str, int]) -> None:
    values = gold_values({"q": scores}, {"q": relevance}, ["q"], MEASURES)
    expected = by_definition(trec_order(scores), relevance)
    assert list(values) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], [value], rtol=1e-12, err_msg=name)


_SCORE = """
import json, random, sys
from wikidx.runtimes.evaluation.retrieval.rankings import gold_values
levels, found = random.Random(1), {}
for name, qrels in json.loads(sys.argv[1]).items():
    for _ in range(50):  # what is left in memory decides whether the last call hangs
        before = {name: {passage: levels.choice([-1, -1, 0, 2]) for passage in "abcdef"[:levels.randint(1, 6)]} for name in "pqrs"}
        gold_values({name: {"a": 1.0, "b": 1.0} for name in before}, before, list(before), ["nDCG"])
    run = {question: {"a": 3.0, "b": 2.0, "c": 1.0} for question in qrels}
    found[name] = {name: list(values) for name, values in gold_values(run, qrels, list(qrels), ["RR", "nDCG", "nDCG@10"]).items()}
print(json.dumps(found))
"""


HOSTILE: dict[str, tuple[dict[str, dict[str, int]], list[float], list[float]]] = {
    "a question of junk": (
        {"q": {"a": 1}, "junk": {"a": -2, "b": -2}, "r": {"b": 2}},
        [1, 0, 0.5],
        [1, 0, 1 / math.log2(3)],
    ),
    "mixed": ({"q": {"a": -2, "b": 1, "c": -1_000_000}}, [0.5], [1 / math.log2(3)]),
    "many": ({f"q{n}": {"a": -n} for n in range(100)}, [0] * 100, [0] * 100),
    "huge": ({"q": {"a": -(10**30), "b": 10**30, "c": 10**30}}, [0.5], [(1 / math.log2(3) + 1 / 2) / (1 + 1 / math.log2(3))]),
    "NUL": ({"q\0a": {"a": 1}, "q\0b": {"b": 1}}, [1, 0.5], [1, 1 / math.log2(3)]),
    "half a character": ({"\ud800": {"\udc00": 1, "a": 1}}, [1], [1 / (1 + 1 / math.log2(3))]),
}


def test_no_level_and_no_id_ends_the_process() -> None:
    """In native code, which some of these crashed, and others kept busy for hours."""
    given = json.dumps({name: qrels for name, (qrels, *_) in HOSTILE.items()})
    scored = subprocess.run([sys.executable, "-c", _SCORE, given], capture_output=True, text=True, timeout=200)
    assert scored.returncode == 0, scored.stderr
    for name, values in json.loads(scored.stdout).items():
        _, rr, ndcg = HOSTILE[name]
        assert (values["RR"], values["nDCG@10"]) == (pytest.approx(rr), pytest.approx(ndcg)), name


def test_what_does_not_join_has_trec_evals_rule() -> None:
    run = {"found": {"a": 1.0}, "unjudged": {"a": 1.0}, "barren": {"a": 1.0}, "not asked": {"a": 1.0}, "empty": dict[str, float]()}
    qrels = {"found": {"a": 1}, "missing": {"a": 1}, "barren": {"a": 0}, "empty": {"a": 1}}
    values = gold_values(run, qrels, ["found", "missing", "unjudged", "barren", "empty"], ["RR", "Success@5"])
    for of_measure in values.values():
        np.testing.assert_array_equal(of_measure, [1, 0, np.nan, 0, 0])
    assert np.isnan(gold_values({}, {}, ["q"], ["AP"])["AP"]).all()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *((name, f"there is no measure '{name}'") for name in ("R", "R@", "R@0", "P@-1", "ERR@10", "RR@x", "__import__('os')")),
        ("map", "did you mean 'AP'? name"),
        ("MRR@10", "did you mean 'RR@10'? name"),
        ("ndcg@5", "did you mean 'nDCG@5'? name"),
        ("bpref", "'bpref': name"),
    ],
)
def test_a_measure_that_there_is_not_is_refused_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=re.escape(hint)):
        check_measures(["AP", name])


def test_hits_among_the_first_k() -> None:
    hits = [np.array([False, True, True]), np.array([], dtype=bool), np.array([True])]
    assert hit_values(hits, 1).tolist() == [0, 0, 1]
    assert hit_values(hits, 2).tolist() == [1, 0, 1]
