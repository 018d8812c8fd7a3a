"""Requests to the teacher: a whole trajectory in one pass, from the question's own documents or another question's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from wikidx.corpora.errors import InputError
from wikidx.runtimes.llms.base import Decoding, JsonSchema
from wikidx.runtimes.methods.base import Answer, Method
from wikidx.runtimes.methods.requests import Run, generate, retrieve
from wikidx.runtimes.methods.self_reasoning import METHOD, SelfReasoningOptions
from wikidx.runtimes.methods.self_reasoning.fields import fields_of, prompt_of
from wikidx.runtimes.training.sets import QuestionSet, drawn_evenly, key_of

from .options import SelfReasoningAsking
from .tasks import Task, set_task


def method_options(asking: SelfReasoningAsking, task: Task, shots: int) -> SelfReasoningOptions:
    """Return the options of the method that writes a trajectory."""
    return SelfReasoningOptions(
        k=asking.k,
        task=task,
        max_tokens=asking.max_tokens,
        temperature=asking.temperature,
        relevance=asking.relevance,
        structured=asking.structured,
        shots=shots,
    )


def trajectory(question: str, asking: SelfReasoningAsking, among: QuestionSet, seed: int) -> Run[Answer]:
    """Ask the teacher for a trajectory; the documents shown depend only on the seed and the question.

    Args:
        question: the question.
        asking: the options.
        among: the question's set; another question is drawn from its ``others``.
        seed: of the draws.
    """
    chance = random.Random(f"{seed}:{question}")
    is_negative = chance.random() < asking.negatives
    source = other_question(question, among.others, chance) if is_negative else question
    documents = yield from retrieve(source, asking.k)
    if asking.shuffle:
        documents = tuple(chance.sample(documents, len(documents)))
    options = method_options(asking, set_task(among, asking.task), asking.shots)
    written = yield from generate(
        prompt_of(question, documents, options),
        Decoding(max_tokens=asking.max_tokens, temperature=asking.temperature),
        role="teacher",
        schema=JsonSchema.of_fields(fields_of(options)) if asking.structured else None,
    )
    detail = {"task": options.task, "documents_of": source, "is_negative": is_negative, "is_cut": written.finish == "length"}
    return Answer(written.text, documents, detail)


def other_question(question: str, others: Sequence[str], chance: random.Random) -> str:
    """Draw a question with another key.

    Raises:
        InputError: there is none.
    """
    own = key_of(question)
    for _ in range(len(others) + 20):  # the set has each question once, so the first or second draw differs
        other = chance.choice(others)
        if key_of(other) != own:
            return other
    raise InputError(
        f"another question's documents are wanted, and there is none but '{question:.80}': add questions, or --set negatives=0"
    )


def draw(sets: Sequence[QuestionSet], asking: SelfReasoningAsking, seed: int) -> list[QuestionSet]:
    """Draw the requested number of questions in total, evenly from the sets."""
    return drawn_evenly(sets, asking.samples, seed)


def method_of(one: QuestionSet, seed: int) -> Method:
    """Return the method that asks the teacher about a set's questions."""

    def run(question: str, asking: SelfReasoningAsking) -> Run[Answer]:
        return trajectory(question, asking, one, seed)

    return replace(METHOD, summary="writes trajectories to train on", roles=("teacher",), options=SelfReasoningAsking, run=run)
