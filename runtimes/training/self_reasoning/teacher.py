"""Requests to the teacher, each for a whole trajectory from the documents of the question or of another question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from wikidx.base.errors import InputError
from wikidx.runtimes.llms.base import Decoding, JsonSchema
from wikidx.runtimes.methods.base import Answer, Method
from wikidx.runtimes.methods.requests import Run, generate, retrieve
from wikidx.runtimes.methods.self_reasoning import METHOD, SelfReasoningOptions
from wikidx.runtimes.methods.self_reasoning.fields import build_prompt, requested_fields
from wikidx.runtimes.training.sets import QuestionSet, draw_evenly, key_of

from .options import CollectOptions
from .tasks import Task, task_of_set


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


def trajectory(question: str, collect_options: CollectOptions, question_set: QuestionSet, seed: int) -> Run[Answer]:
    """Ask the teacher for a trajectory.

    The option ``negatives`` is the probability that the documents are retrieved for another question of the set. Seed and question
    determine all random choices.
    """
    rng = random.Random(f"{seed}:{question}")
    is_negative = rng.random() < collect_options.negatives
    source = other_question(question, question_set.others, rng) if is_negative else question
    documents = yield from retrieve(source, collect_options.k)
    if collect_options.shuffle:
        documents = tuple(rng.sample(documents, len(documents)))
    options = method_options(collect_options, task_of_set(question_set, collect_options.form), collect_options.shots)
    reply = yield from generate(
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

    def run(question: str, collect_options: CollectOptions) -> Run[Answer]:
        return trajectory(question, collect_options, question_set, seed)

    return replace(METHOD, summary="write trajectories for training", roles=("teacher",), options=CollectOptions, run=run)
