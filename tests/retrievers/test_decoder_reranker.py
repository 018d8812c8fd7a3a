"""Instructions and lengths of decoders as rerankers; see tests/contracts/test_reranker.py for the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.contracts.test_reranker import by_the_card
from tests.indexer.encoders.changes import changed
from tests.retrievers.made_rerankers import PAIRS, save_decoder, score
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.decoder import Decoder

STORED = {"prompts": {"facts": "Find facts"}, "default_prompt_name": "facts"}


@pytest.mark.parametrize(("chosen", "expected"), [(None, "Find facts"), ("Find the same fact", "Find the same fact")])
def test_the_instruction_is_the_users_or_the_checkpoints(chosen: str | None, expected: str, tmp_path: Path) -> None:
    folder = save_decoder(tmp_path)
    changed("config_sentence_transformers.json", **STORED)(folder)
    found = score(Decoder(RerankerSpec(name="mine", checkpoint=folder, instruction=chosen)), PAIRS[:2])
    np.testing.assert_allclose(found, by_the_card(folder, PAIRS[:2], expected), rtol=0, atol=1e-5)
    assert abs(found - by_the_card(folder, PAIRS[:2])).max() > 1e-4


def test_a_passage_is_cut_to_the_length_of_the_spec(tmp_path: Path) -> None:
    found = score(Decoder(RerankerSpec(name="cut", checkpoint=save_decoder(tmp_path), max_tokens=450)), PAIRS[2:4])
    np.testing.assert_allclose(found, by_the_card(tmp_path, PAIRS[2:4], max_tokens=450), rtol=0, atol=1e-5)
