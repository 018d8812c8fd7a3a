"""The tasks: short answers, long ones with citations (ASQA), and verdicts on claims (FEVER)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from wikidx.runtimes.llms.base import Choice

from .checks import LABELS, cited_text, label_of


class Finished(NamedTuple):
    """An answer in the form of its task, whether it could be read, and what else is recorded."""

    text: str
    is_read: bool = True
    record: dict[str, Any] = {}


class Task(NamedTuple):
    """How the answers of a task are read.

    Attributes:
        finish: (what was written, number of passages) -> the answer in the task's form.
        is_analysis: whether the analysis is the answer.
        if_irrelevant: the answer where no passage is relevant; None: that from the model's own knowledge.
        schema: of what another reader answers; None: free.
    """

    finish: Callable[[str, int], Finished]
    is_analysis: bool = False
    if_irrelevant: str | None = None
    schema: Choice | None = None


def _long(text: str, n_passages: int) -> Finished:
    cited = cited_text(text, n_passages)
    return Finished(cited.text, record={"citations": {"cited": cited.cited, "missing": cited.missing}})


TASKS = {
    "short": Task(lambda text, _: Finished(text.strip())),
    "long": Task(_long, is_analysis=True),
    "fever": Task(lambda text, _: Finished(*label_of(text)), if_irrelevant=LABELS[-1], schema=Choice(LABELS)),
}
