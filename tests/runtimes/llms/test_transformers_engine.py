"""The engine for local checkpoints against transformers' own generation and plain forward passes, text by text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.runtimes.llms.tiny import CONTEXT, save_tiny_llama
from wikidx.base.errors import IdxError, InputError
from wikidx.runtimes.errors import LLMError, PromptTooLong
from wikidx.runtimes.llms.base import (
    AskYesNo,
    Call,
    Choice,
    Decoding,
    Gen,
    Generate,
    JsonSchema,
    MeanNll,
    Message,
    Nll,
    Reply,
    TokenIds,
    YesNo,
)
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

PROMPTS = ["Question: who wrote the play?", "The river", "Is the passage relevant to the question? Yes or No.", "[1]", "no no no"]


@pytest.fixture(scope="module")
def reference(tiny_llama: Path) -> tuple[Any, Any]:
    """Transformers' own model and tokenizer."""
    return AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(tiny_llama)


def logprobs_after(model: Any, ids: list[int]) -> torch.Tensor:  # noqa: ANN401
    """Log-probabilities of every next token, one text at a time, without padding: float64 (len(ids), vocabulary)."""
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].double().log_softmax(-1)  # type: ignore[no-any-return]


def gens(reply: Reply | LLMError) -> tuple[Gen, ...]:
    assert isinstance(reply, Reply)
    assert isinstance(reply.result, tuple)
    return reply.result


def test_greedy_text_and_logprobs_are_those_of_transformers(tiny: TransformersEngine, reference: tuple[Any, Any]) -> None:
    model, tokenizer = reference
    replies = tiny.run([Generate(prompt=prompt, decoding=Decoding(max_tokens=n), logprobs=True) for n, prompt in enumerate(PROMPTS, 8)])
    for n, (prompt, reply) in enumerate(zip(PROMPTS, replies, strict=True), 8):
        ids = tokenizer(prompt)["input_ids"]
        wanted = model.generate(torch.tensor([ids]), max_new_tokens=n, do_sample=False, pad_token_id=1)[0, len(ids) :].tolist()
        (gen,) = gens(reply)
        assert list(gen.token_ids or ()) == wanted
        assert gen.text == tokenizer.decode(wanted, skip_special_tokens=True)
        logprobs = logprobs_after(model, [*ids, *wanted])
        expected = [float(logprobs[len(ids) - 1 + place, token]) for place, token in enumerate(wanted)]
        assert gen.logprobs == pytest.approx(expected, abs=1e-4)
        assert isinstance(reply, Reply)
        assert (reply.prompt_tokens, reply.completion_tokens) == (len(ids), len(wanted))


def test_the_end_token_ends_a_text(tmp_path: Path) -> None:
    """With the end made the likeliest token, nothing is generated but the end."""
    from transformers import LlamaForCausalLM

    folder = save_tiny_llama(tmp_path / "ends")
    model = LlamaForCausalLM.from_pretrained(folder)
    ids = [0, 300]
    with torch.inference_mode():
        hidden = model.model(torch.tensor([ids])).last_hidden_state[0, -1]
        model.lm_head.weight[1] = 100 * hidden
    model.save_pretrained(folder)
    (gen,) = gens(TransformersEngine(str(folder)).run([Generate(prompt=TokenIds((0, 300)))])[0])
    assert (gen.text, gen.token_ids, gen.finish) == ("", (1,), "stop")


def test_yes_no_sums_the_variants_exactly(tiny: TransformersEngine, reference: tuple[Any, Any]) -> None:
    model, tokenizer = reference
    forms = {side: [form for word in words for form in (word, " " + word)] for side, words in YES_NO.items()}
    single = {
        side: {tokenizer(form, add_special_tokens=False)["input_ids"][0] for form in written if len(tokenizer.tokenize(form)) == 1}
        for side, written in forms.items()
    }
    assert len(single["yes"]) >= 2  # or the sum would be of one
    replies = tiny.run([AskYesNo(prompt=prompt) for prompt in PROMPTS])
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        probabilities = logprobs_after(model, tokenizer(prompt)["input_ids"])[-1].exp()
        assert isinstance(reply, Reply)
        assert isinstance(reply.result, YesNo)
        assert reply.result.p_positive == pytest.approx(sum(float(probabilities[token]) for token in single["yes"]), rel=1e-4)
        assert reply.result.p_negative == pytest.approx(sum(float(probabilities[token]) for token in single["no"]), rel=1e-4)
        assert reply.result.degraded == ()


