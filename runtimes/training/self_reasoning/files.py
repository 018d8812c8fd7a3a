"""Construction of the files from the teacher's replies: samples, quality control, stages, ablations, baseline."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.by_models.citations import AlceCitations
from wikidx.runtimes.evaluation.by_models.nli import Checkpoint
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.evaluation.by_models.sentence_splitting import splitter
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.methods.templates import load_template
from wikidx.runtimes.training.base import Dataset, Response, Tally
from wikidx.runtimes.training.sets import QuestionSet

from .options import BuildOptions, CollectOptions
from .quality import quality_control
from .samples import Sample, read_sample
from .targets import Stage, plain_example, stage_example, stages_of
from .tasks import PROGRAM, has_gold, task_of_set

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
