"""The questions of a run, which its predictions are joined with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation.predictions import PredictionRow, Predictions
from wikidx.runtimes.evaluation.published import dataset_of
from wikidx.runtimes.execution.identity import questions_digest
from wikidx.runtimes.questions import SAMPLE, Question, Selection, find_questions, select

from . import normalizing


class RunQuestions(NamedTuple):
    """The questions of a run.

    Attributes:
        questions: in order.
        file: the file's name as given by the user or the run; empty: unknown.
        origin: their source, for display.
        n_missing: number of unanswered questions that are unknown because the question file is missing.
    """

    questions: tuple[Question, ...]
    file: str
    origin: str
    n_missing: int = 0

    @property
    def dataset(self) -> str:
        """Name of the data set, as in the papers if known, else the file's name without its suffix."""
        return dataset_of(self.file) or PurePath(self.file).name.partition(".")[0] or "questions"


def run_questions(predictions: Predictions, named: str | None = None, form: str | None = None) -> RunQuestions:
    """Return the questions of a run.

    The source is, in this order: the named file; the file that the run was started with, if it exists unchanged; the predictions
    themselves. Of the run's own file, only the questions selected by the run count (``--protocol``, ``--sample``, ``--limit``), also if
    the file is named, or if a named file has the same questions in another format or with other golds. Of any other file, all count.

    Args:
        predictions: of the run.
        named: a question file, or "sample"; None: the run's own.
        form: the format of the named file; None: detected from the content.

    Raises:
        InputError: no questions can be found, or the run's file has changed since.
    """
    about = predictions.about
    if named is not None:
        found = find_questions(named, form)
        return RunQuestions(_own(found, about, predictions.rows.values()) or tuple(found), named, named)
    source: Mapping[str, Any] = next((session["source"] for session in reversed(about.get("sessions") or ()) if session.get("source")), {})
    file = source.get("file") or ""
    if file and (file == SAMPLE or Path(file).is_file()):
        own = _own(find_questions(file, form or source.get("format")), about)
        if own is None:
            raise InputError(f"{file} holds other questions than those that {predictions.path} was asked: name their file with --questions")
        return RunQuestions(own, file, file)
    if not predictions.told:
        raise InputError(f"{predictions.path} does not tell its questions: name their file with --questions")
    n_asked = _n_asked(about) or len(predictions.told)
    absent = f", as {file} is not here" if file else ""
    return RunQuestions(predictions.told, file, f"the predictions themselves{absent}", max(0, n_asked - len(predictions.told)))


def is_same_text(text: str, other: str) -> bool:
    """Return whether two texts are the same question: data sets share questions with different capitals, spaces and question marks."""
    return normalizing.squad(text) == normalizing.squad(other)


def _own(questions: Sequence[Question], about: Mapping[str, Any], rows: Iterable[PredictionRow] = ()) -> tuple[Question, ...] | None:
    """Return a file's questions selected by a run; None: both the digest and the rows show that the run had other questions."""
    recorded = (about.get("settings") or {}).get("questions") or {}
    drawn = recorded.get("sample") or {}
    try:
        chosen = select(questions, Selection(recorded.get("protocol"), drawn.get("n"), drawn.get("seed") or 0))
    except InputError:  # the file has too few questions for the protocol or the sample
        return None
    is_own = questions_digest([(one.id, one.text, one.golden_answers) for one in chosen]) == recorded.get("sha256")
    is_alike = len(chosen) == recorded.get("n") and _tell(rows, chosen)
    return tuple(chosen[: _n_asked(about)]) if is_own or is_alike else None


def _tell(rows: Iterable[PredictionRow], questions: Iterable[Question]) -> bool:
    """Return whether rows show that they answer these questions: there are rows, and each has the id and text of one."""
    texts = {question.id: question.text for question in questions}
    told = [row.question is not None and row.id in texts and is_same_text(row.question, texts[row.id]) for row in rows]
    return bool(told) and all(told)


def _n_asked(about: Mapping[str, Any]) -> int | None:
    """Return the number of questions of a run's largest session."""
    return max((n for session in about.get("sessions") or () if isinstance(n := session.get("questions"), int)), default=None)