YES_NO = {"yes": ("yes", "Yes", "YES"), "no": ("no", "No", "NO")}


def test_a_side_without_a_token_of_its_own_says_so(tiny: TransformersEngine) -> None:
    (reply,) = tiny.run([AskYesNo(prompt="x", positive=("perhapsish",))])
    assert isinstance(reply, Reply)
    assert isinstance(reply.result, YesNo)
    assert (reply.result.p_positive, len(reply.result.degraded)) == (0.0, 1)


def test_nll_of_a_given_text(tiny: TransformersEngine, reference: tuple[Any, Any]) -> None:
    model, tokenizer = reference
    texts = [" The mountain is high.", "no", " who wrote the play?", " a", ""]
    replies = tiny.run([MeanNll(prompt=prompt, continuation=text) for prompt, text in zip(PROMPTS, texts, strict=True)])
    for prompt, text, reply in zip(PROMPTS, texts, replies, strict=True):
        before, after = tokenizer(prompt)["input_ids"], tokenizer(text, add_special_tokens=False)["input_ids"]
        logprobs = logprobs_after(model, [*before, *after])
        expected = -sum(float(logprobs[len(before) - 1 + place, token]) for place, token in enumerate(after))
        assert isinstance(reply, Reply)
        assert isinstance(reply.result, Nll)
        assert reply.result.total == pytest.approx(expected, abs=1e-4)
        assert reply.result.n_tokens == len(after)


def test_own_logprobs_and_nll_of_the_same_text_agree(tiny: TransformersEngine) -> None:
    """Of ids that decode to a text that encodes to the same ids."""
    (gen,) = gens(
        tiny.run([Generate(prompt="The river", decoding=Decoding(max_tokens=12), schema=Choice((" flows through",)), logprobs=True)])[0]
    )
    (reply,) = tiny.run([MeanNll(prompt="The river", continuation=" flows through")])
    assert gen.text == " flows through"
    assert isinstance(reply, Reply)
    assert isinstance(reply.result, Nll)
    assert gen.mean_nll == pytest.approx(reply.result.mean, rel=1e-5)


def test_results_do_not_depend_on_the_batch(tiny: TransformersEngine, tiny_llama: Path) -> None:
    """Drawn texts too: each row has a random generator of its own."""
    drawn = Decoding(max_tokens=10, temperature=1.0, top_p=0.9, seed=7)
    calls: list[Call] = [Generate(prompt=prompt, decoding=drawn, n=3, logprobs=True) for prompt in PROMPTS]
    calls += [AskYesNo(prompt=prompt) for prompt in PROMPTS]
    together = tiny.run(calls)
    alone = [reply for call in reversed(calls) for reply in tiny.run([call])][::-1]
    small = TransformersEngine(str(tiny_llama), options=EngineOptions(batch_tokens=40)).run(calls)
    for others in (alone, small):
        for one, other in zip(together[:5], others[:5], strict=True):
            assert [gen.text for gen in gens(one)] == [gen.text for gen in gens(other)]
        for one, other in zip(together[5:], others[5:], strict=True):
            assert isinstance(one, Reply)
            assert isinstance(other, Reply)
            assert isinstance(one.result, YesNo)
            assert isinstance(other.result, YesNo)
            assert one.result.score == pytest.approx(other.result.score, rel=1e-5)
    assert len({gen.text for gen in gens(together[0])}) == 3  # the three are not one text


