"""Checkpoints in this process, against transformers' own generation and plain forward passes: texts, scores, draws, templates, memory."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from tests.runtimes.llms.calling import ASK, SHORT, TURNS, gens, one, result_of
from tests.runtimes.llms.tiny import CHAT, CONTEXT, save_tiny_llama
from wikidx.base.errors import IdxError, InputError
from wikidx.runtimes.errors import LLMError, PromptTooLong
from wikidx.runtimes.llms.base import AskYesNo, Call, Gen, Generate, MeanNll, Nll, Reply, YesNo
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.prompts import Choice, Decoding, Message, Prompt, Thinking, TokenIds
from wikidx.runtimes.llms.thinking import NO_ROOM
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
from wikidx.runtimes.llms.turns import NO_BEGINNING, NO_NEIGHBOURS, NO_SYSTEM_TURN

PROMPTS = ["Question: who wrote the play?", "The river", "Is the passage relevant to the question? Yes or No.", "[1]", "no no no"]


@pytest.fixture(scope="module")
def reference(tiny_llama: Path) -> tuple[Any, Any]:
    """Transformers' own model and tokenizer."""
    return AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(tiny_llama)


def logprobs_after(model: Any, ids: list[int]) -> torch.Tensor:  # noqa: ANN401
    """Log-probabilities of every next token, one text at a time, without padding: float64 (len(ids), vocabulary)."""
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].double().log_softmax(-1)  # type: ignore[no-any-return]


def changed(folder: Path, change: Callable[[Any], object], **options: Any) -> TransformersEngine:  # noqa: ANN401
    """Open a tiny Llama whose weights are changed before."""
    model = LlamaForCausalLM.from_pretrained(save_tiny_llama(folder, **options))
    with torch.inference_mode():
        change(model)
    model.save_pretrained(folder)
    return TransformersEngine(str(folder))


def prefer(ids: list[int], token: int, by: float) -> Callable[[Any], object]:
    """Return a change of weights after which a token is likelier after some ids."""

    def change(model: Any) -> None:  # noqa: ANN401
        model.lm_head.weight[token] += by * model.model(torch.tensor([ids])).last_hidden_state[0, -1]

    return change


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


def test_nll_of_a_given_text(tiny: TransformersEngine, reference: tuple[Any, Any]) -> None:
    model, tokenizer = reference
    texts = [" The mountain is high.", "no", " who wrote the play?", " a", ""]
    replies = tiny.run([MeanNll(prompt=prompt, continuation=text) for prompt, text in zip(PROMPTS, texts, strict=True)])
    for prompt, text, reply in zip(PROMPTS, texts, replies, strict=True):
        before, after = tokenizer(prompt)["input_ids"], tokenizer(text, add_special_tokens=False)["input_ids"]
        logprobs = logprobs_after(model, [*before, *after])
        expected = -sum(float(logprobs[len(before) - 1 + place, token]) for place, token in enumerate(after))
        assert result_of(reply, Nll) == Nll(total=pytest.approx(expected, abs=1e-4), n_tokens=len(after))  # type: ignore[arg-type]


def test_the_end_token_ends_a_text(tmp_path: Path) -> None:
    """With the end made the likeliest token, nothing is generated but the end."""
    gen = one(changed(tmp_path, prefer([0, 300], 1, by=100)), Generate(prompt=TokenIds((0, 300))))
    assert (gen.text, gen.token_ids, gen.finish) == ("", (1,), "stop")


def test_an_endless_greedy_text_ends_before_its_limit(tmp_path: Path) -> None:
    """The tiny Llama is made to write one token for ever. A drawn text goes on."""
    engine = changed(tmp_path, lambda model: model.lm_head.weight.zero_())
    greedy = one(engine, Generate(prompt="The river", decoding=Decoding(max_tokens=300)))
    assert (len(greedy.token_ids or ()), greedy.finish) == (128, "length")
    text = one(engine, Generate(prompt="The river", decoding=Decoding(max_tokens=200, temperature=1.0, seed=3)))
    assert len(text.token_ids or ()) == 200 or text.finish == "stop"


