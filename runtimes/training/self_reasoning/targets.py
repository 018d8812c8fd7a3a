"""Training targets of a sample: the trajectory, in stages, as the method ``self_reasoning`` writes and reads it.

The target is a JSON object on one line, fields in the order of the prompt. The paper masks the output of the second and third process in
the first stage, and that of the third in the second; masking a suffix gives the same loss as a target without it.
"""

from __future__ import annotations

import json
from typing import Literal

from wikidx.runtimes.llms.base import Chat, Message
from wikidx.runtimes.methods.self_reasoning.fields import fields_of, prompt_for
from wikidx.runtimes.training.base import Example

from .asking import method_options
from .options import SelfReasoningAsking, SelfReasoningMaking
from .samples import Sample

Stage = Literal["rap", "rap_eap", "rap_eap_tap"]

_RAP, _EAP, _TAP = ("relevant", "relevant_reason", "relevance"), ("cite_list",), ("analysis", "answer")
STAGES: dict[Stage, tuple[str, ...]] = {"rap": _RAP, "rap_eap": (*_RAP, *_EAP), "rap_eap_tap": (*_RAP, *_EAP, *_TAP)}
"""Stage -> the fields that it learns."""
_WITHOUT = {"none": (), "rap": _RAP, "eap": _EAP, "tap": ("analysis",)}
"""An ablated process -> its fields; the answer always stays."""


def stages_of(making: SelfReasoningMaking) -> list[Stage]:
    """Return the stages whose targets differ from the stage before."""
    left: list[Stage] = []
    learned: set[str] = set()
    for stage, names in STAGES.items():
        more = set(names) - set(_WITHOUT[making.without])
        if more != learned:
            left.append(stage)
        learned = more
    return left


def stage_example(sample: Sample, stage: Stage, asking: SelfReasoningAsking, making: SelfReasoningMaking) -> Example:
    """Return a stage's example of a sample."""
    wanted = [name for name in sample.fields if name not in _WITHOUT[making.without]]
    learned = [name for name in wanted if name in STAGES[stage]]
    asked = wanted if making.stages == "cut" else learned
    target = written(sample, learned)
    if learned != asked:
        target = target.removesuffix("}")
    messages = (*_prompt(sample, asked, asking, making.prompt_shots), Message("assistant", target))
    return Example(sample.collected.id, messages, _provenance(sample, stage))


def plain_example(sample: Sample, asking: SelfReasoningAsking, making: SelfReasoningMaking) -> Example:
    """Return the example of the LLaMA2-FT baseline: the answer without a trajectory; for long answers, the analysis is the answer."""
    learned = list(_TAP) if sample.task == "long" else ["answer"]
    messages = (*_prompt(sample, learned, asking, making.prompt_shots), Message("assistant", written(sample, learned)))
    return Example(sample.collected.id, messages, _provenance(sample, "answer"))


def written(sample: Sample, names: list[str]) -> str:
    """Return some fields as a JSON object on one line."""
    return json.dumps({name: sample.fields[name] for name in names}, ensure_ascii=False)


def _prompt(sample: Sample, names: list[str], asking: SelfReasoningAsking, shots: int) -> Chat:
    """Return the method's prompt for some fields; for all fields, it equals the prompt of the method."""
    described = fields_of(method_options(asking, sample.task, shots))
    fields = {name: described[name] for name in names}
    return prompt_for(fields, sample.collected.question.text, sample.documents, task=sample.task, shots=shots)


def _provenance(sample: Sample, learned: str) -> dict[str, str | bool | list[str]]:
    return {
        "set": sample.collected.set,
        "question_id": sample.collected.question.id,
        "question": sample.collected.question.text,
        "task": sample.task,
        "learned": learned,
        "negative": sample.is_negative,
        "documents_of": str(sample.collected.detail["documents_of"]),
        "documents": [document.id for document in sample.documents],
    }
