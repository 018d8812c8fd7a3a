"""A tiny checkpoint of an encoder, and passages to embed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import wikidx.indexer.build
from tests.indexer.encoders.folders import with_checkpoint
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec


@pytest.fixture
def tiny(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> EncoderSpec:
    """Contriever's form at a tiny size, whose vectors are written in ranges of 250 rows."""
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    monkeypatch.setattr(wikidx.indexer.build, "RANGE_ROWS", 250)
    return with_checkpoint(encoder_spec("contriever"), shared_data / "golden_encoders" / "contriever" / "checkpoint")


@pytest.fixture
def store(build: Callable[..., PassageStore], made_passages: list[Passage]) -> PassageStore:
    return build(made_passages)
