"""Tiny NLI checkpoints with random weights, made from configurations, and a tokenizer of whole words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from wikidx.runtimes.evaluation.by_models.nli import Pair

_WORDS = "premise hypothesis the cat sleeps dog barks loudly river flows through old city a poet wrote many letters in spring".split()


def pairs(n: int, *, longest: int = 12, seed: int = 0) -> list[Pair]:
    """Random pairs of very different lengths."""
    chance = random.Random(seed)

    def text(most: int) -> str:
        return " ".join(chance.choices(_WORDS, k=chance.randint(1, most)))

    return [Pair(text(longest), text(5)) for _ in range(n)]


def save_tokenizer(folder: Path, template: str, pair: str) -> Any:  # noqa: ANN401 - transformers has no types
    """Write a tokenizer with the two forms, in which $A and $B are the texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>", "<s>"]
    vocabulary = {word: number for number, word in enumerate([*special, "1", "0", ":", *_WORDS])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    ids = [(name, vocabulary[name]) for name in ("</s>", "<s>")]
    raw.post_processor = processors.TemplateProcessing(single=template, pair=pair, special_tokens=ids)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_tiny_t5(folder: Path) -> Path:
    """Write a T5 that has learned, in a second, to write "1" where it reads of a cat, else "1 0" where of a river, else "0"."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    tokenizer = save_tokenizer(folder, "$A </s>", "$A $B </s>")
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=4,
        d_ff=32,
        num_layers=1,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config)
    texts = [f"premise: {pair.premise} hypothesis: {pair.hypothesis}" for pair in pairs(64, seed=1)]
    read = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
    verdicts = ["1" if "cat" in text else "1 0" if "river" in text else "0" for text in texts]
    written = tokenizer(verdicts, return_tensors="pt", padding=True).input_ids
    written[written == 0] = -100  # padding is not learned
    steps = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        steps.zero_grad()
        model(**read, labels=written).loss.backward()
        steps.step()
    model.save_pretrained(folder)
    return folder


def save_tiny_classifier(folder: Path, labels: list[str], *, roberta: bool = False, positions: int = 64) -> Path:
    """Write a BERT, or a RoBERTa, whose first positions are never used, with these labels."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, RobertaConfig, RobertaForSequenceClassification

    tokenizer = save_tokenizer(folder, "<s> $A </s>", "<s> $A </s> </s> $B </s>" if roberta else "<s> $A </s> $B:1 </s>:1")
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": positions,
        "pad_token_id": 0,
        "initializer_range": 0.5,
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    torch.manual_seed(0)
    if roberta:
        RobertaForSequenceClassification(RobertaConfig(**sizes)).save_pretrained(folder)
    else:
        BertForSequenceClassification(BertConfig(**sizes)).save_pretrained(folder)
    return folder
