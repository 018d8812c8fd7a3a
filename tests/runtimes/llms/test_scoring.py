"""Checkpoints that score texts, with made weights: an encoder against plain mean pooling, a T5 classifier against its own forward pass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import processors

from tests.runtimes.llms.calling import error_of, result_of
from wikidx.base.errors import ArtifactMismatch
from wikidx.runtimes.llms.base import Generate, Score, Scores
from wikidx.runtimes.llms.naming import open_llms, parse_spec
from wikidx.runtimes.llms.scoring import ScoringEngine

TEXTS = ("The river flows through the country.", "yes", "Is the passage relevant to the question? Yes or No." * 30)


def save(network: transformers.PreTrainedModel, tiny_llama: Path, folder: Path) -> Path:
    """Write a network with the tiny Llama's tokens; texts end with the end token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer.pad_token = "<|system|>"
    tokenizer.save_pretrained(folder)
    network.save_pretrained(folder)
    return folder


def test_an_encoder_scores_by_the_product_of_mean_vectors(tiny_llama: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=96
    )
    folder = save(transformers.BertModel(config), tiny_llama, tmp_path / "bert")
    engine = open_llms({"compressor": parse_spec(f"hf:{folder}")})["compressor"]
    assert isinstance(engine, ScoringEngine)
    network, tokenizer = transformers.BertModel.from_pretrained(folder).eval(), transformers.AutoTokenizer.from_pretrained(folder)
    vectors = []
    for text in ("who wrote the play?", *TEXTS):
        ids = tokenizer(text)["input_ids"]
        ids = ids if len(ids) <= 96 else [*ids[:95], 1]  # what it reads, and the end token
        with torch.inference_mode():
            vectors.append(network(torch.tensor([ids])).last_hidden_state[0].double().numpy().mean(0))
    scores, refused = engine.run([Score(prompt="who wrote the play?", texts=TEXTS), Generate(prompt="who", role="answer")])
    assert result_of(scores, Scores).values == pytest.approx([float(np.dot(vectors[0], each)) for each in vectors[1:]], rel=1e-5)
    assert "scores texts and writes none: give the role 'answer' a language model" in error_of(refused)


def test_a_classifier_scores_by_its_logit(tiny_llama: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=400,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        num_labels=1,
        pad_token_id=2,
        eos_token_id=1,
        decoder_start_token_id=2,
    )
    folder = save(transformers.T5ForSequenceClassification(config), tiny_llama, tmp_path / "t5")
    engine = open_llms({"evaluator": parse_spec(f"hf:{folder}")})["evaluator"]
    network = transformers.T5ForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for query, inputs in (("", [(text,) for text in TEXTS]), ("who?", [("who?", text) for text in TEXTS])):
        scored = result_of(engine.run([Score(prompt=query, texts=TEXTS)])[0], Scores)
        with torch.inference_mode():
            expected = [
                float(network(**tokenizer(*each, return_tensors="pt", padding="max_length", max_length=512, truncation=True)).logits)
                for each in inputs
            ]
        assert len({round(value, 6) for value in expected}) == 3
        assert scored.values == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_classifier_without_the_weights_of_its_head_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    config = transformers.BertConfig(vocab_size=400, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
    folder = save(transformers.BertModel(config), tiny_llama, tmp_path / "bert")
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**described, "architectures": ["BertForSequenceClassification"]}))
    with pytest.raises(ArtifactMismatch, match=r"missing .*classifier"):
        open_llms({"evaluator": parse_spec(f"hf:{folder}")})
