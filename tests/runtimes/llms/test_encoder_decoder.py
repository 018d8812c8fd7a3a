"""Encoder-decoders with made weights, T5 and BART, against transformers' own generation and plain forward passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import processors

from tests.runtimes.llms.calling import gens, result_of
from wikidx.runtimes.llms.base import AskYesNo, Generate, MeanNll, Nll, YesNo
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

PROMPTS = ["Question: who wrote the play?", "The river", "Is the passage relevant to the question? Yes or No."]
TEXTS = [" yes", " The mountain is high.", ""]
_IDS = {"pad_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 2}


def save_tiny(tiny_llama: Path, folder: Path, kind: str) -> Path:
    """Write an encoder-decoder with random weights and the tiny Llama's tokens; prompts end with the end token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.chat_template, n_tokens = None, len(tokenizer)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    if kind == "t5":
        config: Any = transformers.T5Config(vocab_size=n_tokens, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, **_IDS)
        transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    else:
        sizes = {
            f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
        }
        config = transformers.BartConfig(vocab_size=n_tokens, d_model=32, max_position_embeddings=128, init_std=0.5, **sizes, **_IDS)
        network = transformers.BartForConditionalGeneration(config)
        network.generation_config.update(forced_bos_token_id=0, forced_eos_token_id=None)
        network.save_pretrained(folder)
    return folder


@pytest.fixture(params=["t5", "bart"])
def opened(request: pytest.FixtureRequest, tiny_llama: Path, tmp_path: Path) -> tuple[TransformersEngine, Any, Any]:
    """idx's engine, transformers' network and its tokenizer."""
    folder = save_tiny(tiny_llama, tmp_path, request.param)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return TransformersEngine(str(folder)), network, transformers.AutoTokenizer.from_pretrained(folder)


def logits_of(network: Any, tokenizer: Any, prompt: str, written: list[int]) -> torch.Tensor:  # noqa: ANN401
    """Logits after each token that the decoder has read, alone and without a cache: float64 (len(written), vocabulary)."""
    with torch.inference_mode():
        read = torch.tensor([tokenizer(prompt)["input_ids"]])
        output: torch.Tensor = network(input_ids=read, decoder_input_ids=torch.tensor([written])).logits
        return output[0].double()


def test_texts_and_scores_are_those_of_transformers_generate(opened: tuple[TransformersEngine, Any, Any]) -> None:
    engine, network, tokenizer = opened
    forced = [0] if network.config.model_type == "bart" else []
    replies = engine.run([Generate(prompt=prompt, decoding=Decoding(max_tokens=n), logprobs=True) for n, prompt in enumerate(PROMPTS, 6)])
    assert len({gens(reply)[0].token_ids for reply in replies}) > 1
    for n, (prompt, reply) in enumerate(zip(PROMPTS, replies, strict=True), 6):
        read = torch.tensor([tokenizer(prompt)["input_ids"]])
        wanted = network.generate(read, max_new_tokens=n + len(forced), do_sample=False, num_beams=1)[0].tolist()
        (gen,) = gens(reply)
        assert wanted == [2, *forced, *(gen.token_ids or ())]
        scores = logits_of(network, tokenizer, prompt, wanted).log_softmax(-1)[len(forced) :]
        expected = [float(scores[place, token]) for place, token in enumerate(gen.token_ids or ())]
        assert gen.logprobs == pytest.approx(expected, abs=1e-5)


def test_given_texts_and_yes_and_no_are_scored_as_the_decoder_s_text(opened: tuple[TransformersEngine, Any, Any]) -> None:
    engine, network, tokenizer = opened
    start = [2, 0] if network.config.model_type == "bart" else [2]
    replies = engine.run([MeanNll(prompt=prompt, continuation=text) for prompt, text in zip(PROMPTS, TEXTS, strict=True)])
    for prompt, text, reply in zip(PROMPTS, TEXTS, replies, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        scores = logits_of(network, tokenizer, prompt, [*start, *ids]).log_softmax(-1)[len(start) - 1 :]
        expected = -sum(float(scores[place, token]) for place, token in enumerate(ids))
        assert result_of(reply, Nll) == Nll(total=pytest.approx(expected, rel=1e-6), n_tokens=len(ids))  # type: ignore[arg-type]
    first = logits_of(network, tokenizer, PROMPTS[1], start)[-1].softmax(-1)
    tokens = tokenizer.batch_decode([[n] for n in range(len(tokenizer))])
    found = result_of(engine.run([AskYesNo(prompt=PROMPTS[1], positive=("river",), negative=("the",))])[0], YesNo)
    for word, p in (("river", found.p_positive), ("the", found.p_negative)):
        assert p == pytest.approx(sum(float(first[n]) for n, token in enumerate(tokens) if token.strip().lower() == word), abs=1e-6)
