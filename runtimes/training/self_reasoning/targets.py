"""Training targets of a sample: the trajectory's fields, in stages.

A target is a JSON object on one line, with the fields in prompt order. If the option ``stages`` is "cut", the closing brace is omitted from
a target that lacks the last fields.

In stage 1, the paper masks the output of the second and third processes. In stage 2, the paper masks the output of the third process. The
targets omit masked output instead, which gives the same loss.
"""

from __future__ import annotations

import json
from typing import Literal

from wikidx.runtimes.llms.base import Chat, Message
from wikidx.runtimes.methods.self_reasoning.fields import build_prompt_for, requested_fields
from wikidx.runtimes.training.base import Example

from .options import BuildOptions, CollectOptions
from .samples import Sample
from .teacher import method_options

Stage = Literal["rap", "rap_eap", "rap_eap_tap"]

_RAP, _EAP, _TAP = ("relevant", "relevant_reason", "relevance"), ("cite_list",), ("analysis", "answer")
STAGES: dict[Stage, tuple[str, ...]] = {"rap": _RAP, "rap_eap": (*_RAP, *_EAP), "rap_eap_tap": (*_RAP, *_EAP, *_TAP)}
"""Stage -> the fields in its targets."""
_WITHOUT = {"none": (), "rap": _RAP, "eap": _EAP, "tap": ("analysis",)}
"""Ablated process -> the fields removed with it; the answer is never removed."""


def stages_of(build_options: BuildOptions) -> list[Stage]:
    """Return the stages whose target fields differ from the previous stage's."""
    stages: list[Stage] = []
    learned: set[str] = set()
    for stage, names in STAGES.items():
        fields = set(names) - set(_WITHOUT[build_options.without])
        if fields != learned:
            stages.append(stage)
        learned = fields
    return stages


def stage_example(sample: Sample, stage: Stage, collect_options: CollectOptions, build_options: BuildOptions) -> Example:
    """Return a sample's training example for a stage."""
    names = [name for name in sample.fields if name not in _WITHOUT[build_options.without]]
    learned = [name for name in names if name in STAGES[stage]]
    requested = names if build_options.stages == "cut" else learned
    target = to_json_line(sample, learned)
    if learned != requested:
        target = target.removesuffix("}")
    messages = (*_prompt(sample, requested, collect_options, build_options.prompt_shots), Message("assistant", target))
    return Example(sample.response.id, messages, _provenance(sample, stage))


def plain_example(sample: Sample, collect_options: CollectOptions, build_options: BuildOptions) -> Example:
    """Return a sample's example for the LLaMA2-FT baseline. The target is the answer, preceded by the analysis for long answers."""
    learned = list(_TAP) if sample.task == "long" else ["answer"]
    messages = (*_prompt(sample, learned, collect_options, build_options.prompt_shots), Message("assistant", to_json_line(sample, learned)))
    return Example(sample.response.id, messages, _provenance(sample, "answer"))


def to_json_line(sample: Sample, names: list[str]) -> str:
    """Return the named fields as a JSON object on one line."""
    return json.dumps({name: sample.fields[name] for name in names}, ensure_ascii=False)


def _prompt(sample: Sample, names: list[str], collect_options: CollectOptions, shots: int) -> Chat:
    """Return the method's prompt, reduced to the named fields."""
    described = requested_fields(method_options(collect_options, sample.task, shots))
    fields = {name: described[name] for name in names}
    return build_prompt_for(fields, sample.response.question.text, sample.documents, form=sample.task, shots=shots)


def _provenance(sample: Sample, learned: str) -> dict[str, str | bool | list[str]]:
    return {
        "set": sample.response.set,
        "question_id": sample.response.question.id,
        "question": sample.response.question.text,
        "task": sample.task,
        "learned": learned,
        "negative": sample.is_negative,
        "documents_of": str(sample.response.detail["documents_of"]),
        "documents": [document.id for document in sample.documents],
    }
