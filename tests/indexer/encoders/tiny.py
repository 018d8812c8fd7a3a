"""Tiny checkpoints with random weights, written by the library whose format they have; everybody can make them."""

from __future__ import annotations

import json
import string
from pathlib import Path

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "of", "river", "##er", "nile", "a", '"', ".", ",", "'", ":", "-"]
VOCABULARY += [*string.ascii_lowercase[1:], *string.digits, *(f"##{letter}" for letter in string.ascii_lowercase + string.digits)]

_T5_PIECES = [*"▁the ▁of ▁river er s ▁nile ▁".split(), *string.ascii_letters.replace("s", ""), *string.digits, *"\".,':"]


def bert_config(**sizes: int) -> transformers.BertConfig:
    return transformers.BertConfig(
        **{"vocab_size": len(VOCABULARY), "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3} | sizes,
        intermediate_size=40,
        max_position_embeddings=512,
        initializer_range=0.2,  # so that texts differ by more than the rounding
    )


def save_bert_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)


def save_bert(folder: Path, seed: int = 0, **sizes: int) -> Path:
    torch.manual_seed(seed)
    save_bert_tokenizer(folder)
    transformers.BertModel(bert_config(**sizes)).eval().save_pretrained(folder)
    return folder


def save_dpr(folder: Path) -> Path:
    """Write both sides into subfolders as ``with_checkpoint`` expects them."""
    for seed, (name, network) in enumerate(
        {"question_encoder": transformers.DPRQuestionEncoder, "ctx_encoder": transformers.DPRContextEncoder}.items()
    ):
        torch.manual_seed(seed)
        save_bert_tokenizer(folder / name)
        config = transformers.DPRConfig(**bert_config().to_diff_dict() | {"model_type": "dpr"})
        network(config).eval().save_pretrained(folder / name)
    return folder


_DECODERS = {"qwen3": ("", "<|end|>"), "mistral": ("<s>", "</s>"), "llama": ("<s>", "</s>"), "gemma3_text": ("<bos>", "<eos>")}
ARCHITECTURES = ("modernbert", "xlm-roberta", "roberta", "mpnet", "distilbert", "nomic_bert", *_DECODERS)


def save_bytes_tokenizer(folder: Path, start: str, end: str, padding_side: str = "left") -> int:
    """Write a decoder's tokenizer, whose tokens are bytes and a few words; return the size of its vocabulary."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = dict.fromkeys([*filter(None, ["<pad>", start, end]), *letters, "th", "the", "of", "ri"])
    ids = {token: number for number, token in enumerate(vocabulary)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=[("t", "h"), ("th", "e"), ("o", "f"), ("r", "i")]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    template = " ".join(filter(None, [start, "$A", end]))
    special = [(token, ids[token]) for token in (start, end) if token]
    backend.post_processor = tokenizers.processors.TemplateProcessing(single=template, pair=f"{template} $B {end}", special_tokens=special)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token=end, model_max_length=200, padding_side=padding_side
    ).save_pretrained(folder)
    return len(ids)


def save_other(folder: Path, architecture: str, *, with_head: bool = False) -> Path:
    """Write a checkpoint of one of ``ARCHITECTURES``, with the form of tokenizer that it has.

    Decoders have the head of a language model if ``with_head`` is set, as most published ones.
    """
    torch.manual_seed(4)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "max_position_embeddings": 514}
    if architecture in ("xlm-roberta", "roberta"):
        pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -float(len(_T5_PIECES))) for piece in _T5_PIECES)]
        transformers.XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)], model_max_length=512).save_pretrained(folder)
        sizes |= {"vocab_size": len(pieces) + 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    elif architecture in _DECODERS:
        sizes |= {"vocab_size": save_bytes_tokenizer(folder, *_DECODERS[architecture]), "num_key_value_heads": 1, "head_dim": 12}
        sizes |= {"pad_token_id": 0} | (
            {"use_bidirectional_attention": True, "sliding_window": 16} if architecture == "gemma3_text" else {}
        )
    else:
        save_bert_tokenizer(folder)
        sizes |= {"vocab_size": len(VOCABULARY)}
        sizes |= {f"{name}_token_id": VOCABULARY.index(f"[{name.upper()}]") for name in ("pad", "cls", "sep")}
    config = transformers.AutoConfig.for_model(architecture, **sizes)
    config.initializer_range = 0.2
    network = transformers.AutoModelForCausalLM if with_head else transformers.AutoModel
    network.from_config(config).eval().save_pretrained(folder)
    return folder


def save_t5(folder: Path) -> Path:
    torch.manual_seed(2)
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -float(len(_T5_PIECES)) / len(piece)) for piece in _T5_PIECES)]
    transformers.T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=512).save_pretrained(folder)
    config = transformers.T5Config(
        vocab_size=len(pieces) + 5, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="relu", initializer_factor=2.0
    )
    transformers.T5EncoderModel(config).eval().save_pretrained(folder)
    return folder


def add_modules(folder: Path, pooling: str, *, dim: int | None = None) -> Path:
    """Add sentence-transformers' files for pooling ("mean" or "cls"), a linear projection (if ``dim`` is given) and normalisation."""
    hidden = json.loads((folder / "config.json").read_text())
    width = hidden.get("hidden_size") or hidden["d_model"]
    names = ["Transformer", "Pooling", *(["Dense"] if dim else []), "Normalize"]
    paths = ["" if name == "Transformer" else f"{number}_{name}" for number, name in enumerate(names)]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 512, "do_lower_case": False}))
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_cls_token": pooling == "cls"}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": width, **modes}))
    if dim:
        (folder / "2_Dense").mkdir()
        dense = {"in_features": width, "out_features": dim, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
        (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
        matrix = torch.randn(dim, width, generator=torch.Generator().manual_seed(3))
        save_file({"linear.weight": matrix}, folder / "2_Dense" / "model.safetensors")
    return folder
