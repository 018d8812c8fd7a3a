"""Thoughts: their spellings, room for them, and their removal from answers, in every backend."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.runtimes.command_line import Command
from tests.runtimes.llms.calling import FAST, TURNS, gens
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving, refusal
from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.base.errors import InputError
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import StandInSearcher
from wikidx.runtimes.llms.base import AskYesNo, Choice, Decoding, Gen, Generate, Message, Reply, Thinking, YesNo
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import EngineOptions, parse_extra_body, parse_thinking
from wikidx.runtimes.llms.thinking import NO_ROOM, NO_THINKING, ROOM, finish_text, opens_thought, split_thinking
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.questions import Question

SHORT = Decoding(max_tokens=8)
VLLM = {"/v1/models": {"data": [{"id": "fake", "owned_by": "vllm"}]}}


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nParis? No.\n</think>\n\nRome",
        "Paris? No.</think>Rome",
        "[THINK]Paris? No.[/THINK]Rome",
        "Paris? No.[/THINK]Rome",
        "<seed:think>Paris? No.</seed:think>Rome",
        "<|START_THINKING|>Paris? No.<|END_THINKING|>Rome",
        "<|channel>thought\nParis? No.\n<channel|>Rome",
        "◁think▷Paris? No.◁/think▷Rome",
        "<|channel|>analysis<|message|>Paris? No.<|end|><|start|>assistant<|channel|>final<|message|>Rome",
        "<|channel|>analysis<|message|>Paris? No.<|end|><|start|>assistant<|channel|>final<|message|>Rome<|return|>",
        "analysisParis? No.assistantfinalRome",
    ],
)
def test_every_spelling_of_a_thought_is_known(text: str) -> None:
    assert split_thinking(text) == ("Paris? No.", "Rome")


@pytest.mark.parametrize("text", ["<think>Paris?", "[THINK]Paris?", "<|channel|>analysis<|message|>Paris?", "analysisParis?"])
def test_an_unfinished_thought_is_no_answer(text: str) -> None:
    assert split_thinking(text) == ("Paris?", "")


@pytest.mark.parametrize("text", ["Rome", "analysis of Rome", "I think <b>Rome</b>", "[1] Rome", "", "1 < 2"])
def test_a_text_without_thoughts_is_the_answer(text: str) -> None:
    assert split_thinking(text) == (None, text)
    assert split_thinking(text, is_open=True) == (text, "")


def test_several_thoughts_are_all_taken_away() -> None:
    assert split_thinking("<think>a</think><think>b</think>Rome") == ("a\n\nb", "Rome")


def test_stop_texts_end_the_answer_and_not_the_thought() -> None:
    written = Gen(text="<think>Is it\nParis?</think>Rome\nParis", finish="length")
    assert finish_text(written, ("\n",)) == Gen(text="Rome", reasoning="Is it\nParis?", degraded=(NO_THINKING,))


@pytest.mark.parametrize(("text", "opens"), [("<|assistant|><think>\n", True), ("<think>\n\n</think>\n\n", False), ("[THINK]", True)])
def test_a_template_that_opens_a_thought_is_seen(text: str, *, opens: bool) -> None:
    assert opens_thought(text) is opens


def run(answer: Any, call: Generate | AskYesNo, pages: Any = None, n: int = 1, **options: Any) -> tuple[list[Reply], FakeServer]:  # noqa: ANN401
    """Send a call ``n`` times to a fake server."""
    server, replies = FakeServer(answer, pages), list[Reply]()
    with fake_serving(server) as url:
        model = OpenAIHttp("fake", url, options=dataclasses.replace(FAST, **options))
        for _ in range(n):
            (reply,) = model.run([call])
            assert isinstance(reply, Reply), reply
            replies.append(reply)
        model.close()
    return replies, server


def thinker(path: str, body: dict[str, Any]) -> Answer:
    """Think for a hundred tokens before an answer, whatever is asked for; a fake of a server without a parser of thoughts."""
    return chat("<think>Paris?", finish="length") if body["max_tokens"] < 100 else chat("<think>Paris?\nNo.</think>Rome\nIndeed.")


def test_a_model_that_thinks_all_the_same_is_asked_again_with_room_and_keeps_it() -> None:
    call = Generate(prompt=TURNS, decoding=Decoding(max_tokens=8, stop=("\n",)))
    replies, server = run(thinker, call, n=2)
    assert [gens(reply)[0].text for reply in replies] == ["Rome", "Rome"]
    assert {gens(reply)[0].reasoning for reply in replies} == {"Paris?\nNo."}
    assert [body["max_tokens"] for body in server.bodies] == [8, 8 + ROOM, 8 + ROOM]
    assert ["stop" in body for body in server.bodies] == [True, False, False]  # a stop text would end the thought
    assert replies[0].prompt_tokens == 2 * replies[1].prompt_tokens


def test_all_calls_of_the_first_batch_get_room() -> None:
    """They are on their way before the first reply shows that the model thinks."""
    server = FakeServer(thinker)
    with fake_serving(server) as url:
        model = OpenAIHttp("fake", url, options=FAST)
        replies = model.run([Generate(prompt=f"{number}?", decoding=SHORT) for number in range(12)])
        model.close()
    assert {gens(reply)[0].text for reply in replies} == {"Rome\nIndeed."}


def test_verdicts_of_eight_tokens_are_read_after_thoughts() -> None:
    """RA-ISF's, of a model that thinks although it should not."""

    def answer(path: str, body: dict[str, Any]) -> Answer:
        return chat("Is it so?</think>Yes.") if body["max_tokens"] > 100 else chat("<think>Is it", finish="length")

    method = find_method("ra_isf")
    with fake_serving(FakeServer(answer)) as url:
        model = OpenAIHttp("fake", url, options=FAST)
        services = Services(llms=dict.fromkeys(method.roles, model), searcher=StandInSearcher())
        (prediction,) = execute(lambda text: method.run(text, method.options()), [Question("1", "Is it?")], services)
        model.close()
    assert (prediction.answer, prediction.error) == ("Yes.", None)
    assert prediction.detail["parse_ok"]


