"""Every row of ``golden_encoders``: the authors' own token ids exactly, and their vectors, alone and in any batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.indexer.encoders.golden import MAX_ANGLE, MAX_DIFFERENCE, SPECS, Golden, angles, differences, in_batches, is_equal, tokens_of
from wikidx.indexer.encoders import dpr
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Side
from wikidx.indexer.encoders.tokenizing import Tokenizer


class Case(NamedTuple):
    """An array of golden vectors, and the encoder that gives it."""

    encoder: str
    array: str
    change: Callable[[EncoderSpec], EncoderSpec] = dataclasses.replace

    @property
    def side(self) -> Side:
        return "query" if self.array.startswith("query") else "passage"


CASES = [Case(name, array) for name in SPECS for array in ("passage_vectors", "query_vectors")] + [
    Case("dpr", "passage_vectors_head", dpr.since_2021),
    Case("dpr", "query_vectors_head", dpr.since_2021),
    Case("dpr", "query_vectors_raw_apostrophe", lambda spec: dataclasses.replace(spec, query_text=str.strip)),
    Case("simlm", "passage_vectors_144", lambda spec: dataclasses.replace(spec, max_passage_tokens=144)),
]


def _marked(case: Case) -> Any:  # noqa: ANN401 - pytest's own type
    """Leave the only network here that is not tiny to make test-full."""
    return pytest.param(case, marks=pytest.mark.slow if case.encoder == "minilm" else (), id=f"{case.encoder}-{case.array}")


@pytest.fixture(params=map(_marked, CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def golden(case: Case, shared_data: Path) -> Golden:
    return Golden(shared_data / "golden_encoders" / case.encoder)


def test_token_ids_are_the_authors(case: Case, golden: Golden) -> None:
    tokens = tokens_of(Tokenizer(case.change(golden.spec()), case.side), golden.texts(case.side))
    expected = golden.token_ids(case.array)
    assert len(expected) == 24
    assert [ids.tolist() for ids in np.split(tokens.ids, tokens.ends[:-1])] == [row["input_ids"] for row in expected]
    types = np.zeros(len(tokens.ids), dtype=np.uint8) if tokens.types is None else tokens.types
    expected_types = [row.get("token_type_ids", [0] * len(row["input_ids"])) for row in expected]
    assert [ids.tolist() for ids in np.split(types, tokens.ends[:-1])] == expected_types


def test_vectors_are_the_authors_alone_and_in_any_batch(case: Case, golden: Golden) -> None:
    spec, expected = case.change(golden.spec()), golden.vectors(case.array)
    tokens, model = tokens_of(Tokenizer(spec, case.side), golden.texts(case.side)), Model(spec, case.side)
    for size in (1, 24):
        got = in_batches(model, tokens, size)
        assert got.dtype == np.float32
        assert differences(got, expected).max() <= MAX_DIFFERENCE
        assert angles(got, expected).max() <= MAX_ANGLE
    random = np.random.default_rng(7)
    for _ in range(2):
        for which in np.array_split(random.permutation(24), np.sort(random.integers(1, 24, 4))):
            assert is_equal(model.encode(tokens, which), expected[which]).all()


def test_what_is_stored_in_float16_is_computed_in_float32_by_default(shared_data: Path) -> None:
    golden = Golden(shared_data / "golden_encoders" / "gtr")
    tokens = Tokenizer(golden.spec(), "query").queries(["why"])
    exact, half = Model(golden.spec(), "query"), Model(golden.spec(), "query", dtype="float16")
    assert {parameter.dtype for parameter in exact.module.parameters()} == {torch.float32}
    assert 2e-5 < np.abs(exact.encode(tokens) - half.encode(tokens)).max() < 1e-3
