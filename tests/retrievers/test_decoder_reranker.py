"""Decoders as rerankers: the probability of yes is that of Qwen3-Reranker's model card, computed for one pair at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from tests.indexer.encoders.tiny import save_bert_tokenizer
from tests.retrievers.test_cross_encoder import PAIRS
from wikidx.base.errors import ArtifactMismatch
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.base import Scores
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.decoder import Decoder
from wikidx.retrievers.rerankers.opening import open_reranker

CARD = "Given a web search query, retrieve relevant passages that answer the query"


def save_tokenizer(folder: Path) -> int:
    """Save a tokenizer of bytes that knows the words yes and no; return its size."""
    bytes_ = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate([*bytes_, "ye", "yes", "no"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("y", "e"), ("ye", "s"), ("n", "o")]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|endoftext|>", eos_token="<|im_end|>").save_pretrained(
        folder
    )
    return tokenizer.get_vocab_size()


def save_qwen3(folder: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=save_tokenizer(folder),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=2048,
        initializer_range=0.5,
    )
    transformers.Qwen3ForCausalLM(config).eval().save_pretrained(folder)
    return folder


def save_gpt2(folder: Path) -> Path:
    """Learned positions, which padding on the left must not shift."""
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=save_tokenizer(folder), n_positions=600, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    transformers.GPT2LMHeadModel(config).eval().save_pretrained(folder)
    return folder


def by_the_card(folder: Path, pairs: Sequence[tuple[str, Passage]], instruction: str = CARD, max_length: int = 2048) -> Scores:
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModelForCausalLM.from_pretrained(folder)
    prefix = tokenizer.encode(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that "
        'the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
        add_special_tokens=False,
    )
    suffix = tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", add_special_tokens=False)
    answers = tokenizer.convert_tokens_to_ids(["no", "yes"])
    scores = list[float]()
    for query, passage in pairs:
        text = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {title_and_text(passage)}"
        middle = tokenizer(text, truncation="longest_first", max_length=max_length - len(prefix) - len(suffix))["input_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([[*prefix, *middle, *suffix]])).logits[0, -1, answers]
        scores.append(float(torch.nn.functional.log_softmax(logits.float(), dim=0)[1].exp()))
    return np.array(scores, dtype=np.float32)


def scored(decoder: Decoder, pairs: Sequence[tuple[str, Passage]]) -> Scores:
    return decoder.score([query for query, _ in pairs], [passage for _, passage in pairs])


SHORT = [(query[:40], Passage(passage.id, passage.title, passage.text[:60])) for query, passage in PAIRS[::2]]


@pytest.mark.parametrize(("save", "max_length"), [(save_qwen3, 2048), (save_gpt2, 600)])
def test_scores_are_those_of_the_model_card(tmp_path: Path, save: Callable[[Path], Path], max_length: int) -> None:
    folder = save(tmp_path)
    expected = by_the_card(folder, SHORT, max_length=max_length)
    decoder = open_reranker(str(folder))
    assert isinstance(decoder, Decoder)
    found = scored(decoder, SHORT)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([scored(decoder, [pair]) for pair in SHORT[:3]]), expected[:3], rtol=0, atol=1e-5)
    assert found.std() > 0.01  # or anything would be equal


def test_long_passages_are_cut_and_the_question_stays(tmp_path: Path) -> None:
    folder = save_qwen3(tmp_path)
    pairs = [("the nile", Passage("1", "River", "nile of a river " * 20)), ("a fox", Passage("2", "", "fox " * 200))]
    found = scored(Decoder(RerankerSpec(name="cut", checkpoint=folder, max_tokens=450)), pairs)
    np.testing.assert_allclose(found, by_the_card(folder, pairs, max_length=450), rtol=0, atol=1e-5)


def test_passages_are_cut_to_learned_positions(tmp_path: Path) -> None:
    folder, pairs = save_gpt2(tmp_path), [("a fox", Passage("1", "", "fox " * 200))]
    found = scored(Decoder(RerankerSpec(name="gpt2", checkpoint=folder)), pairs)
    np.testing.assert_allclose(found, by_the_card(folder, pairs, max_length=600), rtol=0, atol=1e-5)


def test_the_instruction_is_the_users_or_the_checkpoints(tmp_path: Path) -> None:
    folder = save_qwen3(tmp_path)
    mine = RerankerSpec(name="mine", checkpoint=folder, instruction="Find the same fact")
    np.testing.assert_allclose(scored(Decoder(mine), SHORT[:2]), by_the_card(folder, SHORT[:2], "Find the same fact"), rtol=0, atol=1e-5)
    stored = {"prompts": {"facts": "Find facts"}, "default_prompt_name": "facts"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(stored))
    found = scored(Decoder(RerankerSpec(name="mine", checkpoint=folder)), SHORT[:2])
    np.testing.assert_allclose(found, by_the_card(folder, SHORT[:2], "Find facts"), rtol=0, atol=1e-5)
    assert abs(found - by_the_card(folder, SHORT[:2])).max() > 1e-4


def test_a_tokenizer_without_yes_is_refused(tmp_path: Path) -> None:
    folder = save_qwen3(tmp_path)
    (folder / "tokenizer.json").unlink()
    save_bert_tokenizer(folder)
    with pytest.raises(ArtifactMismatch, match="has no token for yes or no"):
        open_reranker(str(folder))


def test_a_prompt_longer_than_the_network_reads_is_refused(tmp_path: Path) -> None:
    folder = save_qwen3(tmp_path)
    with pytest.raises(ArtifactMismatch, match="reads 100 tokens: the prompt alone has more"):
        Decoder(RerankerSpec(name="short", checkpoint=folder, max_tokens=100))
