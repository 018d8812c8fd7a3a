"""The checkpoints, inputs and vectors of the authors' own code in ``golden_encoders`` (its README says how they were made)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tests.indexer.encoders.folders import with_checkpoint
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.families import ENCODERS, pair_unquoted
from wikidx.indexer.encoders.spec import EncoderSpec, Side, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer

_MAX_DIFFERENCE = 5e-5
_MAX_ANGLE = 2e-6  # 1 - cosine

SPECS = {name: ENCODERS[name] for name in ("contriever", "dpr", "gtr", "simlm", "minilm")}


def since_2021(spec: EncoderSpec) -> EncoderSpec:
    """Return an encoder with the settings of DPR's later code."""
    return dataclasses.replace(spec, passage_text=pair_unquoted, extra_sep_position=spec.max_passage_tokens - 1)


class Variant(NamedTuple):
    """An encoder with a change of its spec, and the arrays of its vectors of queries and of passages."""

    encoder: str
    change: Callable[[EncoderSpec], EncoderSpec] = dataclasses.replace
    arrays: tuple[str, str] = ("query_vectors", "passage_vectors")


VARIANTS = {name: Variant(name) for name in SPECS} | {
    "dpr since 2021": Variant("dpr", since_2021, ("query_vectors_head", "passage_vectors_head")),
    "dpr with all apostrophes": Variant(
        "dpr", lambda spec: dataclasses.replace(spec, query_text=str.strip), ("query_vectors_raw_apostrophe", "passage_vectors")
    ),
    "simlm with 144 tokens": Variant(
        "simlm", lambda spec: dataclasses.replace(spec, max_passage_tokens=144), ("query_vectors", "passage_vectors_144")
    ),
}


@dataclass(frozen=True, slots=True)
class Golden:
    """One encoder's folder."""

    folder: Path

    def spec(self) -> EncoderSpec:
        spec = SPECS[self.folder.name]
        return spec if spec is ENCODERS["minilm"] else with_checkpoint(spec, self.folder / "checkpoint")

    def texts(self, side: Side) -> list[Passage] | list[str]:
        lines = (self.folder / "work" / "inputs.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        if side == "query":
            return [row["question"] for row in rows if row["kind"] == "question"]
        return [Passage("", row["title"], row["text"]) for row in rows if row["kind"] == "passage"]

    def vectors(self, name: str) -> Vectors:
        with np.load(self.folder / "work" / "golden.npz") as arrays:
            return cast(Vectors, arrays[name])

    def token_ids(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "work" / "token_ids.json").read_bytes())[name]
        return found


def tokens_of(tokenizer: Tokenizer, texts: list[Passage] | list[str]) -> Tokens:
    passages = [text for text in texts if isinstance(text, Passage)]
    return tokenizer.passages(passages) if passages else tokenizer.queries([text for text in texts if isinstance(text, str)])


def differences(got: Vectors, expected: Vectors) -> Vectors:
    """Return the largest difference of each row."""
    return cast(Vectors, np.abs(got - expected).max(axis=1))


def angles(got: Vectors, expected: Vectors) -> Vectors:
    """Return 1 - cosine of each row."""
    cosine = (got * expected).sum(axis=1) / (np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1))
    return cast(Vectors, 1 - cosine)


def is_equal(got: Vectors, expected: Vectors) -> NDArray[np.bool_]:
    """Return which rows agree."""
    return (differences(got, expected) <= _MAX_DIFFERENCE) & (angles(got, expected) <= _MAX_ANGLE)
