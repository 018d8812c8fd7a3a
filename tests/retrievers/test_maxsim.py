"""MaxSim: layers, texts that are encoded once, tokens that do not count; see tests/contracts/test_reranker.py for the rest."""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.encoders.changes import changed
from tests.retrievers.made_rerankers import PAIRS, PASSAGES, QUERIES, Pair, save_colbert, score
from wikidx.indexer.base import Scores
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.maxsim import MaxSim


def scored(folder: Path, *pairs: Pair) -> Scores:
    return score(MaxSim(RerankerSpec(name="made", checkpoint=folder)), pairs or PAIRS)


def test_a_layer_applies_to_tokens_whatever_it_says_and_has_no_activation_unless_it_says_so(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path)
    expected, file = scored(folder), folder / "1_Dense" / "config.json"
    config = json.loads(file.read_text())
    del config["activation_function"]
    file.write_text(json.dumps(config | {"module_input_name": "sentence_embedding"}))
    np.testing.assert_array_equal(scored(folder), expected)


def test_each_distinct_text_is_encoded_once(tmp_path: Path) -> None:
    reranker = MaxSim(RerankerSpec(name="made", checkpoint=save_colbert(tmp_path)))
    n_read, model = list[int](), reranker.module
    model.register_forward_pre_hook(lambda _, args, inputs: n_read.append(len(inputs["input_ids"])), with_kwargs=True)
    score(reranker, PAIRS * 2)
    assert sum(n_read) == len(QUERIES) + len(PASSAGES)


def test_a_passage_none_of_whose_tokens_counts_scores_nothing(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path, skiplist_words=[*string.punctuation, "[CLS]", "[SEP]", "[D] "])
    punctuation, words = scored(folder, ("nile", PASSAGES[4]), ("nile", PASSAGES[0]))
    assert punctuation == 0.0
    assert words > 0.0


def test_texts_are_lowered_if_the_checkpoint_says_so(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path)
    lowered = scored(folder, ("nile", PASSAGES[0]))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert scored(folder, ("NILE", PASSAGES[0])) != pytest.approx(lowered)
    changed("sentence_bert_config.json", do_lower_case=True)(folder)
    assert scored(folder, ("NILE", PASSAGES[0])) == pytest.approx(lowered)