def test_draws_follow_the_nucleus(tiny: TransformersEngine, reference: tuple[Any, Any]) -> None:
    """First tokens of 3,000 draws against the distribution, renormalised over the fewest tokens with 0.6 together."""
    model, tokenizer = reference
    n, prompt = 3000, PROMPTS[0]
    call = Generate(prompt=prompt, decoding=Decoding(max_tokens=1, temperature=2.0, top_p=0.6, seed=1), n=n)
    counts: dict[int, int] = {}
    for gen in gens(tiny.run([call])[0]):
        (token,) = gen.token_ids or ()
        counts[token] = counts.get(token, 0) + 1
    probabilities = (logprobs_after(model, tokenizer(prompt)["input_ids"])[-1] / 2.0).softmax(-1)
    nucleus: dict[int, float] = {}
    for token in probabilities.argsort(descending=True).tolist():
        nucleus[token] = float(probabilities[token])
        if sum(nucleus.values()) >= 0.6:
            break
    assert len(nucleus) > 3
    assert set(counts) <= set(nucleus)
    for token, probability in nucleus.items():
        share = probability / sum(nucleus.values())
        assert counts.get(token, 0) == pytest.approx(n * share, abs=5 * math.sqrt(n * share * (1 - share)))


def test_stop_texts_cut_and_end(tiny: TransformersEngine) -> None:
    (whole,) = gens(tiny.run([Generate(prompt="The river", decoding=Decoding(max_tokens=30), logprobs=True)])[0])
    stop = whole.text[5:8]
    end = whole.text.index(stop)
    stopping = Decoding(max_tokens=30, stop=("never there", stop))
    (cut,) = gens(tiny.run([Generate(prompt="The river", decoding=stopping, logprobs=True)])[0])
    assert (cut.text, cut.finish) == (whole.text[:end], "stop")
    assert whole.logprobs
    assert whole.token_ids
    assert cut.token_ids
    kept = len(cut.token_ids)
    assert tiny._decode(cut.token_ids).startswith(cut.text)
    assert len(tiny._decode(cut.token_ids[:-1])) < end
    assert cut.token_ids == whole.token_ids[:kept]
    assert cut.logprobs == pytest.approx(whole.logprobs[:kept], abs=1e-5)
    (unscored,) = gens(tiny.run([Generate(prompt="The river", decoding=stopping)])[0])
    assert (unscored.text, unscored.token_ids) == (cut.text, None)
    assert whole.finish == "length"


@pytest.mark.parametrize("before", ["<think>Paris? No.</think>\n", "Paris? No.</think>\n"])
def test_thinking_is_no_answer(tiny: TransformersEngine, before: str) -> None:
    call = Generate(prompt="The river", decoding=Decoding(max_tokens=60, stop=("Nile",)), schema=Choice((f"{before}Rome",)))
    (gen,) = gens(tiny.run([call])[0])
    assert (gen.text, gen.degraded[-1]) == ("Rome", "the model's thinking is removed from the text; its tokens count in costs")


def test_a_choice_is_held_to_and_a_schema_is_not(tiny: TransformersEngine) -> None:
    choice = Choice(("relevant", "relevance", "irrelevant"))
    for prompt in PROMPTS:
        chosen, free = (
            gens(reply)[0]
            for reply in tiny.run(
                [Generate(prompt=prompt, decoding=Decoding(max_tokens=20), schema=s) for s in (choice, JsonSchema.of({}))]
            )
        )
        assert chosen.text in choice.texts
        assert (chosen.finish, chosen.degraded) == ("stop", ())
        assert free.degraded == ("no structured output: the text is unconstrained",)