def test_an_answer_that_is_empty_because_of_its_length_says_so() -> None:
    (reply,), server = run(lambda path, body: chat("<think>Paris?", finish="length"), Generate(prompt=TURNS, decoding=SHORT))
    assert (gens(reply)[0].text, gens(reply)[0].degraded) == ("", (NO_THINKING, NO_ROOM))
    (plain,), _ = run(lambda path, body: chat("", finish="length"), Generate(prompt=TURNS, decoding=SHORT))
    assert (gens(plain)[0].text, gens(plain)[0].degraded) == ("", (NO_ROOM,))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("content", ["", None])
def test_thoughts_in_a_field_of_their_own_are_read(field: str, content: str | None) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        return chat(content, finish="length", **{field: "Paris?"}) if body["max_tokens"] < 100 else chat("Rome", **{field: "Paris? No."})

    (reply,), server = run(answer, Generate(prompt=TURNS, decoding=SHORT))
    assert (gens(reply)[0].text, gens(reply)[0].reasoning) == ("Rome", "Paris? No.")
    assert len(server.bodies) == 2


def test_hidden_thoughts_are_seen_in_the_usage() -> None:
    """A fake of gpt-5, which tells the number of its thoughts' tokens alone."""

    def answer(path: str, body: dict[str, Any]) -> Answer:
        status, said = chat("", finish="length") if body["max_tokens"] < 100 else chat("Rome")
        return status, {**said, "usage": {"prompt_tokens": 3, "completion_tokens": 8, "completion_tokens_details": {"reasoning_tokens": 8}}}

    (reply,), _ = run(answer, Generate(prompt=TURNS, decoding=SHORT))
    assert (gens(reply)[0].text, gens(reply)[0].degraded) == ("Rome", ())


def test_a_thought_that_the_template_opens_is_no_answer_when_it_is_cut() -> None:
    """A fake of R1: once its closing tag was seen, a cut text without it is a thought; a whole text is an answer."""
    texts = iter([("a</think>Rome", "stop"), ("Paris? Perhaps", "length"), ("Oslo", "stop")])

    def answer(path: str, body: dict[str, Any]) -> Answer:
        text, finish = next(texts)
        return chat(text, finish=finish)

    replies, _ = run(answer, Generate(prompt=TURNS, decoding=SHORT), n=3)
    assert [gens(reply)[0].text for reply in replies] == ["Rome", "", "Oslo"]
    assert gens(replies[1])[0].degraded == (NO_THINKING, NO_ROOM)


