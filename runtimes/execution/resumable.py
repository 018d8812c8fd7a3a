"""Resumable runs in a folder, the common part of ``idx run`` and ``idx train-data``."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.base.progress import Progress, silent
from wikidx.runtimes.llms.naming import find_backend
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import Question, Selection

from .dispatching import Services
from .executor import execute
from .identity import questions_digest, session
from .opening import Plan, describe, open_services
from .results import Cost, Prediction, prediction_to_json
from .runs import RunLog, check_query_encoders, check_settings, open_run

REPLIES = "replies.sqlite"
_IN_FLIGHT, _CPU_IN_FLIGHT = 64, 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run.

    Attributes:
        seed: seed of the run, from which the seeds of sampling calls are derived.
        in_flight: maximum number of concurrent questions; None: what suits the models (``_suitable_in_flight``).
        with_steps: whether every request and result is recorded.
        retry_failed: whether failed questions are asked again.
    """

    seed: int = 0
    in_flight: int | None = None
    with_steps: bool = True
    retry_failed: bool = False


class RunSummary(NamedTuple):
    """The outcome of starting or resuming a run.

    Attributes:
        settings: all settings that affect the results.
        errors: errors of all failed questions, including those of earlier starts.
        cost: total cost of the questions asked in this start.
        degraded: fallbacks for capabilities that models lack, once per question asked in this start.
        models: the models that answered in this start, as their endpoints name them.
        yes_no_masses: total probabilities of the two answers, for each yes/no question asked in this start.
        seconds: duration of this start, without the opening of the models.
    """

    settings: Mapping[str, Any]
    errors: list[str]
    cost: Cost
    degraded: list[str]
    models: list[str]
    yes_no_masses: list[float]
    seconds: float


class ResumableRun(NamedTuple):
    """A run that answers batches of questions, and resumes after an interruption.

    Attributes:
        plan: models, search, and the options of the methods.
        batches: methods, each with its questions; question ids are unique over all batches.
        extra_settings: further settings that affect the results, as JSON values, such as the checksum of the questions.
        options: seed, concurrency and recording.
    """

    plan: Plan
    batches: Sequence[tuple[Method, Sequence[Question]]]
    extra_settings: Mapping[str, Any]
    options: RunOptions

    @property
    def questions(self) -> list[Question]:
        """The questions of all batches."""
        return [question for _, questions in self.batches for question in questions]

    def settings(self) -> dict[str, Any]:
        """Return all settings that affect the results, as JSON values; raises as ``describe`` does."""
        return {**self.extra_settings, **describe(self.plan), "seed": self.options.seed, "steps": self.options.with_steps}

    def run(
        self,
        folder: Path,
        *,
        services: Services | None = None,
        cache: Path | None = None,
        source: Mapping[str, str | None] | None = None,
        progress: Progress = silent,
    ) -> RunSummary:
        """Ask the remaining questions, and write each prediction immediately.

        Args:
            folder: folder of a new run, or of the run to resume.
            services: opened models and searcher, which stay open; None: those of the plan are opened.
            cache: file for replies of models; None: ``REPLIES`` in the folder.
            source: source of the questions, for the record of this start.
            progress: called with the numbers of finished and of all questions.

        Raises:
            InputError: the folder holds a run with other settings, or with queries in another precision.
            IdxError: a model or the search cannot be opened.
        """
        settings = self.settings()
        sessions = check_settings(folder, settings)  # first, because opening the models may take long
        opening = open_services(self.plan, cache=cache or folder / REPLIES) if services is None else contextlib.nullcontext(services)
        with opening as opened:
            in_flight = self.options.in_flight or _suitable_in_flight(self.plan, opened)
            session_record = {**session(), "in_flight": in_flight, "questions": len(self.questions), "source": source}
            if query_encoders := getattr(opened.searcher, "query_encoders", None):
                check_query_encoders(folder, sessions, query_encoders)
                session_record["query_encoders"] = query_encoders
            with open_run(folder, settings, session_record) as log:
                return self._ask(settings, opened, log, in_flight, progress)

    def _ask(self, settings: Mapping[str, Any], services: Services, log: RunLog, in_flight: int, progress: Progress) -> RunSummary:
        started, known = time.monotonic(), {question.id: question for question in self.questions}
        todo = {name for name in known if name not in log.done or (self.options.retry_failed and log.done[name] is not None)}
        n_done = len(known) - len(todo)
        if n_done:
            logger.info("asked before: %s of %s questions", f"{n_done:,}", f"{len(known):,}")
        progress(n_done, len(known))
        cost, degraded, masses = Cost(), list[str](), list[float]()
        for prediction in self._answer(todo, services, in_flight):
            record = prediction_to_json(prediction, with_steps=self.options.with_steps)
            log.append({**record, "golden_answers": known[prediction.id].golden_answers})
            cost = Cost(*map(sum, zip(cost, prediction.cost, strict=True)))
            degraded += prediction.degraded
            masses += prediction.yes_no_masses
            log.models.update(prediction.models)
            n_done += 1
            progress(n_done, len(known))
        log.order = list(known)
        errors = [error for name in known if (error := log.done[name]) is not None]
        return RunSummary(settings, errors, cost, degraded, sorted(log.models), masses, time.monotonic() - started)

    def _answer(self, todo: Set[str], services: Services, in_flight: int) -> Iterator[Prediction]:
        for method, questions in self.batches:
            chosen = (question for question in questions if question.id in todo)
            ask = lambda text, run=method.run: run(text, self.plan.options)  # noqa: E731 - bound to this method
            yield from execute(ask, chosen, services, in_flight=in_flight, seed=self.options.seed)


def answering_run(
    plan: Plan, questions: Sequence[Question], selection: Selection, options: RunOptions, *, limit: int | None = None
) -> ResumableRun:
    """Return the run of a method on the first ``limit`` of the selected questions; all of them are part of the run's settings."""
    digest = questions_digest([(question.id, question.text, question.golden_answers) for question in questions])
    settings = {"questions": {"sha256": digest, "n": len(questions), **selection.to_json()}}
    return ResumableRun(plan, [(plan.method, questions[:limit])], settings, options)


def _suitable_in_flight(plan: Plan, services: Services) -> int:
    """Return four questions for each concurrent call of an endpoint, so that long ones begin early; a batch's worth on a CPU."""
    if concurrency := max((llm.capabilities.concurrency or 0 for llm in services.llms.values()), default=0):
        return max(_IN_FLIGHT, 4 * concurrency)
    if any(find_backend(spec.backend).kind == "checkpoint" for spec in plan.specs().values()):
        from wikidx.base.machine.devices import encoder_device, resolve_device

        return _CPU_IN_FLIGHT if resolve_device(encoder_device(plan.device)) == "cpu" else _IN_FLIGHT
    return _IN_FLIGHT
