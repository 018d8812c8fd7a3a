"""Search options: what is refused in which words, and what stands for a value; see also ``test_results`` for their names."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.conftest import read_rows
from wikidx.base.errors import InputError, OptionError
from wikidx.retrievers import SearchOptions

REFUSED_IN_PYTHON: list[tuple[dict[str, Any], str]] = [  # beside those that are refused over HTTP, too
    ({"k": 10**30}, "k is 10+: it should be less than or equal to 9223372036854775807"),
    ({"fuse": "weighted", "weights": {"bm25": float("nan")}}, "weights.bm25 is nan: it should be a finite number"),
    ({"fuse": "weighted", "weights": {"bm25": 10**400}}, "weights.bm25 is 1000"),
    ({"k": np.True_}, "k is True: it should be a valid integer"),
    ({"k": np.float64(2)}, "k is 2.0: it should be a valid integer"),
    ({"k": np.array([2])}, r"k is array\(\[2\]\): it should be a valid integer"),
    ({"fuse": "weighted", "weights": {1: 1.0}}, r"weights.1.\[key\] is 1: it should be a valid string"),
    ({"fuse": "weighted", "weights": {str(n): 1.0 for n in range(101)}}, "weights is .* at most 100 items"),
]


@pytest.mark.parametrize(("values", "message"), [*read_rows("retrievers/refused_options.jsonl"), *REFUSED_IN_PYTHON])
def test_values_that_mean_nothing_are_refused_in_a_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        SearchOptions(**values)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_copy_is_checked_as_well() -> None:
    assert dataclasses.replace(SearchOptions(), k=3) == SearchOptions(k=3)
    with pytest.raises(OptionError, match="k is 0"):
        dataclasses.replace(SearchOptions(), k=0)


def test_options_go_to_other_processes_through_json_and_are_keys() -> None:
    weights = {"bm25": 0.1}
    options = SearchOptions(k=3, fuse="weighted", weights=weights, rerank="primary", rerank_depth=50)
    again = SearchOptions(**json.loads(json.dumps(dataclasses.asdict(options))))
    weights["bm25"] = 0.2  # of the caller's own
    assert options == again == pickle.loads(pickle.dumps(options)) != dataclasses.replace(options, weights=weights)
    assert options.weights == {"bm25": 0.1}
    assert len({options, again, SearchOptions(k=3)}) == 2


def test_a_reranker_that_is_named_reranks() -> None:
    assert SearchOptions(k=3).with_reranker("simlm") == SearchOptions(k=3, rerank="cross-encoder")
    assert SearchOptions(rerank="primary").with_reranker(None) == SearchOptions(rerank="primary")
    with pytest.raises(InputError, match="rerank is 'primary', which the reranker 'simlm' has no part in"):
        SearchOptions(rerank="primary").with_reranker("simlm")


def test_numpy_s_numbers_and_strings_become_plain_ones() -> None:
    weights = SearchOptions(fuse="weighted", weights={np.str_("bm25"): np.float64(0.5), "minilm": 2}).weights
    assert weights == {"bm25": 0.5, "minilm": 2.0}
    assert {(type(name), type(weight)) for name, weight in (weights or {}).items()} == {(str, float)}


class _Three:
    def __index__(self) -> int:
        return 3


@pytest.mark.parametrize("three", [np.int64(3), np.uint8(3), np.array(3), _Three()], ids=["int64", "uint8", "array", "__index__"])
def test_whatever_stands_for_an_integer_is_one(three: Any) -> None:  # noqa: ANN401
    weights = {"bm25": np.float32(0.5)}
    options = SearchOptions(k=three, nprobe=three, fuse="weighted", normalize=np.True_, weights=weights)  # type: ignore[arg-type]
    assert options == SearchOptions(k=3, nprobe=3, fuse="weighted", normalize=True, weights={"bm25": 0.5})
    assert (type(options.k), json.dumps(dataclasses.asdict(options))[:7]) == (int, '{"k": 3')


def test_the_first_options_of_a_process_are_refused_alike() -> None:
    script = (
        "from wikidx.retrievers import SearchOptions\ntry:\n  SearchOptions(k=0)\nexcept Exception as error:\n  print(type(error).__name__)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "OptionError\n"