@pytest.mark.parametrize(
    ("thinking", "fields", "max_tokens"),
    [
        ("off", {"chat_template_kwargs": {"enable_thinking": False}}, 8),
        ("on", {"chat_template_kwargs": {"enable_thinking": True}}, 8 + ROOM),
        (50, {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 50}, 58),
    ],
)
def test_thinking_is_a_field_of_the_request_and_a_setting_of_the_run(thinking: Thinking, fields: dict[str, Any], max_tokens: int) -> None:
    asked = Generate(prompt=TURNS, decoding=dataclasses.replace(SHORT, thinking=thinking))
    by_setting: dict[str, Any] = {"thinking": thinking}
    for call, options in ((asked, dict[str, Any]()), (Generate(prompt=TURNS, decoding=SHORT), by_setting)):
        _, server = run(lambda path, body: chat("Rome"), call, VLLM, **options)
        assert fields.items() <= server.bodies[0].items()
        assert server.bodies[0]["max_tokens"] == max_tokens


@pytest.mark.parametrize("before", ["", "<think>Paris? No.</think>"])
def test_room_for_thoughts_is_not_for_the_answer(before: str) -> None:
    """A model that does not think, or briefly, must not write a longer answer for it."""
    answer = "Rome is the capital of Italy, and has been so for a long time."
    (reply,), _ = run(lambda path, body: chat(before + answer), Generate(prompt=TURNS, decoding=SHORT), thinking="on")
    assert (gens(reply)[0].text, gens(reply)[0].finish) == ("Rome is the capital of Italy,", "length")


def test_room_for_a_checkpoint_s_thoughts_is_not_for_its_answer(tiny: TransformersEngine, tiny_llama: Path) -> None:
    """The tiny Llama does not think; its bytes are other tokens when they are read again, so that their number is not exact."""
    call = Generate(prompt=(Message("user", "The river"),), decoding=SHORT)
    (reply,) = TransformersEngine(str(tiny_llama), options=EngineOptions(thinking="on")).run([call])
    (gen,) = gens(reply)
    assert isinstance(reply, Reply)
    assert tiny.count_tokens(gen.text) < 20 < reply.completion_tokens
    assert gen.finish == "length"


def test_room_for_thoughts_leaves_room_for_the_prompt() -> None:
    """Of a context of 800 tokens, thoughts get a quarter; a server that tells its context by a refusal is asked again."""
    known = {"/v1/models": {"data": [{"id": "fake", "owned_by": "vllm", "max_model_len": 800}]}}
    _, server = run(lambda path, body: chat("Rome"), Generate(prompt=TURNS, decoding=SHORT), known, thinking="on")
    assert [body["max_tokens"] for body in server.bodies] == [208]

    def refuse(path: str, body: dict[str, Any]) -> Answer:
        return chat("Rome") if body["max_tokens"] < 700 else refusal("This model's maximum context length is 800 tokens.")

    (reply,), server = run(refuse, Generate(prompt=TURNS, decoding=SHORT), thinking="on")
    assert gens(reply)[0].text == "Rome"
    assert server.bodies[-1]["max_tokens"] == 208


@pytest.mark.parametrize(
    ("model", "asked"), [("Qwen3-8B", True), ("qwen3:8b", True), ("Qwen3-4B-Instruct-2507", False), ("Qwen2.5", False)]
)
def test_qwen3_at_a_server_without_a_field_is_asked_in_its_own_words(model: str, *, asked: bool) -> None:
    server = FakeServer(lambda path, body: chat("Rome"))
    with fake_serving(server) as url:
        llm = OpenAIHttp(model, url, options=FAST)
        llm.run([Generate(prompt=TURNS), Generate(prompt=TURNS, decoding=Decoding(thinking="on"))])
        llm.close()
    ends = sorted(body["messages"][-1]["content"].endswith(" /no_think") for body in server.bodies)
    assert ends == [False, asked]


def test_yes_or_no_of_a_model_that_thinks_is_its_word_after_the_thought() -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        tops = [{"token": "<think>", "logprob": -0.01}]
        logprobs = {"content": [{**tops[0], "top_logprobs": tops}]} if body.get("logprobs") else None
        is_short = body["max_tokens"] < 100
        return chat("<think>" if is_short else "<think>Hm.</think>No.", finish="length" if is_short else "stop", logprobs=logprobs)

    (first, second), server = run(answer, AskYesNo(prompt=TURNS), n=2)
    for reply in (first, second):
        assert isinstance(reply.result, YesNo)
        assert (reply.result.p_positive, reply.result.p_negative) == (0.0, 1.0)
    assert [bool(body.get("logprobs")) for body in server.bodies] == [True, False, False]