def test_results_do_not_depend_on_the_batch(tiny: TransformersEngine, tiny_llama: Path) -> None:
    """Drawn texts too: each row has a random generator of its own."""
    drawn = Decoding(max_tokens=10, temperature=1.0, top_p=0.9, seed=7)
    calls: list[Call] = [Generate(prompt=prompt, decoding=drawn, n=3, logprobs=True) for prompt in PROMPTS]
    calls += [AskYesNo(prompt=prompt) for prompt in PROMPTS]
    together = tiny.run(calls)
    alone = [reply for call in reversed(calls) for reply in tiny.run([call])][::-1]
    small = TransformersEngine(str(tiny_llama), options=EngineOptions(batch_tokens=40)).run(calls)
    for others in (alone, small):
        for here, there in zip(together[:5], others[:5], strict=True):
            assert [gen.text for gen in gens(here)] == [gen.text for gen in gens(there)]
        for here, there in zip(together[5:], others[5:], strict=True):
            assert result_of(here, YesNo).score == pytest.approx(result_of(there, YesNo).score, rel=1e-5)
    assert len({gen.text for gen in gens(together[0])}) == 3  # the three are not one text


def test_draws_follow_the_nucleus(tiny: TransformersEngine, reference: tuple[Any, Any]) -> None:
    """First tokens of 1,000 draws against the distribution, renormalised over the fewest tokens with 0.6 together."""
    model, tokenizer = reference
    n, prompt = 1000, PROMPTS[0]
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


def test_a_stop_text_cuts_the_tokens_with_the_text(tiny: TransformersEngine) -> None:
    def write(*stop: str, logprobs: bool = True) -> Gen:
        return one(tiny, Generate(prompt="The river", decoding=Decoding(max_tokens=30, stop=stop), logprobs=logprobs))

    whole = write()
    end = whole.text.index(whole.text[5:8])
    cut = write("never there", whole.text[5:8])
    assert (cut.text, cut.finish, whole.finish) == (whole.text[:end], "stop", "length")
    assert cut.token_ids
    kept = len(cut.token_ids)
    assert len(tiny._decode(cut.token_ids[:-1])) < end <= len(tiny._decode(cut.token_ids))
    assert cut.token_ids == (whole.token_ids or ())[:kept]
    assert cut.logprobs == pytest.approx((whole.logprobs or ())[:kept], abs=1e-5)
    unscored = write(whole.text[5:8], logprobs=False)
    assert (unscored.text, unscored.token_ids) == (cut.text, None)


def test_turns_go_through_the_template(tiny: TransformersEngine, reference: tuple[Any, Any]) -> None:
    _, tokenizer = reference
    before = "<|system|>Yes or No.</s><|user|>The river</s><|assistant|>"
    ids = [TokenIds(tuple(tokenizer(text)["input_ids"])) for text in (before, f"{before}no, ")]
    plain = templated(tiny, None)
    cases: list[tuple[TransformersEngine, Prompt, Prompt]] = [
        (tiny, TURNS, ids[0]),
        (tiny, (*TURNS, Message("assistant", "no, ")), ids[1]),
        (plain, TURNS, "Yes or No.\n\nThe river\nReply:"),
    ]
    for engine, prompt, same in cases:
        given, wanted = (one(engine, Generate(prompt=each, decoding=SHORT)) for each in (prompt, same))
        assert given.token_ids == wanted.token_ids
    assert one(plain, ASK).degraded == ("no chat template: the turns are joined into one text",)


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


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="is no checkpoint that transformers can load"):
        TransformersEngine(str(tmp_path / "nothing"))


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


SPELLINGS = ["Yes", "yes", " yes", "YES", " Yes", "Yes,", "no", " No", "NO.", "not", "\n", " the"]
IDS = [0, 300]


