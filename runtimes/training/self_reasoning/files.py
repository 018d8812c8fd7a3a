"""From the teacher's replies to the files: samples, quality control, stages, ablations, baseline."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation.by_models.citations import AlceCitations
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.evaluation.by_models.nli import Checkpoint
from wikidx.runtimes.evaluation.by_models.sentence_splitting import splitter
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.methods.templates import template
from wikidx.runtimes.training.base import Collected, Made, Tally
from wikidx.runtimes.training.sets import QuestionSet

from .options import SelfReasoningAsking, SelfReasoningMaking
from .quality import quality_control
from .samples import Sample, read_sample
from .targets import Stage, plain_example, stage_example, stages_of
from .tasks import PROGRAM, has_gold, set_task

_FILES: dict[Stage, str] = {"rap": "stage1_rap", "rap_eap": "stage2_rap_eap", "rap_eap_tap": "stage3_rap_eap_tap"}
ABOUT = {
    "stage1_rap": "gradual learning, stage 1: relevance and its reason",
    "stage2_rap_eap": "gradual learning, stage 2: and the citations",
    "stage3_rap_eap_tap": "gradual learning, stage 3: and analysis and answer",
    "wo_gl": "w/o gradual learning: the whole trajectories in one stage; the examples of stage 3",
    "wo_qc_stage1_rap": "w/o quality control, stage 1",
    "wo_qc_stage2_rap_eap": "w/o quality control, stage 2",
    "wo_qc_stage3_rap_eap_tap": "w/o quality control, stage 3",
    "llama2_ft": "LLaMA2-FT: documents and question -> answer, without a trajectory",
}


def make(
    collected: Sequence[Collected], asking: SelfReasoningAsking, making: SelfReasoningMaking, seed: int, citations: RowMetric | None
) -> Made:
    """Make all files: the three stages with quality control, the same without it, and the baseline."""
    read = [read_sample(one, asking) for one in collected]
    samples = [one for one in read if isinstance(one, Sample)]
    rules = quality_control(samples, citations, making)
    kept = [sample for sample, rule in zip(samples, rules, strict=True) if rule is None]
    chosen = _at_most(kept, making.size, seed, "kept")
    tallies = {
        "readable": Tally(_kinds(samples), Counter(one for one in read if isinstance(one, str))),
        "quality control": Tally(_kinds(kept), Counter(filter(None, rules))),
        "size": Tally(_kinds(chosen), Counter({"over the size": len(kept) - len(chosen)})),
    }
    unfiltered = _at_most(samples, len(chosen), seed, "unfiltered")
    stages = stages_of(making)
    files = {_FILES[stage]: [stage_example(sample, stage, asking, making) for sample in chosen] for stage in stages}
    files["wo_gl"] = list(files[_FILES["rap_eap_tap"]])
    files |= {f"wo_qc_{_FILES[stage]}": [stage_example(one, stage, asking, making) for one in unfiltered] for stage in stages}
    files["llama2_ft"] = [plain_example(sample, asking, making) for sample in chosen]
    return Made(files, tallies)


def _kinds(samples: Sequence[Sample]) -> Counter[str]:
    return Counter(f"{sample.task}, {'negative' if sample.is_negative else 'positive'}" for sample in samples)


def _at_most(samples: Sequence[Sample], n: int, seed: int, what: str) -> list[Sample]:
    """Draw at most this many samples at random, in their order."""
    places = sorted(random.Random(f"{seed}:{what}").sample(range(len(samples)), min(n, len(samples))))
    return [samples[place] for place in places]


def check(sets: Sequence[QuestionSet], asking: SelfReasoningAsking, making: SelfReasoningMaking) -> None:
    """Check that training examples can be made.

    Raises:
        InputError: a set has several tasks, no gold data, only one question although another one's documents are needed, or long answers
            without the process that writes them; or there are fewer demonstrations than requested.
    """
    for one in sets:
        task = set_task(one, asking.task)
        if not any(has_gold(task, question) for question in one.questions):
            raise InputError(f"the set '{one.name}' has no gold for '{PROGRAM[task]}', so that no answer could be told to be correct")
        if task == "long" and making.without == "tap":
            raise InputError(f"the set '{one.name}' has long answers, which are the analysis: they cannot be had without TAP")
        template("self_reasoning", task)(shots=making.prompt_shots, fields="", passages="", question="")
        if asking.negatives and len(one.others) < 2:
            raise InputError(
                f"the set '{one.name}' has one question, and none to take other documents from: add some, or --set negatives=0"
            )


def citations_of(sets: Sequence[QuestionSet], asking: SelfReasoningAsking, making: SelfReasoningMaking, device: str) -> RowMetric | None:
    """Return the citation scorer if any set has long answers; its model is located here and opened on first use.

    Raises:
        IdxError: there is no such NLI model or splitter.
    """
    if not any(set_task(one, asking.task) == "long" for one in sets):
        return None
    return AlceCitations(Checkpoint(making.nli, EngineOptions(device=device)), splitter(making.sentences))
