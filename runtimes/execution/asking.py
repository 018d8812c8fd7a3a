"""Questions asked in a folder that can be resumed: the common part of ``idx run`` and ``idx train-data``."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.progress import Progress, silent
from wikidx.runtimes.methods.base import Answer, Method
from wikidx.runtimes.methods.requests import Run
from wikidx.runtimes.questions import Question

from .executor import execute
from .identity import session
from .opening import Plan, described, opened
from .results import Cost, Prediction, prediction_json
from .runs import RunLog, open_run, refuse_other_settings
from .wave import Services

REPLIES = "replies.sqlite"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """Options of asking questions.

    Attributes:
        seed: of all random draws.
        in_flight: number of questions open at once.
        with_steps: whether every request and result is recorded.
        retries_failed: whether failed questions are asked again.
    """

    seed: int = 0
    in_flight: int = 64
    with_steps: bool = True
    retries_failed: bool = False


class Asked(NamedTuple):
    """The outcome of a run after one more start.

    Attributes:
        settings: everything that decides the results.
        errors: of all failed questions, from this start and earlier ones.
        cost: of the questions asked in this start.
        degraded: fallbacks for missing capabilities of models, each once per question asked in this start.
        seconds: from the first request to the last answer.
    """

    settings: Mapping[str, Any]
    errors: list[str]
    cost: Cost
    degraded: list[str]
    seconds: float


class Asking(NamedTuple):
    """Questions, and the methods and models that answer them.

    Attributes:
        plan: models, search, and the options of the methods.
        batches: methods, each with its questions; the ids are unique over all.
        about: further JSON values that decide the results, such as the checksum of the questions.
        options: of asking.
    """

    plan: Plan
    batches: Sequence[tuple[Method, Sequence[Question]]]
    about: Mapping[str, Any]
    options: AskOptions

    @property
    def questions(self) -> list[Question]:
        """The questions of all batches."""
        return [question for _, questions in self.batches for question in questions]

    def settings(self) -> dict[str, Any]:
        """Return everything that decides the results, as JSON values; raises as ``described``."""
        context = self.plan.connection.context
        return {**self.about, **described(self.plan), "seed": self.options.seed, "context": context, "steps": self.options.with_steps}

    def run(
        self, folder: Path, *, cache: Path | None = None, source: Mapping[str, str | None] | None = None, progress: Progress = silent
    ) -> Asked:
        """Ask the questions without an answer, and write each answer as it comes.

        Args:
            folder: created, or its run is resumed.
            cache: a file for the replies of endpoints; None: ``REPLIES`` in the folder.
            source: of the questions, for the record of this start.
            progress: called with (questions asked, questions).

        Raises:
            InputError: the folder holds a run with other settings.
            IdxError: a model or the search cannot be opened.
        """
        settings = self.settings()
        refuse_other_settings(folder, settings)  # before models are opened, which may take long
        begun = {**session(), "in_flight": self.options.in_flight, "questions": len(self.questions), "source": source}
        with opened(self.plan, cache=cache or folder / REPLIES) as services, open_run(folder, settings, begun) as log:
            return self._ask(settings, services, log, progress)

    def _ask(self, settings: Mapping[str, Any], services: Services, log: RunLog, progress: Progress) -> Asked:
        started, total = time.monotonic(), len(self.questions)
        retries = self.options.retries_failed
        todo = [(method, [one for one in asked if log.is_open(one.id, retries_failed=retries)]) for method, asked in self.batches]
        n_done = total - sum(len(left) for _, left in todo)
        if log.n_cut:
            logger.info("an unfinished line of %s bytes was cut off: its question is asked again", f"{log.n_cut:,}")
        if n_done:
            logger.info("asked before: %s of %s questions", f"{n_done:,}", f"{total:,}")
        progress(n_done, total)
        costs, degraded = list[Cost](), list[str]()
        for method, left in todo:
            for prediction in self._answer(method, left, services, log):
                costs.append(prediction.cost)
                degraded += prediction.degraded
                n_done += 1
                progress(n_done, total)
        errors = [error for question in self.questions if (error := log.done[question.id]) is not None]
        return Asked(settings, errors, Cost.total(costs), degraded, time.monotonic() - started)

    def _answer(self, method: Method, questions: Sequence[Question], services: Services, log: RunLog) -> Iterator[Prediction]:
        """Yield the outcome of each question once it is written."""
        options, golden = self.options, {question.id: question.golden_answers for question in questions}

        def ask(text: str) -> Run[Answer]:
            return method.run(text, self.plan.options)

        for prediction in execute(ask, questions, services, in_flight=options.in_flight, seed=options.seed):
            log.append({**prediction_json(prediction, with_steps=options.with_steps), "golden_answers": golden[prediction.id]})
            yield prediction
