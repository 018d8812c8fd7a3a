"""Collecting of trajectories: the options, the three tasks, and requests to the teacher.

A request is for a whole trajectory from the documents of the question or of another question.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from wikidx.base.errors import InputError
from wikidx.base.validation import options
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.llms.prompts import Decoding, JsonSchema
from wikidx.runtimes.methods.base import Answer, Method, option
from wikidx.runtimes.methods.forms import parse_label
from wikidx.runtimes.methods.requests import generate, retrieve
from wikidx.runtimes.methods.self_reasoning import METHOD, SelfReasoningOptions
from wikidx.runtimes.methods.self_reasoning.fields import build_prompt, requested_fields
from wikidx.runtimes.questions import FEVER_LABELS, Question
from wikidx.runtimes.training.sets import QuestionSet, draw_evenly, key_of

Task = Literal["short", "long", "fever"]

PROGRAM: dict[Task, str] = {"short": "popqa_accuracy", "long": "alce_str_em", "fever": "fever_label_accuracy"}
"""Task -> the paper's metric: accuracy by containment (Mallen et al.), ALCE's EM recall, FEVER's three-class label accuracy."""


@options
class CollectOptions:
    """Options for collecting the teacher's trajectories."""

    samples: int = option(
        10_000, "paper", "maximum number of samples that the teacher writes, drawn as evenly as possible from the sets", minimum=1
    )
    k: int = option(5, "paper", "number of documents of a sample", minimum=1)
    negatives: float = option(
        0.5, "ours", "probability that a sample has the documents of another question; the paper states no share", maximum=1
    )
    shuffle: bool = option(True, "paper", "put the documents in random order")
    form: Literal["gold", "short", "long", "fever"] = option(
        "gold",
        "ours",
        "form of the answers; short: short answers; long: long answers with citations (ASQA); fever: verdicts on claims (FEVER); gold: the "
        "gold data of each set decide (answer groups: long; FEVER's labels: fever; otherwise: short)",
    )
    relevance: Literal["set", "passage"] = option(
        "set", "ours", "set: judge the relevance of all documents together; passage: judge each document"
    )
    structured: bool = option(True, "ours", "constrain the output to the JSON schema of the fields, if the teacher's backend can")
    shots: int = option(1, "ours", "number of demonstrations in the teacher's prompt")
    max_tokens: int = option(2048, "paper", "maximum number of tokens of a trajectory", minimum=1)
    temperature: float = option(0.0, "ours", "temperature of the teacher; the paper states none")


@options
class BuildOptions:
    """Options for building the files from the trajectories."""

    citation_recall: float = option(0.8, "paper", "minimum ALCE citation recall of a long answer (delta_r)", maximum=1)
    citation_precision: float = option(0.8, "paper", "minimum ALCE citation precision of a long answer (delta_p)", maximum=1)
    nli: str = option(
        "true",
        "paper",
        "NLI model that decides whether documents entail a sentence: true (T5-XXL, 11 billion weights), small, hf:REPOSITORY or a folder",
    )
    sentences: Literal["punkt", "simple"] = option(
        "punkt", "paper", "sentence splitter for the citation metrics: punkt (as in ALCE) or simple"
    )
    least_str_em: float = option(
        1.0,
        "ours",
        "minimum STR-EM at which a long answer counts as correct; the paper names the metric, but no minimum",
        maximum=1,
    )
    size: int = option(2000, "paper", "maximum number of examples of a training set, drawn at random from the kept samples", minimum=1)
    stages: Literal["asked", "cut"] = option(
        "asked",
        "ours",
        "prompts and targets of the first two stages; asked: the prompt requests only the stage's fields, and the target is a complete "
        "JSON object; cut: the prompt requests all fields, and the target ends after the stage's fields. cut is the paper's mask, except "
        "for the end of turn that trainers append",
    )
    without: Literal["none", "rap", "eap", "tap"] = option(
        "none",
        "paper",
        "process that no stage learns (w/o RAP, w/o EAP, w/o TAP); set the method's option of this name to false",
    )
    prompt_shots: int = option(
        0, "ours", "number of demonstrations in the training prompts; set the method's option 'shots' to the same value"
    )


