"""The encoders in wide use on tiny checkpoints of their architectures, against sentence-transformers with the same settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.encoders.test_anywhere import PASSAGES, assert_same, loaded, save
from tests.indexer.encoders.test_references import QUERIES
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec

ARCHITECTURES = {
    "qwen3": "qwen3",
    "bge-m3": "xlm-roberta",
    "multilingual-e5": "xlm-roberta",
    "multilingual-e5-small": "bert",
    "nomic": "nomic_bert",
    "arctic-v2": "xlm-roberta",
    "embeddinggemma": "gemma3_text",
    "mxbai": "bert",
    "mpnet": "mpnet",
    "gte-modernbert": "modernbert",
    "modernbert-embed": "modernbert",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_vectors_are_those_of_sentence_transformers(name: str, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    spec = dataclasses.replace(encoder_spec(name), max_query_tokens=200, max_passage_tokens=200)
    architecture = ARCHITECTURES[name]
    network = tiny.save_bert(tmp_path / "network") if architecture == "bert" else tiny.save_other(tmp_path / "network", architecture)
    passage_prompt = "title: none | text: " if name == "embeddinggemma" else spec.passage_prompt  # no passage here has a title
    layers = [Dense(24, 30, bias=False, activation_function=torch.nn.Identity()), Dense(30, 24, bias=False)] if spec.dense else []
    prompts = {"query": spec.query_prompt, "document": passage_prompt}
    folder = save(network, tmp_path / "saved", Pooling(24, spec.pooling), *layers, Normalize(), length=200, prompts=prompts)
    encoder, reference = TransformerEncoder(with_checkpoint(spec, folder)), loaded(folder)
    assert_same(encoder.encode_queries(QUERIES), reference.encode_query(QUERIES))
    assert_same(encoder.encode_passages(PASSAGES), reference.encode_document([passage.text for passage in PASSAGES]))


def test_embeddinggemma_labels_titles() -> None:
    assert encoder_spec("embeddinggemma").recipe()["passage"] == "title: {title} | text: {text}"
