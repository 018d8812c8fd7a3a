"""Thoughts: their spellings, room for them, and their removal from answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.llms.calling import SHORT, TURNS, gens, one, opened, result_of
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving, refusal
from wikidx.runtimes.llms.base import AskYesNo, Gen, Generate, Reply, YesNo
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.thinking import NO_ROOM, NO_THINKING, ROOM, finish_text, opens_thought, split_thinking


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


def thinker(path: str, body: dict[str, Any]) -> Answer:
    """Think for a hundred tokens before an answer, whatever is asked for; a fake of a server without a parser of thoughts."""
    return chat("<think>Paris?", finish="length") if body["max_tokens"] < 100 else chat("<think>Paris?\nNo.</think>Rome\nIndeed.")


def test_a_model_that_thinks_all_the_same_is_asked_again_with_room_and_keeps_it() -> None:
    call = Generate(prompt=TURNS, decoding=Decoding(max_tokens=8, stop=("\n",)))
    with opened(thinker) as (model, server):
        replies = [model.run([call])[0] for _ in range(2)]
    for reply in replies:
        assert (gens(reply)[0].text, gens(reply)[0].reasoning) == ("Rome", "Paris?\nNo.")
    assert [body["max_tokens"] for body in server.bodies] == [8, 8 + ROOM, 8 + ROOM]
    assert ["stop" in body for body in server.bodies] == [True, False, False]  # a stop text would end the thought
    assert [reply.prompt_tokens for reply in replies if isinstance(reply, Reply)] == [6, 3]


def test_all_calls_of_the_first_batch_get_room() -> None:
    """They are on their way before the first reply shows that the model thinks."""
    with opened(thinker) as (model, _):
        replies = model.run([Generate(prompt=f"{number}?", decoding=SHORT) for number in range(12)])
    assert {gens(reply)[0].text for reply in replies} == {"Rome\nIndeed."}


@pytest.mark.parametrize(("text", "notes"), [("<think>Paris?", (NO_THINKING, NO_ROOM)), ("", (NO_ROOM,))])
def test_an_answer_that_is_empty_because_of_its_length_says_so(text: str, notes: tuple[str, ...]) -> None:
    with opened(chat(text, finish="length")) as (model, _):
        gen = one(model)
    assert (gen.text, gen.degraded) == ("", notes)


THOUGHT = {"completion_tokens_details": {"reasoning_tokens": 8}}


@pytest.mark.parametrize(
    ("content", "fields", "usage", "reasoning"),
    [
        ("", {"reasoning_content": "Paris?"}, {}, "Paris?"),
        (None, {"reasoning": "Paris?"}, {}, "Paris?"),
        ("", {}, THOUGHT, ""),  # gpt-5 tells the number of its thoughts' tokens alone
    ],
)
def test_thoughts_apart_from_the_text_are_read(content: str | None, fields: dict[str, str], usage: dict[str, Any], reasoning: str) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        status, said = chat(content, finish="length", **fields) if body["max_tokens"] < 100 else chat("Rome", **fields)
        return status, {**said, "usage": usage}

    with opened(answer) as (model, server):
        gen = one(model)
    assert (gen.text, gen.reasoning) == ("Rome", reasoning)
    assert len(server.bodies) == 2


def test_a_thought_that_the_template_opens_is_no_answer_when_it_is_cut() -> None:
    """A fake of R1: once its closing tag was seen, a cut text without it is a thought; a whole text is an answer."""
    texts = iter([("a</think>Rome", "stop"), ("Paris? Perhaps", "length"), ("Oslo", "stop")])

    def answer(path: str, body: dict[str, Any]) -> Answer:
        text, finish = next(texts)
        return chat(text, finish=finish)

    with opened(answer) as (model, _):
        found = [one(model) for _ in range(3)]
    assert [gen.text for gen in found] == ["Rome", "", "Oslo"]
    assert found[1].degraded == (NO_THINKING, NO_ROOM)


@pytest.mark.parametrize("before", ["", "<think>Paris? No.</think>"])
def test_room_for_thoughts_is_not_for_the_answer(before: str) -> None:
    """A model that does not think, or briefly, must not write a longer answer for it."""
    with opened(before + "Rome is the capital of Italy, and has been so for a long time.", thinking="on") as (model, _):
        gen = one(model)
    assert (gen.text, gen.finish) == ("Rome is the capital of Italy,", "length")


def test_room_for_thoughts_leaves_room_for_the_prompt() -> None:
    """A server that tells its context by a refusal is asked again: of 800 tokens, thoughts get a quarter."""

    def refuse(path: str, body: dict[str, Any]) -> Answer:
        return chat("Rome") if body["max_tokens"] < 700 else refusal("This model's maximum context length is 800 tokens.")

    with opened(refuse, thinking="on") as (model, server):
        assert one(model).text == "Rome"
    assert server.bodies[-1]["max_tokens"] == 208


def test_yes_or_no_of_a_model_that_thinks_is_its_word_after_the_thought() -> None:
    tops = [{"token": "<think>", "logprob": -0.01}]
    scored = {"content": [{**tops[0], "top_logprobs": tops}]}

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if body["max_tokens"] > 100:
            return chat("<think>Hm.</think>No.")
        return chat("<think>", finish="length", logprobs=scored if body.get("logprobs") else None)

    with opened(answer) as (model, server):
        found = [result_of(model.run([AskYesNo(prompt=TURNS)])[0], YesNo) for _ in range(2)]
    assert [(yes_no.p_positive, yes_no.p_negative) for yes_no in found] == [(0.0, 1.0)] * 2
    assert [bool(body.get("logprobs")) for body in server.bodies] == [True, False, False]


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
