"""Replies as a run's file holds them, without a run."""

from __future__ import annotations

import json
from typing import Any

from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.base import Example, Response


def make_response(question: Question, answer: Answer, name: str = "nq") -> Response:
    """A question and the answer of the method that asked, by way of JSON."""
    record = {
        "answer": answer.text,
        "passages": [passage._asdict() for passage in answer.passages],
        "detail": dict(answer.detail),
        "error": None,
    }
    return Response(name, question, json.loads(json.dumps(record)))


def targets(examples: list[Example]) -> list[str]:
    return [example.messages[-1].content for example in examples]


def field_of(examples: list[Example], name: str) -> list[Any]:
    return [example.provenance[name] for example in examples]


def check_lines(some: list[dict[str, Any]]) -> None:
    """Check that lines meet the requirements of TRL, LLaMA-Factory, and the package ``datasets``, which reads a file as one table."""
    for line in some:
        assert set(line) == {"messages", "id", "provenance"}
        roles = [message["role"] for message in line["messages"]]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2), roles
        assert all(set(message) == {"role", "content"} and message["content"].strip() for message in line["messages"])
        for value in line["provenance"].values():
            assert isinstance(value, str | bool | int | float) or all(isinstance(item, str) for item in value)
    assert len({line["id"] for line in some}) == len(some)
    assert len({tuple((name, type(value)) for name, value in line["provenance"].items()) for line in some}) == 1
