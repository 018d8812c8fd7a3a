"""Token ids of the authors' own code in ``golden_encoders``, exactly; contracts/test_encoder has its vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.indexer.encoders.golden import VARIANTS, Golden, Variant, tokens_of
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.tokenizing import Tokenizer


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))
def test_token_ids_are_the_authors(variant: Variant, shared_data: Path) -> None:
    golden = Golden(shared_data / "golden_encoders" / variant.encoder)
    for side, array in zip(("query", "passage"), variant.arrays, strict=True):
        tokens = tokens_of(Tokenizer(variant.change(golden.spec()), side), golden.texts(side))  # type: ignore[arg-type]
        expected = golden.token_ids(array)
        assert len(expected) == 24
        assert [ids.tolist() for ids in np.split(tokens.ids, tokens.ends[:-1])] == [row["input_ids"] for row in expected]
        types = np.zeros(len(tokens.ids), dtype=np.uint8) if tokens.types is None else tokens.types
        expected_types = [row.get("token_type_ids", [0] * len(row["input_ids"])) for row in expected]
        assert [ids.tolist() for ids in np.split(types, tokens.ends[:-1])] == expected_types


def test_what_is_stored_in_float16_is_computed_in_float32_by_default(shared_data: Path) -> None:
    golden = Golden(shared_data / "golden_encoders" / "gtr")
    tokens = Tokenizer(golden.spec(), "query").queries(["why"])
    exact, half = Model(golden.spec(), "query"), Model(golden.spec(), "query", dtype="float16")
    assert {parameter.dtype for parameter in exact.module.parameters()} == {torch.float32}
    assert 2e-5 < np.abs(exact.encode(tokens) - half.encode(tokens)).max() < 1e-3
