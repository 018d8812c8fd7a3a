"""One contract for every backend of language models, over the same tiny Llama: texts, scores, costs, ends, seeds and refusals.

The model in transformers is the reference; that one is compared with transformers itself in ``tests/runtimes/llms/test_checkpoints.py``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtimes.llms.calling import FAST, gens, result_of
from tests.runtimes.llms.endpoint import tiny_endpoint
from tests.runtimes.llms.fake_server import WIRES, fake_serving
from tests.runtimes.llms.tiny import save_tiny_llama
from tests.runtimes.llms.tiny_gguf import save_tiny_gguf
from wikidx.base.plugins import VARIABLE
from wikidx.runtimes.errors import LLMError, PromptTooLong
from wikidx.runtimes.llms.base import LLM, AskYesNo, Call, Gen, Generate, MeanNll, Mix, Nll, Reply, Score, YesNo
from wikidx.runtimes.llms.cache import CachedLLM, ReplyCache
from wikidx.runtimes.llms.mixing import LIKELIEST
from wikidx.runtimes.llms.naming import Settings, open_llms, parse_spec
from wikidx.runtimes.llms.openai_requests import BEGINS_ANEW
from wikidx.runtimes.llms.plugged import OwnBackend
from wikidx.runtimes.llms.prompts import Choice, Decoding, Message, Prompt, TokenIds
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.llms.text import FREE_TEXT, NO_MIX, NO_PROMPT_LOGPROBS
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

SHORT, DRAWN = Decoding(max_tokens=8), Decoding(max_tokens=8, temperature=1.0, top_p=0.9, seed=3)
TURNS = (Message("system", "Yes or No."), Message("user", "The river"))
PROMPTS: list[Prompt] = [
    TURNS,
    "The river",
    (Message("user", "who wrote the play?"),),
    TokenIds((0, 300, 301)),
    (*TURNS, Message("assistant", "no, ")),
    "high",
]
CALLS: list[Call] = [Generate(prompt=prompt, decoding=SHORT, logprobs=True) for prompt in PROMPTS]
TOO_LONG = Generate(prompt=(Message("user", "The river flows. " * 1000),), decoding=SHORT)
TEXT = "The river flows through the country."

SERVERS = [f"openai, {wire}" for wire in WIRES]
BACKENDS = ["hf", "llamacpp", *SERVERS, "replicas", "cached", "scripted", "plugged"]
COUNT_OTHERWISE = ("scripted", "plugged")  # words; a prompt without the template
ROUNDING = {"llamacpp": 0.02}  # keys and values of 16 bits
SCORE_CHATS = ("hf", "openai, vLLM", "cached", "scripted", "plugged")
HAVE_TOKENIZER = ("hf", "llamacpp", "openai, vLLM", "openai, SGLang", "openai, llama.cpp", "cached", "plugged")


class Own:
    """The tiny Llama as the user's own code."""

    def __init__(self, model: str, device: str) -> None:
        self._llm = TransformersEngine(model)
        self.count_tokens, self.close = self._llm.count_tokens, self._llm.close

    def generate(self, call: Generate) -> Gen:
        gen: Gen = answer_of(self._llm, call)[0]
        return gen

    def yes_no(self, call: AskYesNo) -> YesNo:
        scored: YesNo = answer_of(self._llm, call)
        return scored

    def nll(self, call: MeanNll) -> Nll:
        scored: Nll = answer_of(self._llm, call)
        return scored


OWN = OwnBackend(name="own", open=Own)


def answer_of(llm: LLM, call: Call) -> Any:  # noqa: ANN401 - a result of the call's kind
    (reply,) = llm.run([call])
    if isinstance(reply, LLMError):
        raise reply
    return reply.result


def text_of(reply: Reply | LLMError) -> str:
    """Return the text of a reply without the beginning of a character at its end, which llama.cpp leaves out."""
    return gens(reply)[0].text.rstrip("\ufffd")