def task_of(question: Question) -> Task:
    """Return a question's task, from its gold data."""
    if "answer_groups" in question.gold:
        return "long"
    return "fever" if question.gold.get("label") in FEVER_LABELS else "short"


def task_of_set(question_set: QuestionSet, task: Task | Literal["gold"]) -> Task:
    """Return the task of a set: ``task`` itself or, if ``task`` is "gold", the task that the gold data imply.

    Raises:
        InputError: the gold data imply several tasks.
    """
    if task != "gold":
        return task
    tasks = {task_of(question): question.id for question in question_set.questions}
    if len(tasks) > 1:
        (first, one_id), (second, other_id), *_ = tasks.items()
        raise InputError(
            f"the set '{question_set.name}' has questions of several tasks, '{one_id}' is {first} and '{other_id}' {second}: split it, or "
            "set form"
        )
    return next(iter(tasks), "short")


def score_of(task: Task, text: str, question: Question) -> float | None:
    """Return an answer's score by the task's metric; None without gold data. For a long answer, ``text`` is the analysis."""
    if not has_gold(task, question):
        return None
    return METRICS[PROGRAM[task]].score(parse_label(text)[0] if task == "fever" else text, question)


def has_gold(task: Task, question: Question) -> bool:
    """Return whether a question has the gold data that the task's metric needs."""
    golds = {"short": question.golden_answers, "long": question.gold.get("answer_groups"), "fever": question.gold.get("label")}
    return bool(golds[task])


def method_options(collect_options: CollectOptions, task: Task, shots: int) -> SelfReasoningOptions:
    """Return the options of the method ``self_reasoning`` that correspond to the collect options."""
    return SelfReasoningOptions(
        k=collect_options.k,
        form=task,
        max_tokens=collect_options.max_tokens,
        temperature=collect_options.temperature,
        relevance=collect_options.relevance,
        structured=collect_options.structured,
        shots=shots,
    )


async def trajectory(question: str, collect_options: CollectOptions, question_set: QuestionSet, seed: int) -> Answer:
    """Ask the teacher for a trajectory.

    The option ``negatives`` is the probability that the documents are retrieved for another question of the set. Seed and question
    determine all random choices.
    """
    rng = random.Random(f"{seed}:{question}")
    is_negative = rng.random() < collect_options.negatives
    source = other_question(question, question_set.others, rng) if is_negative else question
    documents = await retrieve(source, collect_options.k)
    if collect_options.shuffle:
        documents = tuple(rng.sample(documents, len(documents)))
    options = method_options(collect_options, task_of_set(question_set, collect_options.form), collect_options.shots)
    reply = await generate(
        build_prompt(question, documents, options),
        Decoding(max_tokens=collect_options.max_tokens, temperature=collect_options.temperature),
        role="teacher",
        schema=JsonSchema.of_fields(requested_fields(options)) if collect_options.structured else None,
    )
    detail = {"task": options.form, "documents_of": source, "is_negative": is_negative, "is_cut": reply.finish == "length"}
    return Answer(reply.text, documents, detail)


def other_question(question: str, others: Sequence[str], rng: random.Random) -> str:
    """Draw a question whose key differs from the given question's.

    Raises:
        InputError: no such question is drawn.
    """
    own = key_of(question)
    for _ in range(len(others) + 20):  # ``others`` has each question once, so a few draws suffice
        other = rng.choice(others)
        if key_of(other) != own:
            return other
    raise InputError(
        f"another question's documents are wanted, and there is none but '{question:.80}': add questions, or --set negatives=0"
    )


def draw(sets: Sequence[QuestionSet], collect_options: CollectOptions, seed: int) -> list[QuestionSet]:
    """Draw at most ``samples`` questions in total, as evenly as possible from the sets."""
    return draw_evenly(sets, collect_options.samples, seed)


def make_method(question_set: QuestionSet, seed: int) -> Method:
    """Return the method that asks the teacher about a set's questions."""

    async def run(question: str, collect_options: CollectOptions) -> Answer:
        return await trajectory(question, collect_options, question_set, seed)

    return replace(METHOD, summary="write trajectories for training", roles=("teacher",), options=CollectOptions, run=run)
