"""Predictions as JSON."""

from __future__ import annotations

import json

import pytest

from tests.runtimes.methods.driving import passages
from tests.runtimes.test_executor import CountingSearcher
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import prediction_to_json
from wikidx.runtimes.llms.base import Choice, Decoding, Gen, Message, TokenIds
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


FOUND = [{"id": text, "title": f"T {text}", "score": 1.0} for text in ("who?", "more")]
STEPS: list[dict[str, object]] = [
    {
        "depth": 0,
        "path": ["first"],
        "request": "retrieve",
        "queries": ["who?", "more"],
        "k": 1,
        "merge": "rrf",
        "dedup": None,
        "result": FOUND,
    },
    {
        "depth": 1,
        "path": [],
        "request": "generate",
        "role": "answer",
        "prompt": [{"role": "user", "content": "x"}],
        "decoding": {"max_tokens": 3, "temperature": 0.0, "top_p": 1.0, "stop": ["\n"]},
        "n": 1,
        "schema": {"Choice": ["a", "b"]},
        "logprobs": True,
        "result": [{"text": "a", "finish": "stop", "mean_nll": 2.0, "degraded": []}],
        "tokens": [1, 1],
    },
    {
        "depth": 2,
        "path": [],
        "request": "yes_no",
        "role": "judge",
        "prompt": [1, 2],
        "words": [["yes"], ["no"]],
        "result": {"p_positive": 0.25, "p_negative": 0.75, "degraded": [], "score": 0.25},
        "tokens": [2, 1],
    },
    {
        "depth": 3,
        "path": [],
        "request": "nll",
        "role": "answer",
        "prompt": "p",
        "continuation": "q r",
        "result": {"total": 4.0, "n_tokens": 2, "degraded": [], "mean": 2.0},
        "tokens": [1, 0],
    },
    {"depth": 4, "path": [], "note": "ünïcode", "data": {"kept": [1]}},
    {"depth": 4, "path": [], "request": "truncate", "role": "answer", "text": "a b c", "max_tokens": 1, "keep": "start", "result": "a"},
    {"depth": 4, "path": [], "request": "look_up", "title": "T", "result": [{"id": "1", "title": "T1"}]},
]


def test_every_kind_of_step_is_told() -> None:
    llm = ScriptedLLM([Gen(text="a", logprobs=(-1.0, -3.0)), 0.25, 2.0])
    services = Services(llms={"answer": llm, "judge": llm}, searcher=CountingSearcher(), look_up_title=lambda title: passages("t"))
    (prediction,) = execute(everything, [Question("1", "who?")], services)
    result = json.loads(json.dumps(prediction_to_json(prediction)))
    steps = result.pop("steps")
    timing = result.pop("timing")
    assert timing["reused"] == 0
    assert timing["service"] == pytest.approx(sum(step.get("seconds", 0) for step in steps), abs=1e-5)
    assert 0 < timing["service"] <= timing["seconds"]
    assert result == {
        "id": "1",
        "question": "who?",
        "answer": "é",
        "error": None,
        "passages": [
            {"id": "who?", "title": "T who?", "text": "text of who?"},
            {"id": "more", "title": "T more", "text": "text of more"},
        ],
        "detail": {"tree": {"depth": 1}},
        "degraded": [],
        "cost": {"calls": 3, "prompt_tokens": 4, "completion_tokens": 2, "searches": 1, "queries": 2, "depth": 5},
        "yes_no": {"asked": 1, "mass": 1.0},
        "replies": {"texts": 1, "cut": 0, "empty": 0},
    }
    assert [step.pop("seconds", 0) > 0 for step in steps] == [step.get("request") not in (None, "truncate") for step in STEPS]
    assert steps == STEPS
    assert "steps" not in prediction_to_json(prediction, with_steps=False)


def test_a_failure_is_told() -> None:
    async def ask(question: str) -> Answer:
        return Answer((await generate(question)).text)

    (prediction,) = execute(ask, [Question("1", "who?")], Services(llms={"answer": ScriptedLLM([])}))
    result = prediction_to_json(prediction)
    message = "LLMError: the script has 0 answers, and there is one more call, of role 'answer': 'who?'"
    assert (result["error"], result["steps"][0]["error"]) == (message, message)
    assert "result" not in result["steps"][0]