class Opened:
    """The backends, each opened when it is first asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.tiny = TransformersEngine(str(save_tiny_llama(folder / "llama")))
        self._llms: dict[str, LLM] = {"hf": self.tiny}

    def __getitem__(self, name: str) -> LLM:
        if name not in self._llms:
            self._llms[name] = self._stack.enter_context(closing(self._open(name)))
        return self._llms[name]

    def _open(self, name: str) -> LLM:
        kind, _, wire = name.partition(", ")
        match kind:
            case "llamacpp":
                return named(f"llamacpp:{save_tiny_gguf(self._folder / 'llama', self._folder / 'tiny.gguf')}")
            case "openai":
                return named(f"openai:fake@{self._serve(wire)}")
            case "replicas":
                return named(f"openai:fake@{self._serve('vLLM')},{self._serve('OpenAI')}")
            case "cached":
                return CachedLLM(TransformersEngine(str(self._folder / "llama")), ReplyCache(self._folder / "replies"), "tiny")
            case "scripted":
                return ScriptedLLM(lambda call: answer_of(self.tiny, call))
            case _:
                return named(f"{__name__}:OWN:{self._folder / 'llama'}")

    def _serve(self, wire: str) -> str:
        return self._stack.enter_context(fake_serving(tiny_endpoint(self.tiny, wire)))


def named(text: str) -> LLM:
    return open_llms({"answer": parse_spec(text)}, Settings(connection=FAST, device="cpu"))["answer"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(VARIABLE, "")
        yield Opened(tmp_path_factory.mktemp("backends"), stack)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def llm(opened: Opened, backend: str) -> LLM:
    return opened[backend]


def test_texts_scores_and_costs_are_those_of_the_weights_in_the_order_of_the_calls(llm: LLM, opened: Opened, backend: str) -> None:
    expected = opened.tiny.run(CALLS)
    for replies in (llm.run(CALLS), llm.run(CALLS[::-1])[::-1]):
        for reply, wanted in zip(replies, expected, strict=True):
            (gen,), (there,) = gens(reply), gens(wanted)
            assert (text_of(reply), gen.finish) == (text_of(wanted), there.finish)
            if backend != "llamacpp" or "\ufffd" not in there.text:  # in which it leaves parts of characters out
                assert gen.logprobs == pytest.approx(there.logprobs, abs=ROUNDING.get(backend, 1e-3))
            assert set(gen.degraded) <= {BEGINS_ANEW}
            assert isinstance(reply, Reply)
            assert isinstance(wanted, Reply)
            if backend not in COUNT_OTHERWISE:
                assert reply[1:3] == wanted[1:3]


def test_texts_end_at_their_limit_and_before_a_stop_text(llm: LLM, opened: Opened) -> None:
    (whole,) = gens(opened.tiny.run(CALLS[:1])[0])
    end = len(whole.text) // 2
    stop = ("never there", whole.text[end : end + 2])
    short, stopped = llm.run(
        [Generate(prompt=TURNS, decoding=Decoding(max_tokens=3)), Generate(prompt=TURNS, decoding=dataclasses.replace(SHORT, stop=stop))]
    )
    assert gens(short)[0].finish == "length"
    assert whole.text.startswith(gens(short)[0].text)
    assert (gens(stopped)[0].text, gens(stopped)[0].finish) == (whole.text[: whole.text.index(stop[1])], "stop")


def test_drawn_texts_repeat_with_their_seed(llm: LLM) -> None:
    call = Generate(prompt=TURNS, decoding=DRAWN, n=3)
    other = dataclasses.replace(call, decoding=dataclasses.replace(DRAWN, seed=40))
    first, again, drawn = ([gen.text for gen in gens(reply)] for reply in llm.run([call, call, other]))
    assert first == again
    assert len({*first, *drawn}) == 6


@pytest.mark.parametrize("prompt", [TURNS, "The mountain is high."], ids=["chat", "text"])
def test_yes_and_no_are_summed_over_the_likeliest_tokens(llm: LLM, opened: Opened, backend: str, prompt: Prompt) -> None:
    scores = tiny_endpoint(opened.tiny).scores
    assert scores is not None
    likeliest = scores.likeliest(prompt, 20 if backend in ("llamacpp", "replicas", *SERVERS) else 300)
    words = [token.strip() for token, _ in likeliest if token.strip().isalpha()][:2]
    sides = [sum(math.exp(logprob) for token, logprob in likeliest if token.strip().lower() == word.lower()) for word in words]
    found, unseen = (
        result_of(reply, YesNo)
        for reply in llm.run([AskYesNo(prompt=prompt, positive=(yes,), negative=(no,)) for yes, no in (words, ("neverseen", "northis"))])
    )
    assert [found.p_positive, found.p_negative] == pytest.approx(sides, rel=ROUNDING.get(backend, 1e-3))
    assert found.degraded == ()
    assert (unseen.missing, unseen.score) == (True, None)


def test_a_given_text_is_scored_or_said_to_be_unknown(llm: LLM, opened: Opened, backend: str) -> None:
    calls = [MeanNll(prompt=prompt, continuation=" flows through the country.") for prompt in PROMPTS[:4]]
    for call, reply, wanted in zip(calls, llm.run(calls), opened.tiny.run(calls), strict=True):
        found, expected = result_of(reply, Nll), result_of(wanted, Nll)
        if found.total is None:
            assert found.degraded == (NO_PROMPT_LOGPROBS,)
            assert backend not in SCORE_CHATS
            assert not isinstance(call.prompt, str) or backend == "llamacpp"
        else:
            assert found.total == pytest.approx(expected.total, rel=1e-3)
            assert found.n_tokens == expected.n_tokens


def test_a_text_is_one_of_the_choices_or_said_to_be_free(llm: LLM) -> None:
    choice = Choice(("relevant", "relevance", "irrelevant"))
    (gen,) = gens(llm.run([Generate(prompt=TURNS, decoding=Decoding(max_tokens=20), schema=choice)])[0])
    assert gen.text in choice.texts or FREE_TEXT in gen.degraded


def test_a_call_fails_alone(llm: LLM, opened: Opened) -> None:
    """Its prompt does not fit the context."""
    first, failed, last = llm.run([CALLS[0], TOO_LONG, CALLS[1]])
    assert isinstance(failed, PromptTooLong)
    expected = opened.tiny.run(CALLS[:2])
    assert [text_of(reply) for reply in (first, last)] == [text_of(reply) for reply in expected]


def test_replies_are_delivered_once_and_an_interruption_ends_the_batch_alone(llm: LLM, backend: str) -> None:
    parts: list[tuple[int, Reply | LLMError]] = []
    replies = llm.run(CALLS, lambda part: parts.extend(part.items()))
    assert sorted(number for number, _ in parts) == ([] if backend == "scripted" else list(range(len(CALLS))))
    assert all(replies[number] == reply for number, reply in parts)

    def interrupt(part: Mapping[int, Reply | LLMError]) -> None:
        raise KeyboardInterrupt

    if backend != "scripted":
        with pytest.raises(KeyboardInterrupt):
            llm.run(CALLS, interrupt)
    assert [gens(reply)[0].text for reply in llm.run(CALLS)] == [gens(reply)[0].text for reply in replies]


def test_tokens_are_counted_and_texts_cut(llm: LLM, opened: Opened, backend: str) -> None:
    """By the model's tokenizer, unless the server keeps it to itself."""
    n_tokens = llm.count_tokens(TEXT)
    first, last = llm.truncate(TEXT, 3), llm.truncate(TEXT, 3, keep="end")
    assert llm.truncate(TEXT, n_tokens) == TEXT
    assert TEXT.startswith(first)
    assert TEXT.endswith(last)
    assert 0 < llm.count_tokens(first) <= 3
    if backend in HAVE_TOKENIZER:
        assert n_tokens == opened.tiny.count_tokens(TEXT)