def spelling_llama(folder: Path, likeliest: str, n_padded: int = 0) -> Path:
    """Save a tiny Llama whose vocabulary has a token for each spelling, and whose first token is most likely ``likeliest``.

    Models are padded to a round number of ids; with ``n_padded``, one of these is the likeliest.
    """
    save_tiny_llama(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(SPELLINGS)
    tokenizer.save_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(n_padded or len(tokenizer))
    with torch.inference_mode():
        prefer(IDS, tokenizer.convert_tokens_to_ids(likeliest), by=0.3)(model)
        if n_padded:
            prefer(IDS, n_padded - 1, by=10)(model)
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
    ids, reached, masses = IDS, 1.0, [0.0, 0.0]
    for blank in (*blanks, None):
        with torch.inference_mode():
            probabilities = model(torch.tensor([ids])).logits[0, -1].double().softmax(-1)
        masses = [mass + reached * float(probabilities[side].sum()) for mass, side in zip(masses, sides, strict=True)]
        if blank is not None:
            token = tokenizer.convert_tokens_to_ids(blank)
            assert int(probabilities.argmax()) == token
            ids, reached = [*ids, token], reached * float(probabilities[token])
    return masses


def answer(folder: Path) -> YesNo:
    (reply,) = TransformersEngine(str(folder)).run([AskYesNo(prompt=TokenIds(tuple(IDS)))])
    return result_of(reply, YesNo)


@pytest.mark.parametrize(("likeliest", "blanks"), [("Yes", ()), ("\n", ("\n",))])
def test_every_spelling_of_yes_and_no_is_summed_also_after_white_space(tmp_path: Path, likeliest: str, blanks: tuple[str, ...]) -> None:
    folder = spelling_llama(tmp_path / "llama", likeliest)
    found = answer(folder)
    assert [found.p_positive, found.p_negative] == pytest.approx(expected_masses(folder, blanks), rel=1e-4)


def test_an_id_beyond_the_tokenizer_is_no_white_space(tmp_path: Path) -> None:
    assert answer(spelling_llama(tmp_path / "llama", "Yes", n_padded=1024)).mass < 0.01


def test_a_side_without_a_token_of_its_own_says_so(tiny: TransformersEngine) -> None:
    (reply,) = tiny.run([AskYesNo(prompt="x", positive=("perhapsish",))])
    found = result_of(reply, YesNo)
    assert (found.p_positive, len(found.degraded)) == (0.0, 1)


_RAISE = "{{ raise_exception('%s') }}"
_NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}" + _RAISE % "System role not supported" + "{% endif %}"
_ALTERNATE = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    + _RAISE % "Conversation roles must alternate user/assistant/user/assistant/..."
    + "{% endif %}{% endfor %}"
)
_NO_BEGINNING = "{% if messages[-1]['role'] == 'assistant' %}" + _RAISE % "Expected last role User" + "{% endif %}"
_DROPS_SYSTEM = CHAT.replace("{% for message in messages %}", "{% for message in messages if message['role'] != 'system' %}", 1)
FAKE_TEMPLATES = {
    "gemma": _NO_SYSTEM + _ALTERNATE + CHAT,
    "mistral": _ALTERNATE + _NO_BEGINNING + CHAT,
    "prefill": _NO_BEGINNING + CHAT,
    "dropping": _DROPS_SYSTEM,
    "broken": "{{ messages[0].content.nothing.at_all }}" + CHAT,
}
"""Fakes of templates: each refuses, or drops, what a known family of models does."""


def templated(tiny: TransformersEngine, template: str | None) -> TransformersEngine:
    """Return the tiny Llama with another chat template."""
    engine = copy.copy(tiny)
    engine._tokenizer = copy.deepcopy(tiny._tokenizer)
    engine._tokenizer.chat_template = template
    engine.capabilities = dataclasses.replace(tiny.capabilities, chat=bool(template))
    return engine


CONTINUED = Generate(prompt=(*TURNS, Message("assistant", "It flows")), decoding=SHORT)
NEIGHBOURS = Generate(prompt=(TURNS[1], Message("user", "or not")), decoding=SHORT)


@pytest.mark.parametrize(
    ("template", "asked", "continued", "neighbours"),
    [
        ("gemma", (NO_SYSTEM_TURN,), (NO_SYSTEM_TURN,), (NO_NEIGHBOURS,)),
        ("mistral", (NO_SYSTEM_TURN,), (NO_SYSTEM_TURN, NO_BEGINNING), (NO_NEIGHBOURS,)),
        ("prefill", (), (NO_BEGINNING,), ()),
        ("dropping", (NO_SYSTEM_TURN,), (NO_SYSTEM_TURN,), ()),
        ("broken", *[("the chat template refuses the conversation: the turns are joined into one text",)] * 3),
    ],
)
def test_turns_that_a_template_refuses_are_folded(
    tiny: TransformersEngine, template: str, asked: tuple[str, ...], continued: tuple[str, ...], neighbours: tuple[str, ...]
) -> None:
    engine = templated(tiny, FAKE_TEMPLATES[template])
    others: list[Call] = [AskYesNo(prompt=CONTINUED.prompt), MeanNll(prompt=ASK.prompt, continuation=" no")]
    *texts, judged, scored = engine.run([ASK, CONTINUED, NEIGHBOURS, *others])
    assert [gens(reply)[0].degraded for reply in texts] == [asked, continued, neighbours]
    assert (result_of(judged, YesNo).degraded, result_of(scored, Nll).degraded) == (continued, asked)
    if template == "gemma":
        folded = Generate(prompt=(Message("user", "Yes or No.\n\nThe river"),), decoding=SHORT)
        assert gens(texts[0])[0].token_ids == one(tiny, folded).token_ids


