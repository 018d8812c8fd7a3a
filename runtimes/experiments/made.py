"""A checkpoint with made weights and Self-RAG's control tokens, with which ``--sample`` tries rows that need trained tokens.

Its texts mean nothing. It has 2 layers, and bytes as tokens.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from wikidx.base.artifacts.home import home
from wikidx.base.errors import require_packages
from wikidx.indexer.networks.loading import silent_transformers
from wikidx.runtimes.methods.self_rag import CONTROL

_CONTEXT = 16_384  # bytes of a prompt with its passages, and of its text


def made_folder() -> Path:
    """Return the folder of the checkpoint, existing or not."""
    return home() / "checkpoints" / "made" / "self_rag"


def make_checkpoint() -> None:
    """Make the checkpoint if it is not there.

    Raises:
        MissingExtraError: torch or transformers is not installed.
    """
    folder = made_folder()
    if folder.is_dir():
        return
    require_packages("the made checkpoint of Self-RAG", "llm", "torch", "transformers")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as staging:
        _write(made := Path(staging) / folder.name)
        try:
            made.rename(folder)
        except OSError:  # another process may have made it meanwhile
            if not folder.is_dir():
                raise


def _write(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate(["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", additional_special_tokens=list(CONTROL))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=_CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = LlamaForCausalLM(config)
    with silent_transformers():
        tokenizer.save_pretrained(folder)
        network.save_pretrained(folder)
