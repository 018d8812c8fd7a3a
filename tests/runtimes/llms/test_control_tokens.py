"""Control tokens of a checkpoint in this process: they stay in the text, with their distributions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from tests.runtimes.llms.calling import gens
from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.transformers_engine import TransformersEngine


def test_control_tokens_stay_in_the_text_with_their_distributions(tmp_path: Path) -> None:
    """A tiny Llama whose vocabulary has them as special tokens is made to write one of them third."""
    folder = save_tiny_llama(tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), LlamaForCausalLM.from_pretrained(folder)
    control = ("[Relevant]", "[Irrelevant]", "[Utility:5]")
    tokenizer.add_special_tokens({"additional_special_tokens": [*control, "[never]"]})
    torch.manual_seed(1)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ids = tokenizer("The river[Relevant]")["input_ids"]
    assert ids[-1] == tokenizer.convert_tokens_to_ids("[Relevant]")
    start = model.generate(torch.tensor([ids]), max_new_tokens=2, do_sample=False, pad_token_id=1)[0].tolist()
    with torch.inference_mode():
        model.lm_head.weight[tokenizer.convert_tokens_to_ids("[Utility:5]")] += (
            model.model(torch.tensor([start])).last_hidden_state[0, -1] * 50
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (gen,) = gens(
        TransformersEngine(str(folder)).run(
            [Generate(prompt="The river[Relevant]", decoding=Decoding(max_tokens=4), control=control, logprobs=True)]
        )[0]
    )
    written = list(gen.token_ids or ())
    with torch.inference_mode():
        scores = model(torch.tensor([[*ids, *written]])).logits[0].double().log_softmax(-1)
    numbers = [tokenizer.convert_tokens_to_ids(token) for token in control]
    noted = [place for place, token in enumerate(written) if place == 0 or token in numbers]
    assert "[Utility:5]" in gen.text
    assert len(noted) > 1
    assert [at.logprobs for at in gen.control] == [
        pytest.approx([float(scores[len(ids) - 1 + place, number]) for number in numbers], rel=1e-5) for place in noted
    ]
    assert [gen.text[at.place :].startswith(control) for at in gen.control[1:]] == [True] * (len(noted) - 1)
    assert gen.part(1, len(gen.text)).control == tuple(at._replace(place=at.place - 1) for at in gen.control[1:])