def test_a_checkpoint_without_a_template_ends_where_another_turn_would_begin(tiny: TransformersEngine) -> None:
    engine = templated(tiny, None)
    prompt = (Message("user", "Question: who?\nAnswer:"),)
    for text, kept in [("\nyes\nIt is.", "\nyes"), (" yes\nQuestion: who wrote it?", " yes"), (" yes", " yes")]:
        gen = one(engine, Generate(prompt=prompt, decoding=Decoding(max_tokens=40), schema=Choice((text,))))
        assert (gen.text, gen.finish) == (kept, "stop")
        assert len(gen.token_ids or ()) <= len(engine._ids(kept + "\nQuestion:"))
    plain, scored = engine.run([MeanNll(prompt="Question: who?\nAnswer:", continuation=" yes"), MeanNll(prompt=prompt, continuation="yes")])
    assert result_of(scored, Nll).total == pytest.approx(result_of(plain, Nll).total)


@pytest.mark.parametrize("before", ["<think>Paris? No.</think>\n", "Paris? No.</think>\n"])
def test_thinking_is_no_answer(tiny: TransformersEngine, before: str) -> None:
    call = Generate(prompt="The river", decoding=Decoding(max_tokens=60, stop=("Nile",)), schema=Choice((f"{before}Rome",)))
    gen = one(tiny, call)
    assert (gen.text, gen.degraded[-1]) == ("Rome", "the model's thinking is removed from the text; its tokens count in costs")


OPENS_THOUGHT = CHAT.replace("<|assistant|>{% endif %}", "<|assistant|>{% if enable_thinking %}<think>{% endif %}{% endif %}")


def thinking(tiny: TransformersEngine, mode: Thinking, *, forced: bool) -> TransformersEngine:
    """Return a tiny Llama whose template opens a thought, always or if thinking is on."""
    engine = templated(tiny, OPENS_THOUGHT.replace("enable_thinking", "true") if forced else OPENS_THOUGHT)
    engine._thinking = mode
    return engine


@pytest.mark.parametrize(("forced", "mode", "thinks"), [(True, "off", True), (False, "off", False), (False, "on", True)])
def test_a_checkpoint_whose_template_opens_a_thought_gets_room(
    tiny: TransformersEngine, forced: bool, mode: Thinking, thinks: bool
) -> None:
    """Its text without a closing tag is a thought. With thinking off, an obedient template opens none."""
    (reply,) = thinking(tiny, mode, forced=forced).run([ASK])
    (gen,) = gens(reply)
    assert isinstance(reply, Reply)
    assert [reply.completion_tokens > 8, gen.reasoning is not None, NO_ROOM in gen.degraded, not gen.text] == [thinks] * 4


def test_room_for_a_checkpoint_s_thoughts_is_not_for_its_answer(tiny: TransformersEngine) -> None:
    """The tiny Llama does not think; its bytes are other tokens when they are read again, so that their number is not exact."""
    engine = templated(tiny, CHAT)
    engine._thinking = "on"
    (reply,) = engine.run([Generate(prompt=TURNS[1:], decoding=SHORT)])
    assert isinstance(reply, Reply)
    assert tiny.count_tokens(gens(reply)[0].text) < 20 < reply.completion_tokens
    assert gens(reply)[0].finish == "length"


def test_stop_texts_end_a_checkpoint_s_answer_and_not_its_thought(tiny: TransformersEngine) -> None:
    schema = Choice(("It is\nso</think>Rome\nParis",))
    call = Generate(prompt=TURNS, decoding=Decoding(max_tokens=60, stop=("\n",)), schema=schema)
    gen = one(thinking(tiny, "off", forced=True), call)
    assert (gen.text, gen.reasoning, gen.finish) == ("Rome", "It is\nso", "stop")


def test_a_closed_model_says_so(tiny: TransformersEngine) -> None:
    engine = templated(tiny, CHAT)
    for _ in range(2):
        engine.close()
    with pytest.raises(IdxError, match="^hf:.* is closed: open it again"):
        engine.run([Generate(prompt=PROMPTS[0])])
