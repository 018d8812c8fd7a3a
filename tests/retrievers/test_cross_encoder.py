"""Cross-encoders: settings that checkpoints store, SimLM's format; see tests/contracts/test_reranker.py for the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.contracts.test_reranker import by_sentence_transformers
from tests.indexer.encoders.changes import changed
from tests.retrievers.made_rerankers import PAIRS, PASSAGES, save_classifier, score
from wikidx.base.errors import ArtifactCorrupt
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.rerankers.by_name import open_reranker
from wikidx.retrievers.rerankers.cross_encoder import SIMLM_SPEC

TANH = "torch.nn.modules.activation.Tanh"


@pytest.mark.parametrize(
    ("file", "stored", "said"),
    [
        ("config.json", {"sentence_transformers": {"activation_fn": TANH}}, {}),
        ("config.json", {"sbert_ce_default_activation_function": TANH}, {}),
        ("config_sentence_transformers.json", {"activation_fn": TANH}, {"activation_fn": torch.nn.Tanh()}),
        ("sentence_bert_config.json", {"max_seq_length": 20}, {"max_length": 20}),
        ("tokenizer_config.json", {"model_max_length": 20}, {"max_length": 20}),
    ],
    ids=str,
)
def test_activation_and_length_are_the_checkpoints(file: str, stored: dict[str, Any], said: dict[str, Any], tmp_path: Path) -> None:
    """Also where the library has to be told; ``said`` is what."""
    folder = save_classifier(tmp_path)
    before = score(open_reranker(str(folder)), PAIRS)
    changed(file, **stored)(folder)
    found = score(open_reranker(str(folder)), PAIRS)
    np.testing.assert_allclose(found, by_sentence_transformers(folder, **said), rtol=0, atol=1e-5)
    assert np.abs(found - before).max() > 1e-3


def test_simlms_reranker_is_read_as_its_authors_do(home: Path) -> None:
    """Query, then "title: text" with "-" for no title, 192 tokens; loaded from local files, without a network."""
    folder = save_classifier(home / "checkpoints" / "intfloat" / "simlm-msmarco-reranker" / "main", "Electra")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    texts = [f"{passage.title if passage.title else '-'}: {passage.text}" for _, passage in PAIRS]
    batch = tokenizer([query for query, _ in PAIRS], text_pair=texts, max_length=192, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        expected = model(**batch).logits[:, 0].numpy()
    np.testing.assert_allclose(score(open_reranker("simlm"), PAIRS), expected, rtol=1e-5, atol=1e-5)
    assert (SIMLM_SPEC.max_tokens, SIMLM_SPEC.passage_text(PASSAGES[1])) == (192, "-: a river, 4 rivers: of the nile")


def test_a_searcher_reranks_with_a_checkpoint_of_the_users(build: Callable[..., PassageStore], tmp_path: Path) -> None:
    build_index("made", "bm25", build(PASSAGES[:3]))
    folder = save_classifier(tmp_path / "checkpoint")
    searcher = open_searcher("made", "bm25", reranker=str(folder))
    (ranking,) = searcher.search_groups([["nile", "rivers"]], SearchOptions(rerank="cross-encoder"))
    scores = score(open_reranker(str(folder)), [("nile", passage) for passage in PASSAGES[:3]])
    of_passage = dict(zip(["1", "2", "3"], scores.tolist(), strict=True))
    assert [hit.passage.id for hit in ranking] == sorted(of_passage, key=lambda id_: -of_passage[id_])
    assert [hit.score for hit in ranking] == pytest.approx(sorted(of_passage.values(), reverse=True), abs=1e-5)


def test_an_error_without_words_is_named_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", fail)
    with pytest.raises(ArtifactCorrupt, match="RuntimeError"):
        open_reranker(str(save_classifier(tmp_path)))
