"""Yes/no by probability mass: tokens of an answer in any spelling, and white space before it, in every backend."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from tests.runtimes.llms.calling import FAST, TURNS
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving
from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.base import LLM, AskYesNo, Reply, TokenIds, YesNo
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.text import answer_pattern, is_blank
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

ASKED = AskYesNo(prompt=TokenIds((0, 300)))
SPELLINGS = ["Yes", "yes", " yes", "YES", " Yes", "Yes,", "no", " No", "NO.", "not", "\n", " the"]


def yes_no(reply: Reply | LLMError) -> YesNo:
    assert isinstance(reply, Reply), reply
    assert isinstance(reply.result, YesNo)
    return reply.result


def answer(llm: LLM, call: AskYesNo = ASKED) -> YesNo:
    (reply,) = llm.run([call])
    return yes_no(reply)


@pytest.mark.parametrize("token", ["yes", "Yes", "YES", " yes", "  Yes", "\nyes", "▁Yes", "ĠYES", "Yes,", "yes."])
def test_an_answer_has_many_spellings(token: str) -> None:
    assert answer_pattern(("yes",)).match(token)


@pytest.mark.parametrize("token", ["not", "Norway", "know", "", " ", "n", "no1", "unknown"])
def test_another_word_is_no_answer(token: str) -> None:
    assert not answer_pattern(("no",)).match(token)


@pytest.mark.parametrize(("token", "blank"), [(" ", True), ("\n\n", True), ("▁", True), ("ĠĊ", True), ("", False), (" a", False)])
def test_white_space_is_seen_in_any_vocabulary(token: str, *, blank: bool) -> None:
    assert is_blank(token) is blank


def spelling_llama(folder: Path, likeliest: str) -> Path:
    """Save a tiny Llama whose vocabulary has a token for each spelling, and whose first token is most likely ``likeliest``."""
    save_tiny_llama(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(SPELLINGS)
    tokenizer.save_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    with torch.inference_mode():
        hidden = model.model(torch.tensor([list(ASKED.prompt.ids)])).last_hidden_state[0, -1]  # type: ignore[union-attr]
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(likeliest)] += 0.3 * hidden
    model.save_pretrained(folder)
    return folder


def expected_masses(folder: Path, blanks: tuple[str, ...]) -> list[float]:
    """Return the mass of each answer, summed by hand over the tokens of both vocabularies, after each of the blanks."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    sides = [
        [token for token in range(len(tokenizer)) if tokenizer.decode([token]).strip().rstrip(".,").lower() == word]
        for word in ("yes", "no")
    ]
    assert min(map(len, sides)) >= 3
    ids, reached, masses = list(ASKED.prompt.ids), 1.0, [0.0, 0.0]  # type: ignore[union-attr]
    for blank in (*blanks, None):
        with torch.inference_mode():
            probabilities = model(torch.tensor([ids])).logits[0, -1].double().softmax(-1)
        masses = [mass + reached * float(probabilities[side].sum()) for mass, side in zip(masses, sides, strict=True)]
        if blank is not None:
            token = tokenizer.convert_tokens_to_ids(blank)
            assert int(probabilities.argmax()) == token
            ids, reached = [*ids, token], reached * float(probabilities[token])
    return masses


@pytest.mark.parametrize(("likeliest", "blanks"), [("Yes", ()), ("\n", ("\n",))])
def test_a_checkpoint_sums_every_spelling_and_looks_past_white_space(tmp_path: Path, likeliest: str, blanks: tuple[str, ...]) -> None:
    folder = spelling_llama(tmp_path / "llama", likeliest)
    expected = expected_masses(folder, blanks)
    found = answer(TransformersEngine(str(folder)))
    assert [found.p_positive, found.p_negative] == pytest.approx(expected, rel=1e-4)


def test_an_id_beyond_the_tokenizer_is_no_white_space(tmp_path: Path) -> None:
    """Models are padded to a round number of ids; here one of these is the likeliest."""
    folder = spelling_llama(tmp_path / "llama", "Yes")
    model = LlamaForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(1024)
    with torch.inference_mode():
        hidden = model.model(torch.tensor([list(ASKED.prompt.ids)])).last_hidden_state[0, -1]  # type: ignore[union-attr]
        model.lm_head.weight[1000] = 10 * hidden
    model.save_pretrained(folder)
    assert answer(TransformersEngine(str(folder))).mass < 0.01


def position(generated: str, **likeliest: float) -> dict[str, Any]:
    """Return a position of a chat's logprobs; in names of tokens, "_" is a space and "N" a line break."""
    tops = [{"token": name.replace("_", " ").replace("N", "\n"), "logprob": math.log(p)} for name, p in likeliest.items()]
    own = next(top["logprob"] for top in tops if top["token"] == generated)
    return {"token": generated, "logprob": own, "top_logprobs": tops}


def test_over_http_an_answer_after_white_space_is_read_and_the_run_remembers() -> None:
    positions = [position("\n", N=0.7, yes=0.1), position(" yes", _yes=0.8, **{"no,": 0.1}), position("x", x=1.0)]

    def complete(path: str, body: dict[str, Any]) -> Answer:
        return chat("…", logprobs={"content": positions[: body["max_tokens"]]})

    server = FakeServer(complete, {"/v1/models": {"data": [{"id": "fake"}]}})
    with fake_serving(server) as url:
        model = OpenAIHttp("fake", url, options=FAST)
        for _ in range(2):
            found = answer(model, AskYesNo(prompt=TURNS))
            assert [found.p_positive, found.p_negative] == [pytest.approx(0.1 + 0.7 * 0.8), pytest.approx(0.7 * 0.1)]
        model.close()
    assert [body["max_tokens"] for body in server.bodies] == [1, 3, 3]


def test_completions_of_the_old_api_are_read_past_white_space() -> None:
    logprobs = {
        "tokens": ["\n", "Yes"],
        "token_logprobs": [math.log(0.5), math.log(0.9)],
        "top_logprobs": [{"\n": math.log(0.5), "no": math.log(0.2)}, {"Yes": math.log(0.9)}],
    }
    with fake_serving(FakeServer(lambda path, body: (200, {"choices": [{"text": "…", "logprobs": logprobs}]}))) as url:
        model = OpenAIHttp("fake", url, options=FAST)
        found = answer(model, AskYesNo(prompt="Is it?"))
        model.close()
    assert [found.p_positive, found.p_negative] == [pytest.approx(0.45), pytest.approx(0.2)]