def test_fields_of_the_user_are_sent_and_merged_and_a_refusal_of_them_is_final() -> None:
    extra = parse_extra_body(['chat_template_kwargs={"thinking": false}', "reasoning_effort=low", "top_k=7"])
    assert extra == {"chat_template_kwargs": {"thinking": False}, "reasoning_effort": "low", "top_k": 7}
    _, server = run(lambda path, body: chat("Rome"), Generate(prompt=TURNS), VLLM, extra_body=extra)
    assert server.bodies[0]["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert (server.bodies[0]["reasoning_effort"], server.bodies[0]["top_k"]) == ("low", 7)
    refused = FakeServer(lambda path, body: refusal("Unrecognized request argument supplied: 'reasoning_effort'"))
    with fake_serving(refused) as url:
        model = OpenAIHttp("fake", url, options=dataclasses.replace(FAST, extra_body=extra))
        (error,) = model.run([Generate(prompt=TURNS)])
        model.close()
    assert "reasoning_effort" in str(error)
    assert len(refused.bodies) == 1


@pytest.mark.parametrize("assignment", ["a", "=1", "messages=[]", "n=2"])
def test_fields_that_are_none_are_refused(assignment: str) -> None:
    with pytest.raises(InputError):
        parse_extra_body([assignment])


def test_ways_of_thinking_are_parsed() -> None:
    assert [parse_thinking(text) for text in ("off", "on", "300")] == ["off", "on", 300]
    for text in ("", "0", "-1", "maybe"):
        with pytest.raises(InputError, match="give off, on, or"):
            parse_thinking(text)


THINKING_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if FORCED or enable_thinking %}<think>{% endif %}{% endif %}"
)


def thinking_llama(folder: Path, *, forced: bool) -> Path:
    """Save a tiny Llama whose template opens a thought, always or if thinking is on."""
    save_tiny_llama(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = THINKING_TEMPLATE.replace("FORCED", "true" if forced else "false")
    tokenizer.save_pretrained(folder)
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    return folder


def test_a_checkpoint_whose_template_opens_a_thought_gets_room(tmp_path: Path) -> None:
    """Its text without a closing tag is a thought. With thinking off, an obedient template opens none."""
    torch.manual_seed(0)
    forced, obeying = (thinking_llama(tmp_path / str(forced), forced=forced) for forced in (True, False))
    call = Generate(prompt=(Message("user", "The river"),), decoding=SHORT)
    cases = ((forced, "off", True), (obeying, "off", False), (obeying, "on", True))
    for folder, thinking, thinks in cases:
        (reply,) = TransformersEngine(str(folder), options=EngineOptions(thinking=thinking)).run([call])  # type: ignore[arg-type]
        (gen,) = gens(reply)
        assert isinstance(reply, Reply)
        assert (reply.completion_tokens > 8) == thinks
        assert (gen.reasoning is not None) == thinks
        assert (NO_ROOM in gen.degraded) == thinks
        assert bool(gen.text) != thinks


def test_stop_texts_end_a_checkpoint_s_answer_and_not_its_thought(tmp_path: Path) -> None:
    text = "It is\nso</think>Rome\nParis"
    schema = Choice((text,))
    engine = TransformersEngine(str(thinking_llama(tmp_path / "llama", forced=True)))
    call = Generate(prompt=(Message("user", "The river"),), decoding=Decoding(max_tokens=60, stop=("\n",)), schema=schema)
    gen = gens(engine.run([call])[0])[0]
    assert (gen.text, gen.reasoning, gen.finish) == ("Rome", "It is\nso", "stop")


def test_thoughts_are_kept_in_the_trace_and_the_setting_in_the_run(idx: Command, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "1", "question": "Which city?"}\n', encoding="utf-8")
    with fake_serving(FakeServer(thinker)) as url:
        llm = ("--llm", f"openai:fake@{url}")
        assert "thought: Paris?" in idx("ask", "direct", "Which city?", *llm, "--trace")
        idx("run", "direct", "--questions", questions, *llm, "--thinking", "200", "--extra-body", "top_k=3", "--out", tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert (settings["thinking"], settings["extra_body"]) == (200, {"top_k": 3})
    (line,) = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    assert [step["result"][0]["reasoning"] for step in json.loads(line)["steps"]] == ["Paris?\nNo."]
