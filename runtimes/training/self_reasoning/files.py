"""Construction of the files from the teacher's replies: samples, quality control, stages, ablations, baseline.

A target is a JSON object on one line, with the trajectory's fields in prompt order. If the option ``stages`` is "cut", the closing brace is
omitted from a target that lacks the last fields.

In stage 1, the paper masks the output of the second and third processes. In stage 2, the paper masks the output of the third process. The
targets omit masked output instead, which gives the same loss.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.by_models.citations import AlceCitations
from wikidx.runtimes.evaluation.by_models.nli import Checkpoint
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.evaluation.by_models.sentence_splitting import splitter
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.prompts import Chat, Message
from wikidx.runtimes.methods.self_reasoning.fields import build_prompt_for, requested_fields
from wikidx.runtimes.methods.templates import load_template
from wikidx.runtimes.training.base import Dataset, Example, Response, Tally
from wikidx.runtimes.training.sets import QuestionSet

from .samples import Sample, quality_control, read_sample
from .teacher import PROGRAM, BuildOptions, CollectOptions, has_gold, method_options, task_of_set

Stage = Literal["rap", "rap_eap", "rap_eap_tap"]

_RAP, _EAP, _TAP = ("relevant", "relevant_reason", "relevance"), ("cite_list",), ("analysis", "answer")
STAGES: dict[Stage, tuple[str, ...]] = {"rap": _RAP, "rap_eap": (*_RAP, *_EAP), "rap_eap_tap": (*_RAP, *_EAP, *_TAP)}
"""Stage -> the fields in its targets."""
_WITHOUT = {"none": (), "rap": _RAP, "eap": _EAP, "tap": ("analysis",)}
"""Ablated process -> the fields removed with it; the answer is never removed."""
_FILES: dict[Stage, str] = {"rap": "stage1_rap", "rap_eap": "stage2_rap_eap", "rap_eap_tap": "stage3_rap_eap_tap"}
DESCRIPTIONS = {
    "stage1_rap": "gradual learning, stage 1: relevance and its reason",
    "stage2_rap_eap": "gradual learning, stage 2: the fields of stage 1, and the citations",
    "stage3_rap_eap_tap": "gradual learning, stage 3: the fields of stage 2, the analysis and the answer",
    "wo_gl": "w/o gradual learning: the whole trajectories in one stage; the examples of stage 3",
    "wo_qc_stage1_rap": "w/o quality control, stage 1",
    "wo_qc_stage2_rap_eap": "w/o quality control, stage 2",
    "wo_qc_stage3_rap_eap_tap": "w/o quality control, stage 3",
    "llama2_ft": "LLaMA2-FT: documents and question -> answer, without a trajectory",
}


def build(
    responses: Sequence[Response],
    collect_options: CollectOptions,
    build_options: BuildOptions,
    seed: int,
    citation_scorer: RowMetric | None,
) -> Dataset:
    """Build all files: stages with quality control, stages without quality control, the single stage (w/o GL), and the baseline."""
    parsed = [read_sample(response, collect_options) for response in responses]
    samples = [sample for sample in parsed if isinstance(sample, Sample)]
    rules = quality_control(samples, citation_scorer, build_options)
    kept = [sample for sample, rule in zip(samples, rules, strict=True) if rule is None]
    chosen = _draw_at_most(kept, build_options.size, seed, "kept")
    tallies = {
        "readable": Tally(_kinds(samples), Counter(reason for reason in parsed if isinstance(reason, str))),
        "quality control": Tally(_kinds(kept), Counter(filter(None, rules))),
        "size": Tally(_kinds(chosen), Counter({"over the size": len(kept) - len(chosen)})),
    }
    unfiltered = _draw_at_most(samples, len(chosen), seed, "unfiltered")
    stages = stages_of(build_options)
    files = {_FILES[stage]: [stage_example(sample, stage, collect_options, build_options) for sample in chosen] for stage in stages}
    files["wo_gl"] = list(files[_FILES["rap_eap_tap"]])
    files |= {
        f"wo_qc_{_FILES[stage]}": [stage_example(sample, stage, collect_options, build_options) for sample in unfiltered]
        for stage in stages
    }
    files["llama2_ft"] = [plain_example(sample, collect_options, build_options) for sample in chosen]
    return Dataset(files, tallies)


def _kinds(samples: Sequence[Sample]) -> Counter[str]:
    return Counter(f"{sample.task}, {'negative' if sample.is_negative else 'positive'}" for sample in samples)


def _draw_at_most(samples: Sequence[Sample], n: int, seed: int, label: str) -> list[Sample]:
    """Draw at most ``n`` samples at random, and keep their order."""
    positions = sorted(random.Random(f"{seed}:{label}").sample(range(len(samples)), min(n, len(samples))))
    return [samples[position] for position in positions]


def check(sets: Sequence[QuestionSet], collect_options: CollectOptions, build_options: BuildOptions) -> None:
    """Check that training examples can be built.

    Raises:
        InputError: a set has several tasks or no gold data, a set with long answers is built without the analysis (TAP), a set has too few
            questions for negative samples, or there are fewer demonstrations than requested.
    """
    for item in sets:
        task = task_of_set(item, collect_options.form)
        if not any(has_gold(task, question) for question in item.questions):
            raise InputError(f"the set '{item.name}' has no gold for '{PROGRAM[task]}', so that no answer can be judged")
        if task == "long" and build_options.without == "tap":
            raise InputError(f"the set '{item.name}' has long answers, which are the analysis: they cannot be had without TAP")
        load_template("self_reasoning", "answer", task)(shots=build_options.prompt_shots, fields="", passages="", question="")
        if collect_options.negatives and len(item.others) < 2:
            raise InputError(
                f"the set '{item.name}' has one question, and none to take other documents from: add some, or --set negatives=0"
            )


def find_citation_scorer(
    sets: Sequence[QuestionSet], collect_options: CollectOptions, build_options: BuildOptions, device: str
) -> RowMetric | None:
    """Return the citation scorer; None if no set has long answers. The NLI model is loaded on first use.

    Raises:
        IdxError: the NLI model or the sentence splitter is unknown or not available.
    """
    if not any(task_of_set(item, collect_options.form) == "long" for item in sets):
        return None
    return AlceCitations(Checkpoint(build_options.nli, EngineOptions(device=device)), splitter(build_options.sentences))


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
