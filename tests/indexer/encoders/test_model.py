"""Batches as they are padded for a device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.encoders.golden import since_2021
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Side, Tokens
from wikidx.indexer.networks.network import Batch

FAMILIES = (ENCODERS["contriever"], ENCODERS["simlm"], ENCODERS["bge"], ENCODERS["gtr"], since_2021(ENCODERS["contriever"]))


@pytest.fixture(params=FAMILIES, ids=lambda spec: spec.name)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    spec: EncoderSpec = request.param
    folder = tiny.add_modules(tiny.save_t5(tmp_path), "mean", dim=10) if spec.dense else tiny.save_bert(tmp_path)
    return Model(with_checkpoint(spec, folder), "passage")


@pytest.mark.parametrize(
    ("device", "lengths", "width"),
    [
        ("cpu", (3, 9), 9),
        ("cuda", (3, 9), 16),
        ("cuda", (3, 16), 16),
        ("cuda", (9, 9), 9),  # nothing is masked
        ("cuda", (3, 180), 184),  # by a model that queries, of at most 32 tokens, share with passages
        ("cuda", (3, 187), 191),  # the network is not said to take more
    ],
)
@pytest.mark.parametrize("side", ["query", "passage"])
def test_a_mask_on_a_gpu_is_aligned(side: Side, device: str, lengths: tuple[int, ...], width: int, tmp_path: Path) -> None:
    spec = dataclasses.replace(ENCODERS["simlm"], max_passage_tokens=191)
    model = Model(with_checkpoint(spec, tiny.save_bert(tmp_path)), side)
    model.device = torch.device(device)
    assert model._width(np.array(lengths)) == width


def test_wider_padding_changes_no_vector(model: Model) -> None:
    lengths = np.array([5, 1, 13, 8])
    ids = np.random.default_rng(7).integers(5, 40, size=int(lengths.sum())).astype(np.int32)
    tokens = Tokens(ids, np.cumsum(lengths), np.zeros(len(ids), dtype=np.uint8))
    narrow = model.pad_tokens(tokens)
    assert narrow.ids.shape == (4, 13)
    wide_ids, wide_types, mask = (None if part is None else torch.nn.functional.pad(part, (0, 3)) for part in narrow[:3])
    assert wide_ids is not None
    wide = Batch(wide_ids, wide_types, mask)
    assert wide.ids.shape == (4, 16)
    np.testing.assert_allclose(model.forward(wide).numpy(), model.forward(narrow).numpy(), rtol=0, atol=2e-6)
