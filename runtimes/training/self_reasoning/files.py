"""From the teacher's replies to the files: samples, quality control, stages, ablations, baseline."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation.by_models.citations import AlceCitations
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.evaluation.by_models.nli import LazyNLI
from wikidx.runtimes.evaluation.by_models.sentence_splitting import splitter
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.training.base import Collected, Example, Made, Making, Tally
from wikidx.runtimes.training.sets import QuestionSet

from .options import SelfReasoningAsking, SelfReasoningMaking
from .quality import Thresholds, quality_control
from .samples import Sample, read_sample
from .targets import Stage, check_shots, plain_example, stage_example, stages_of
from .tasks import PROGRAM, Graded, graded, set_task

_FILES: dict[Stage, str] = {"rap": "stage1_rap", "rap_eap": "stage2_rap_eap", "rap_eap_tap": "stage3_rap_eap_tap"}
_ABOUT = {
    "stage1_rap": "gradual learning, stage 1: relevance and its reason",
    "stage2_rap_eap": "gradual learning, stage 2: and the citations",
    "stage3_rap_eap_tap": "gradual learning, stage 3: and analysis and answer",
    "wo_gl": "w/o gradual learning: the whole trajectories in one stage; the examples of stage 3",
    "wo_qc_stage1_rap": "w/o quality control, stage 1",
    "wo_qc_stage2_rap_eap": "w/o quality control, stage 2",
    "wo_qc_stage3_rap_eap_tap": "w/o quality control, stage 3",
    "llama2_ft": "LLaMA2-FT: documents and question -> answer, without a trajectory",
}


def make(collected: Sequence[Collected], making: Making) -> Made:
    """Make all files: the three stages of what quality control keeps, the same without it, and the baseline."""
    asking: SelfReasoningAsking = making.asking
    options: SelfReasoningMaking = making.options
    samples, readable = _readable(collected, asking)
    kept, controlled = _controlled(samples, making)
    chosen = _at_most(kept, options.size, making.seed, "kept")
    sized = Tally(len(kept), _kinds(chosen), Counter({"over the size": len(kept) - len(chosen)}))
    unfiltered = samples if options.unfiltered == "all" else _at_most(samples, len(chosen), making.seed, "unfiltered")
    files: dict[str, list[Example]] = {}
    stages = stages_of(options)
    for stage in stages:
        files[_FILES[stage]] = [stage_example(sample, stage, asking, options) for sample in chosen]
    files["wo_gl"] = list(files[_FILES["rap_eap_tap"]])
    for stage in stages:
        files[f"wo_qc_{_FILES[stage]}"] = [stage_example(sample, stage, asking, options) for sample in unfiltered]
    plain = chosen if options.plain_samples == "kept" else samples
    files["llama2_ft"] = [plain_example(sample, asking, options) for sample in plain]
    return Made(files, {name: _ABOUT[name] for name in files}, {"readable": readable, "quality control": controlled, "size": sized})


def _readable(collected: Sequence[Collected], asking: SelfReasoningAsking) -> tuple[list[Sample], Tally]:
    """Return the samples that can be targets; the others are counted by the reason."""
    tally = Tally(len(collected))
    samples: list[Sample] = []
    for one in collected:
        read = read_sample(one, asking)
        if isinstance(read, str):
            tally.dropped[read] += 1
        else:
            samples.append(read)
    tally.kept = _kinds(samples)
    return samples, tally


def _controlled(samples: Sequence[Sample], making: Making) -> tuple[list[Sample], Tally]:
    """Return what Algorithm 1 keeps, and what the switches beyond it leave of that; what is dropped is counted by rule."""
    options: SelfReasoningMaking = making.options

    def program(sample: Sample) -> Graded:
        undecided = sample.task == "fever" and sample.is_negative and options.negative_claims == "undecided"
        question = sample.collected.question
        return graded(sample.task, sample.graded_text, question, undecided=undecided, least_str_em=options.least_str_em)

    least = Thresholds(options.citation_recall, options.citation_precision)
    verdicts = quality_control(samples, program, making.citations, least)
    tally = Tally(len(samples))
    kept: list[Sample] = []
    for sample, verdict in zip(samples, verdicts, strict=True):
        dropped = verdict.dropped or _beyond(sample, options)
        if dropped is None:
            kept.append(sample)
        else:
            tally.dropped[dropped] += 1
    tally.kept = _kinds(kept)
    return kept, tally


def _kinds(samples: Sequence[Sample]) -> Counter[str]:
    return Counter(f"{sample.task}, {'negative' if sample.is_negative else 'positive'}" for sample in samples)


def _beyond(sample: Sample, options: SelfReasoningMaking) -> str | None:
    """Return which rule that Algorithm 1 does not have drops a sample; None: none does."""
    if options.relevant_negatives == "drop" and sample.is_negative and sample.is_relevant:
        return "another question's documents called relevant"
    if options.unverified_snippets == "drop" and not sample.is_verbatim:
        return "snippet not in its document"
    return None


def _at_most(samples: Sequence[Sample], n: int, seed: int, what: str) -> list[Sample]:
    """Draw as many samples at random, in their order; all if there are no more."""
    places = sorted(random.Random(f"{seed}:{what}").sample(range(len(samples)), min(n, len(samples))))
    return [samples[place] for place in places]


def check(sets: Sequence[QuestionSet], asking: SelfReasoningAsking, making: SelfReasoningMaking) -> None:
    """Find what would leave nothing to train on.

    Raises:
        InputError: a set has several tasks, no gold, a single question where another one's documents are wanted, or long answers without
            the process that writes them; or there are fewer demonstrations than prompts shall have.
    """
    for one in sets:
        task = set_task(one, asking.task)
        if not any(_has_gold(task, question.golden_answers, question.gold) for question in one.questions):
            raise InputError(f"the set '{one.name}' has no gold for '{PROGRAM[task]}', so that no answer could be told to be correct")
        if task == "long" and making.without == "tap":
            raise InputError(f"the set '{one.name}' has long answers, which are the analysis: they cannot be had without TAP")
        check_shots(task, making)
        if asking.negatives and len(one.others) < 2:
            raise InputError(
                f"the set '{one.name}' has one question, and none to take other documents from: add some, or --set negatives=0"
            )


def _has_gold(task: str, golden_answers: Sequence[str], gold: Mapping[str, object]) -> bool:
    return bool(golden_answers) if task == "short" else "answer_groups" in gold if task == "long" else "label" in gold


def citations_of(sets: Sequence[QuestionSet], asking: SelfReasoningAsking, making: SelfReasoningMaking, device: str) -> RowMetric | None:
    """Return what scores citations, if any set has long answers; its model is found here, and opened when it is first asked.

    Raises:
        IdxError: there is no such NLI model or splitter.
    """
    if not any(set_task(one, asking.task) == "long" for one in sets):
        return None
    return AlceCitations(LazyNLI(making.nli, EngineOptions(device=device)), splitter(making.sentences))
