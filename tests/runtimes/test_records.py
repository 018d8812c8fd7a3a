"""Predictions as JSON: ``record.json`` has one with every kind of step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runtimes.methods.driving import passages
from tests.runtimes.test_executor import CountingSearcher
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import prediction_to_json
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.prompts import Choice, Decoding, Message, TokenIds
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import ask_yes_no, generate, label, look_up_title, mean_nll, note, retrieve, truncate
from wikidx.runtimes.questions import Question


async def everything(question: str) -> Answer:
    with label("first"):
        found = await retrieve([question, "more"], 1, merge="rrf")
    await generate((Message("user", "x"),), Decoding(max_tokens=3, stop=("\n",)), schema=Choice(("a", "b")), logprobs=True)
    await ask_yes_no(TokenIds((1, 2)), role="judge")
    await mean_nll("p", "q r")
    await note("ünïcode", {"kept": [1]})
    await truncate("a b c", 1)
    await look_up_title("T")
    return Answer("é", found, {"tree": {"depth": 1}})


RECORD = json.loads(Path(__file__).with_name("record.json").read_text(encoding="utf-8"))
"""What is written of ``everything``, but for times."""


def test_every_kind_of_step_is_told() -> None:
    llm = ScriptedLLM([Gen(text="a", logprobs=(-1.0, -3.0)), 0.25, 2.0])
    services = Services(llms={"answer": llm, "judge": llm}, searcher=CountingSearcher(), look_up_title=lambda title: passages("t"))
    (prediction,) = execute(everything, [Question("1", "who?")], services)
    result = json.loads(json.dumps(prediction_to_json(prediction)))
    timing = result.pop("timing")
    assert timing["reused"] == 0
    seconds = [step.pop("seconds", 0) for step in result["steps"]]
    assert timing["service"] == pytest.approx(sum(seconds), abs=1e-5)
    assert 0 < timing["service"] <= timing["seconds"]
    assert [one > 0 for one in seconds] == [step.get("request") not in (None, "truncate") for step in RECORD["steps"]]
    assert result == RECORD
    assert "steps" not in prediction_to_json(prediction, with_steps=False)


def test_a_failure_is_told() -> None:
    async def ask(question: str) -> Answer:
        return Answer((await generate(question)).text)

    (prediction,) = execute(ask, [Question("1", "who?")], Services(llms={"answer": ScriptedLLM([])}))
    result = prediction_to_json(prediction)
    message = "LLMError: the script has 0 answers, and there is one more call, of role 'answer': 'who?'"
    assert (result["error"], result["steps"][0]["error"]) == (message, message)
    assert "result" not in result["steps"][0]