def test_turns_go_through_the_template(tiny: TransformersEngine, tmp_path: Path, reference: tuple[Any, Any]) -> None:
    _, tokenizer = reference
    turns = (Message("system", "Yes or No."), Message("user", "The river"))
    asked = tokenizer("<|system|>Yes or No.</s><|user|>The river</s><|assistant|>")["input_ids"]
    going_on = tokenizer("<|system|>Yes or No.</s><|user|>The river</s><|assistant|>no, ")["input_ids"]
    wanted = tiny.run([Generate(prompt=TokenIds(tuple(ids)), decoding=Decoding(max_tokens=8)) for ids in (asked, going_on)])
    given = tiny.run(
        [Generate(prompt=prompt, decoding=Decoding(max_tokens=8)) for prompt in (turns, (*turns, Message("assistant", "no, ")))]
    )
    assert [gens(reply)[0].token_ids for reply in given] == [gens(reply)[0].token_ids for reply in wanted]
    plain = TransformersEngine(str(save_tiny_llama(tmp_path / "plain", template=None)))
    assert not plain.capabilities.chat
    flat, text = plain.run(
        [Generate(prompt=prompt, decoding=Decoding(max_tokens=8)) for prompt in (turns, "Yes or No.\n\nThe river\nReply:")]
    )
    assert gens(flat)[0].text == gens(text)[0].text
    assert gens(flat)[0].degraded == ("no chat template: the turns are joined into one text",)


def test_a_prompt_longer_than_the_context_loses_passages_or_is_refused(tiny: TransformersEngine) -> None:
    passages = "\n\n".join("The mountain is high. " * 20 for _ in range(5))
    long = (Message("user", f"{passages}\n\nQuestion: who?", ((0, len(passages)),)),)
    endless = (Message("user", passages * 3),)
    fits, refused = tiny.run([Generate(prompt=prompt, decoding=Decoding(max_tokens=20)) for prompt in (long, endless)])
    assert isinstance(fits, Reply)
    assert CONTEXT - 20 - 8 < fits.prompt_tokens <= CONTEXT - 20
    assert gens(fits)[0].degraded[0].startswith("prompt cut: ")
    assert isinstance(refused, PromptTooLong)
    assert "the model takes 492 in addition to its output" in str(refused)


def test_counting_and_cutting_texts(tiny: TransformersEngine) -> None:
    text = "The river flows through the country."
    n = tiny.count_tokens(text)
    assert tiny.truncate(text, n) == text
    assert text.startswith(tiny.truncate(text, 3))
    assert text.endswith(tiny.truncate(text, 3, keep="end"))
    assert tiny.count_tokens(tiny.truncate(text, 3)) == 3


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="is no checkpoint that transformers can load"):
        TransformersEngine(str(tmp_path / "nothing"))


def test_an_endless_greedy_text_ends_before_its_limit(tmp_path: Path) -> None:
    """The tiny Llama is made to write one token for ever. A drawn text goes on."""
    from transformers import LlamaForCausalLM

    folder = save_tiny_llama(tmp_path / "loops")
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        model.lm_head.weight.zero_()
    model.save_pretrained(folder)
    engine = TransformersEngine(str(folder))
    (greedy,) = gens(engine.run([Generate(prompt="The river", decoding=Decoding(max_tokens=300))])[0])
    assert (len(greedy.token_ids or ()), greedy.finish) == (128, "length")
    drawn = Decoding(max_tokens=200, temperature=1.0, seed=3)
    (text,) = gens(engine.run([Generate(prompt="The river", decoding=drawn)])[0])
    assert len(text.token_ids or ()) == 200 or text.finish == "stop"


def test_replies_are_delivered_as_soon_as_their_texts_are_finished(tiny: TransformersEngine) -> None:
    """Scores first, then short texts before long ones; together they are the batch's replies."""
    calls: list[Call] = [
        Generate(prompt="The river", decoding=Decoding(max_tokens=40)),
        Generate(prompt="A town", decoding=Decoding(max_tokens=3)),
        AskYesNo(prompt="Is it?"),
    ]
    parts: list[dict[int, Reply | LLMError]] = []
    replies = tiny.run(calls, lambda part: parts.append(dict(part)))
    assert [set(part) for part in parts] == [{2}, {1}, {0}]
    assert {number: reply for part in parts for number, reply in part.items()} == dict(enumerate(replies))


def test_a_closed_model_says_so(tiny_llama: Path) -> None:
    engine = TransformersEngine(str(tiny_llama))
    for _ in range(2):
        engine.close()
    with pytest.raises(IdxError, match="^hf:.* is closed: open it again"):
        engine.run([Generate(prompt=PROMPTS[0])])
