"""Checkpoints with random weights, written by transformers, made texts, and a corpus of them. The vocabulary is that of ``minilm``."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wikidx.corpora.build import StoreOptions, build_store
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, Passage
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.loading import silent_transformers
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.cross_encoder import CrossEncoder

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


def build_made_corpus(n_passages: int, n_words: int) -> None:
    """Build the corpus ``made``."""

    def read(*_: object) -> Iterator[LocatedPassage]:
        return (LocatedPassage(passage, "made", number) for number, passage in enumerate(made_passages(n_passages, n_words)))

    build_store(Corpus(name="made", summary="made passages", files=(), read=read, n_passages=n_passages), StoreOptions())


def cross_encoder_in(folder: Path, device: str) -> CrossEncoder:
    """Open the cross-encoder in a folder; its scores are logits."""
    return CrossEncoder(RerankerSpec(name="made", checkpoint=folder, activation="torch.nn.Identity"), device)


def made_pairs(n_queries: int, n_passages: int, n_words: int) -> tuple[list[str], list[Passage]]:
    """Return made queries, each repeated for each of its passages."""
    texts = list(made_passages(n_queries + n_passages, n_words))
    queries = [f"{passage.title} {passage.text[:40]}" for passage in texts[:n_queries]]
    return [query for query in queries for _ in range(n_passages)], texts[n_queries:] * n_queries
