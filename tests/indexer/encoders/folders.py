"""Encoders with the checkpoint of a folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from wikidx.indexer.encoders.spec import EncoderSpec


def with_checkpoint(spec: EncoderSpec, folder: Path) -> EncoderSpec:
    """Return an encoder with weights and tokenizer from a folder; DPR's are in its folders ``question_encoder`` and ``ctx_encoder``."""
    has_two = spec.query_checkpoint != spec.passage_checkpoint
    query, passage = (folder / "question_encoder", folder / "ctx_encoder") if has_two else (folder, folder)
    return dataclasses.replace(spec, query_checkpoint=query, passage_checkpoint=passage, weights_sha256=None)
