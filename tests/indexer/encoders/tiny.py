"""Tiny checkpoints with random weights, written by the library whose format they have; everybody can make them."""

from __future__ import annotations

import json
import string
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "of", "river", "##er", "nile", "a", '"', ".", ",", "'", ":", "-"]
VOCABULARY += [*string.ascii_lowercase[1:], *string.digits, *(f"##{letter}" for letter in string.ascii_lowercase + string.digits)]

_T5_PIECES = [
    "▁the",
    "▁of",
    "▁river",
    "er",
    "s",
    "▁nile",
    "▁",
    *string.ascii_letters.replace("s", ""),
    *string.digits,
    '"',
    ".",
    ",",
    "'",
    ":",
]


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
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


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


def save_other(folder: Path, architecture: str) -> Path:
    """Write a checkpoint of another architecture than BERT's, with a tokenizer of BERT's form or, for an XLM-R, SentencePiece's."""
    torch.manual_seed(4)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "max_position_embeddings": 514}
    if architecture == "xlm-roberta":
        pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -float(len(_T5_PIECES))) for piece in _T5_PIECES)]
        transformers.XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)]).save_pretrained(folder)
        config = transformers.XLMRobertaConfig(vocab_size=len(pieces) + 1, pad_token_id=1, bos_token_id=0, eos_token_id=2, **sizes)
    else:
        save_bert_tokenizer(folder)
        special = {f"{name}_token_id": VOCABULARY.index(f"[{name.upper()}]") for name in ("pad", "cls", "sep")}
        config = transformers.AutoConfig.for_model(architecture, vocab_size=len(VOCABULARY), **sizes, **special)
    config.initializer_range = 0.2
    transformers.AutoModel.from_config(config).eval().save_pretrained(folder)
    return folder


def save_t5(folder: Path) -> Path:
    torch.manual_seed(2)
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -float(len(_T5_PIECES)) / len(piece)) for piece in _T5_PIECES)]
    transformers.T5Tokenizer(vocab=pieces, extra_ids=0).save_pretrained(folder)
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
