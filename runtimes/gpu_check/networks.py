"""Checkpoints with random weights, written by transformers, and made texts. The vocabulary is that of the encoder ``minilm``."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wikidx.corpora.passage import Passage
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.loading import silent_transformers

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
_SPREAD = 0.05  # of weights, of wide networks less: with BERT's 0.02, vectors of different texts differ too little to show a wrong mask
_SEED = 7


def save_bert(folder: Path, *, hidden: int, layers: int, heads: int, n_labels: int = 0) -> Path:
    """Write a BERT with the vocabulary of ``minilm``, as an encoder or, with labels, as a cross-encoder; return the folder."""
    import torch
    import transformers

    copy_tokenizer(folder)
    config = transformers.BertConfig(
        vocab_size=len(words()[1]), hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden
    )
    config.initializer_range = min(_SPREAD, 0.8 * hidden**-0.5)
    if n_labels:
        config.num_labels = n_labels
    torch.manual_seed(_SEED)
    with silent_transformers():
        network = transformers.BertForSequenceClassification(config) if n_labels else transformers.BertModel(config)
        network.eval().save_pretrained(folder)
    return folder


def save_t5(folder: Path, *, hidden: int, layers: int, heads: int) -> Path:
    """Write the encoder of a T5; return the folder. It is used without a tokenizer, whose file is there because encoders need one."""
    import torch
    import transformers

    copy_tokenizer(folder)
    config = transformers.T5Config(
        vocab_size=len(words()[1]), d_model=hidden, d_kv=hidden // heads, d_ff=4 * hidden, num_layers=layers, num_heads=heads
    )
    torch.manual_seed(_SEED)
    with silent_transformers():
        transformers.T5EncoderModel(config).eval().save_pretrained(folder)
    return folder


def save_llama(folder: Path, *, hidden: int, layers: int, heads: int, kv_heads: int) -> Path:
    """Write a Llama whose tokens are bytes; return the folder."""
    import tokenizers
    import torch
    import transformers

    special = ["<s>", "</s>"]
    vocabulary = {token: number for number, token in enumerate([*special, *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.add_special_tokens(special)
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
    )
    config.initializer_range = _SPREAD
    torch.manual_seed(_SEED)
    with silent_transformers():
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def copy_tokenizer(folder: Path) -> None:
    """Copy the tokenizer of ``minilm``, which a package brings, into a new folder."""
    folder.mkdir(parents=True)
    source = encoder_spec("minilm").folder("passage")
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def encoder_in(folder: Path) -> EncoderSpec:
    """Return an encoder with the checkpoint in a folder, and otherwise as ``minilm``."""
    return dataclasses.replace(
        encoder_spec("minilm"),
        name=folder.name,
        query_checkpoint=folder,
        passage_checkpoint=folder,
        dim=0,
        weights_sha256=None,
        max_query_tokens=512,
        max_passage_tokens=512,
    )


def words() -> tuple[list[str], list[str]]:
    """Return the whole words of the vocabulary, and the whole vocabulary."""
    vocabulary = (encoder_spec("minilm").folder("passage") / "vocab.txt").read_text(encoding="utf-8").splitlines()
    return [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 2], vocabulary


def made_passages(n: int, n_words: int) -> Iterator[Passage]:
    """Yield passages of about ``n_words`` random words, which are one token each; those of wiki2018 have 134 tokens on average."""
    known, _ = words()
    generator = np.random.default_rng(_SEED)
    for number in range(n):
        length = max(1, int(n_words * generator.uniform(0.6, 1.4)))
        chosen = [known[index] for index in generator.integers(0, len(known), length + 3)]
        yield Passage(str(number), " ".join(chosen[:3]), " ".join(chosen[3:]))
