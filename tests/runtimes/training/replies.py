"""Replies as a run's file holds them, without a run, and trajectories of Self-Reasoning, for the tests of training data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.by_models.nli import Pair
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.base import Example, Response
from wikidx.runtimes.training.self_reasoning.samples import Sample, read_sample
from wikidx.runtimes.training.self_reasoning.teacher import CollectOptions


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


BYRON = Passage("b", "Lord Byron", "George Gordon Byron was an English poet. His only legitimate child was Ada Lovelace.")
LONDON = Passage("l", "London", "London is a city on the Thames.")
SHORT = Question("s", "Who was Ada's father?", ("Lord Byron",))
LONG = Question("g", "Whose child was Ada?", gold={"answer_groups": [["Byron"], ["Annabella"]]})
CLAIM = Question("c", "Ada was Byron's child.", ("SUPPORTS",), {"label": "SUPPORTS"})

FIELDS: Mapping[str, Any] = {
    "relevant": True,
    "relevant_reason": "It names her “father”.",
    "cite_list": [{"cite": 1, "cite_content": "His only legitimate child was Ada Lovelace.", "reason_for_cite": "It names him."}],
    "analysis": "Ada was Byron's child.",
    "answer": "Lord Byron",
}


def trajectory(**changes: Any) -> str:  # noqa: ANN401 - any field
    """A trajectory as a teacher would write it; a field changed to ... is left out."""
    return json.dumps({name: value for name, value in {**FIELDS, **changes}.items() if value is not ...}, ensure_ascii=False)


def reply(question: Question, task: str, text: str, *, negative: bool = False, cut: bool = False) -> Response:
    """A teacher's reply, the documents being Byron and London."""
    detail = {"task": task, "documents_of": "Else?" if negative else question.text, "is_negative": negative, "is_cut": cut}
    return make_response(question, Answer(text, (BYRON, LONDON), detail))


def sample(
    question: Question,
    task: str,
    *,
    negative: bool = False,
    options: CollectOptions | None = None,
    **changes: Any,  # noqa: ANN401
) -> Sample:
    """A sample with some fields changed."""
    read = read_sample(reply(question, task, trajectory(**changes), negative=negative), options or CollectOptions())
    assert isinstance(read, Sample), read
    return read


class Containing:
    """Takes a premise to entail a hypothesis that stands in it, in lower case and without the full stop."""

    def __init__(self) -> None:
        self.n_pairs = 0

    def metadata(self) -> dict[str, Any]:
        return {"model": "containment"}

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        self.n_pairs += len(pairs)
        return [pair.hypothesis.lower().strip(" .") in pair.premise.lower() for pair in pairs]
