"""The fields of a trajectory: one description of each is used in the prompt, the JSON schema and the demonstrations.

``prompts/self_reasoning/fields.json`` holds them as JSON schemas, those shared by all tasks under "common".
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import Any

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Chat
from wikidx.runtimes.methods.templates import numbered, template

from .options import SelfReasoningOptions

Fields = Mapping[str, Any]
"""Name -> JSON schema with a description, in the order of the output."""


@functools.cache
def _described() -> dict[str, Fields]:
    file = importlib.resources.files("wikidx.runtimes.methods") / "prompts" / "self_reasoning" / "fields.json"
    described: dict[str, Fields] = json.loads(file.read_text(encoding="utf-8"))
    return described


def fields_of(options: SelfReasoningOptions) -> Fields:
    """Return the requested fields: those of the relevance-aware, evidence-aware and analysis processes, and the answer."""
    relevance = ["relevant", "relevant_reason"] if options.relevance == "set" else ["relevance"]
    names = relevance * options.rap + ["cite_list"] * options.eap + ["analysis"] * options.tap + ["answer"]
    described = {**_described()["common"], **_described()[options.task]}
    return {name: described[name] for name in names}


def prompt_of(question: str, passages: Sequence[Passage], options: SelfReasoningOptions) -> Chat:
    """Return the prompt for a trajectory, with demonstrations that have the same fields."""
    return prompt_for(fields_of(options), question, passages, task=options.task, shots=options.shots)


def prompt_for(fields: Fields, question: str, passages: Sequence[Passage], *, task: str, shots: int) -> Chat:
    """Return the prompt for these fields of a trajectory, with demonstrations that have the same fields."""
    asked = template("self_reasoning", task)
    demonstrations = tuple({**shot, "output": _only(shot["output"], fields)} for shot in asked.shots)
    lines = "\n".join(f'- "{name}": {field["description"]}' for name, field in fields.items())
    asked = dataclasses.replace(asked, shots=demonstrations)
    return asked(shots=shots, fields=lines, passages=numbered(passages), question=question)


def _only(output: str, fields: Fields) -> str:
    whole = json.loads(output)
    return json.dumps({name: whole[name] for name in fields}, ensure_ascii=False)
