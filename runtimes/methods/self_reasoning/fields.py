"""The fields of a trajectory, declared once for the prompt, the JSON schema and the demonstrations.

``prompts/self_reasoning/fields.json`` holds the JSON schema of each field. Its section "common" holds the fields that all forms share.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Chat
from wikidx.runtimes.methods.templates import format_passages, load_template, read_prompt

from .options import SelfReasoningOptions

Fields = Mapping[str, Any]
"""Name -> JSON schema with a description, in the order of the output."""


def _load_fields() -> dict[str, Fields]:
    fields: dict[str, Fields] = json.loads(read_prompt("self_reasoning", "fields.json"))
    return fields


def requested_fields(options: SelfReasoningOptions) -> Fields:
    """Return the fields that the options request: relevance (RAP), evidence (EAP), analysis (TAP) and answer."""
    relevance = ["relevant", "relevant_reason"] if options.relevance == "set" else ["relevance"]
    names = relevance * options.rap + ["cite_list"] * options.eap + ["analysis"] * options.tap + ["answer"]
    fields = {**_load_fields()["common"], **_load_fields()[options.form]}
    return {name: fields[name] for name in names}


def build_prompt(question: str, passages: Sequence[Passage], options: SelfReasoningOptions) -> Chat:
    """Return the prompt for a trajectory with the fields that the options request."""
    return build_prompt_for(requested_fields(options), question, passages, form=options.form, shots=options.shots)


def build_prompt_for(fields: Fields, question: str, passages: Sequence[Passage], *, form: str, shots: int) -> Chat:
    """Return the prompt for a trajectory with the given fields; its demonstrations have the same fields."""
    prompt = load_template("self_reasoning", "answer", form)
    demonstrations = tuple({**shot, "output": _select_fields(shot["output"], fields)} for shot in prompt.shots)
    lines = "\n".join(f'- "{name}": {field["description"]}' for name, field in fields.items())
    prompt = dataclasses.replace(prompt, shots=demonstrations)
    return prompt(shots=shots, fields=lines, passages=format_passages(passages), question=question)


def _select_fields(output: str, fields: Fields) -> str:
    whole = json.loads(output)
    return json.dumps({name: whole[name] for name in fields}, ensure_ascii=False)
