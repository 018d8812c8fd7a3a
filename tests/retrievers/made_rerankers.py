"""Rerankers made for tests: tiny checkpoints with random weights, an endpoint, and pairs of queries and passages for all of them."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

from tests.indexer.encoders.fake_embeddings import FakeEmbeddings, Reply
from tests.indexer.encoders.tiny import VOCABULARY, save_bert_tokenizer, save_other
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Scores
from wikidx.retrievers.base import Reranker

Pair = tuple[str, Passage]
QUERIES = ["the river nile", "of a", "nile " * 300, "", "7 rivers: a river, of 4", "- ω"]
PASSAGES = [
    Passage("1", "Nile", "the river of the nile."),
    Passage("2", "", "a river, 4 rivers: of the nile"),
    Passage("3", "The river", "nile of a river, " * 200),
    Passage("4", "River", ""),
    Passage("5", "", "...,"),
]
PAIRS = [(query, passage) for query in QUERIES for passage in PASSAGES]


def score(reranker: Reranker, pairs: Sequence[Pair]) -> Scores:
    return reranker.score([query for query, _ in pairs], [passage for _, passage in pairs])


_SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "initializer_range": 0.2}
_SETTINGS: dict[str, dict[str, Any]] = {  # of an architecture, besides its sizes
    "Electra": {"embedding_size": 16},  # another size than that of the hidden states, as small ones have it
    "XLMRoberta": {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1},
    "DistilBert": {"hidden_dim": 40},  # knows no token types
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    # local attention, which a batch's width must not change
    "ModernBert": {"local_attention": 16, "initializer_range": 1.0, "initializer_cutoff_factor": 1.0},
    "Qwen3": {"num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.5},
    "GPT2": {"n_positions": 600},  # learned, so that padding on the left must not shift them
}
_SPECIAL = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}


def save_network(folder: Path, architecture: str, head: str, **settings: Any) -> int:  # noqa: ANN401 - any setting
    """Write a network of transformers with a head such as "ForCausalLM", or "Model" without one; return the size of its hidden states."""
    torch.manual_seed(0)
    described = {"vocab_size": len(VOCABULARY), **_SIZES, **_SPECIAL, **_SETTINGS.get(architecture, {}), **settings}
    config = getattr(transformers, f"{architecture}Config")(**described)
    getattr(transformers, architecture + head)(config).eval().save_pretrained(folder)
    return int(config.hidden_size)


def save_classifier(folder: Path, architecture: str = "Bert", **settings: Any) -> Path:  # noqa: ANN401 - any setting
    """Write a cross-encoder, whose tokenizer is BERT's."""
    save_bert_tokenizer(folder)
    save_network(folder, architecture, "ForSequenceClassification", **{"num_labels": 1} | settings)
    return folder


def save_roberta(folder: Path) -> Path:
    """Write a cross-encoder with two separators between the texts, and positions that begin behind the padding token's number, 1."""
    n_tokens = json.loads((save_other(folder, "xlm-roberta") / "config.json").read_text())["vocab_size"]
    save_network(folder, "XLMRoberta", "ForSequenceClassification", vocab_size=n_tokens, num_labels=1)
    return folder


def save_decoder(folder: Path, architecture: str = "Qwen3", head: str = "ForCausalLM") -> Path:
    """Write a language model with a tokenizer of bytes that knows the words yes and no."""
    bytes_ = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate([*bytes_, "ye", "yes", "no"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("y", "e"), ("ye", "s"), ("n", "o")]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    sizes = {} if architecture == "GPT2" else {"max_position_embeddings": 1024}
    save_network(folder, architecture, head, vocab_size=tokenizer.get_vocab_size(), **sizes)
    return folder


COLBERT: Mapping[str, Any] = {  # PyLate's settings of a checkpoint
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 32,
    "document_length": 180,
    "attend_to_expansion_tokens": False,
    "skiplist_words": list(string.punctuation),
    "do_query_expansion": True,
}


def save_colbert(folder: Path, architecture: str = "Bert", layers: Sequence[tuple[int, bool]] = ((8, False),), **changed: Any) -> Path:  # noqa: ANN401
    """Write a checkpoint as PyLate does: the prefixes are tokens, and linear layers without a bias follow the transformer.

    A layer is a number of components, and whether it has an activation and a residual.
    """
    save_bert_tokenizer(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["[Q] ", "[D] "])
    tokenizer.save_pretrained(folder)
    width = save_network(folder, architecture, "Model", vocab_size=len(VOCABULARY) + 2)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (dim, is_residual) in enumerate(layers, 1):
        path, function = f"{number}_Dense", "activation.GELU" if is_residual else "linear.Identity"
        names = ["linear.weight", *(["residual.weight"] if is_residual and dim != width else [])]
        config = {"in_features": width, "out_features": dim, "bias": False, "use_residual": is_residual}
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(config | {"activation_function": f"torch.nn.modules.{function}"}))
        save_file({name: torch.randn(dim, width) for name in names}, folder / path / "model.safetensors")
        modules.append({"idx": number, "name": str(number), "path": path, "type": "pylate.models.Dense.Dense"})
        width = dim
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 179, "do_lower_case": False}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "ColBERT", **COLBERT, **changed}))
    return folder


def overlap(query: str, text: str) -> float:
    """Return a score that depends on both, and not in the order of the passages."""
    return math.sin(len(query) + 3 * len(text))


@dataclass
class FakeReranker(FakeEmbeddings):
    """A server in the form of vLLM, Jina and Cohere ("documents") or of text-embeddings-inference ("texts")."""

    form: str = "documents"
    is_strict: bool = False  # unknown fields are refused

    def answer(self, body: dict[str, Any]) -> Reply:
        known = {"documents": {"model", "query", "documents", "top_n"}, "texts": {"query", "texts", "truncate"}}[self.form]
        if self.form not in body or (self.is_strict and set(body) - known):
            return 422, {"error": f"missing field `{self.form}`", "error_type": "validation"}
        if len(body[self.form]) > self.max_texts:
            return 413, {"error": f"batch size {len(body[self.form])} > maximum allowed batch size {self.max_texts}"}
        label = "relevance_score" if self.form == "documents" else "score"
        rows: list[dict[str, Any]] = [{"index": n, label: overlap(body["query"], text)} for n, text in enumerate(body[self.form])]
        changed = self.change(sorted(rows, key=lambda row: -row[label]))
        return 200, {"id": "rerank-1", "model": "m", "results": changed} if self.form == "documents" else changed
