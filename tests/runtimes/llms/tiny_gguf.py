"""The tiny Llama as a GGUF file, in the form in which llama.cpp's converter writes Llamas."""

from __future__ import annotations

import json
from pathlib import Path

_NORMAL, _CONTROL = 1, 3  # llama.cpp's types of tokens


def save_tiny_gguf(checkpoint: Path, file: Path, *, architecture: str = "llama", without: str = "") -> Path:
    """Write a checkpoint of ``save_tiny_llama`` as a GGUF file; ``without`` is a part of the names of tensors that are left out."""
    import gguf
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    config = model.config
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    raw = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    control = {str(token) for token in tokenizer.added_tokens_decoder.values()}
    writer.add_token_types([_CONTROL if token in control else _NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in raw["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(True)
    writer.add_chat_template(tokenizer.chat_template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        values = weight.float().numpy()
        if "q_proj" in name or "k_proj" in name:  # llama.cpp rotates neighbouring dimensions, transformers those of the two halves
            n_heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = values.reshape(n_heads, 2, -1, config.hidden_size).swapaxes(1, 2).reshape(values.shape)
        if not without or without not in name:
            writer.add_tensor(str(names.get_name(name, try_suffixes=(".weight",))), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