MIXED = Mix(prompts=(TURNS, (Message("user", "who wrote the play?"),), (Message("user", "high"),)), weights=(0.5, 0.3, 0.2), decoding=SHORT)


def test_a_mixture_takes_the_likeliest_token_of_the_mean(llm: LLM, opened: Opened, backend: str) -> None:
    """The mean is computed by transformers' own passes, one prompt at a time, without padding or a cache."""
    network, read = opened.tiny._model.forward, [list(opened.tiny._encode_prompt(prompt, "off")[0]) for prompt in MIXED.prompts]
    (reply,) = llm.run([MIXED])
    if backend == "plugged":
        assert NO_MIX in str(reply)
        return
    (gen,) = gens(reply)
    assert gen.logprobs is not None
    written = list[int]()
    while len(written) < SHORT.max_tokens and 1 not in written:
        with torch.inference_mode():
            after = [network(torch.tensor([[*ids, *written]])).logits[0, -1].double().softmax(-1) for ids in read]
        if backend not in ("hf", "cached", "scripted"):  # it tells the 20 likeliest, parts of characters without their bytes
            after = [torch.where(each >= each.topk(20).values[-1], each, 0.0) for each in after]
            after = [each * torch.tensor(["\ufffd" not in opened.tiny._tokenizer.decode([n]) for n in range(len(each))]) for each in after]
        mean = sum((weight * each for weight, each in zip(MIXED.weights, after, strict=True)), torch.zeros(()))
        assert gen.logprobs[len(written)] == pytest.approx(math.log(float(mean.max())), abs=ROUNDING.get(backend, 1e-5))
        written.append(int(mean.argmax()))
        if backend == "llamacpp":
            break  # it tells nothing after a part of a character
    assert gen.text.startswith(opened.tiny._decode(written))
    assert (LIKELIEST in gen.degraded) == (backend not in ("hf", "cached", "scripted"))


def test_models_that_write_refuse_to_score_and_to_write_control_tokens_they_have_not(llm: LLM, backend: str) -> None:
    scored, controlled, last = llm.run(
        [Score(prompt="who", texts=("a", "b")), Generate(prompt="The river", control=("[Relevant]",)), CALLS[0]]
    )
    if backend != "scripted":
        assert "give this role an encoder or a classifier" in str(scored)
    if backend in ("hf", "cached", "scripted"):
        assert "has no token '[Relevant]'" in str(controlled)
    assert isinstance(last, Reply)
