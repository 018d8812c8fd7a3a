"""Replies as a run's file holds them, without a run."""

from __future__ import annotations

import json
from typing import Any

from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.base import Collected, Example


def collected(question: Question, answer: Answer, name: str = "nq") -> Collected:
    """A question and the answer of the method that asked, by way of JSON."""
    record = {
        "answer": answer.text,
        "passages": [passage._asdict() for passage in answer.passages],
        "detail": dict(answer.detail),
        "error": None,
    }
    return Collected(name, question, json.loads(json.dumps(record)))


def targets(examples: list[Example]) -> list[str]:
    return [example.messages[-1].content for example in examples]


def field_of(examples: list[Example], name: str) -> list[Any]:
    return [example.provenance[name] for example in examples]
