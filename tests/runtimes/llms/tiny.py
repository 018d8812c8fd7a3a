"""A tiny Llama with random weights, made from a config, and a tokenizer trained on a few sentences."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CONTEXT = 512
HIDDEN = 32

_SENTENCES = [
    "Question: who wrote the play? Answer: yes, no, unknown.",
    "Passages: [1] The river flows through the country. [2] The mountain is high.",
    "Is the passage relevant to the question? Yes or No.",
    '{"answer": "Paris", "reason": "it says so"}',
] * 4

CHAT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def save_tiny_llama(
    folder: Path, *, template: str | None = CHAT, context: int = CONTEXT, texts: Iterable[str] = _SENTENCES, n_tokens: int = 400
) -> Path:
    """Write a checkpoint that transformers loads from a folder: 2 layers, and byte pairs learned from texts."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=n_tokens, special_tokens=special, initial_alphabet=alphabet))
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", raw.token_to_id("<s>"))])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=raw.get_vocab_size(),
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.3,  # far from uniform, so that comparisons see something
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
