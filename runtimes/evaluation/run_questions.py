"""Reading of the questions of a run for the evaluation of its predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.predictions import PredictionRow, Predictions
from wikidx.runtimes.evaluation.published import detect_dataset
from wikidx.runtimes.execution.given import GIVEN
from wikidx.runtimes.execution.identity import questions_digest
from wikidx.runtimes.questions import Question, Selection, find_questions, has_questions, select

from . import normalizing


class RunQuestions(NamedTuple):
    """The questions of a run.

    Attributes:
        file: name of the question file, as given by the user or recorded by the run; empty: unknown.
        origin: the source of the questions, for display.
        n_missing: number of questions that the run has not reached and that are unknown because the question file is missing.
    """

    questions: tuple[Question, ...]
    file: str
    origin: str
    n_missing: int = 0

    @property
    def dataset(self) -> str:
        """The data set's name in the papers if known, else the file's name without suffixes."""
        return detect_dataset(self.file) or PurePath(self.file).name.partition(".")[0] or "questions"


def run_questions(predictions: Predictions, name: str | None = None, format: str | None = None) -> RunQuestions:
    """Return the questions of a run.

    The source is the file ``name``. Without a name, it is the question file that the run recorded. If the recorded file is missing, the
    source is the predictions. From the recorded file, only the questions that the run selected (``--protocol``, ``--sample``, ``--limit``)
    are returned. The same applies to a named file with the same questions, even in another format or with other gold answers. From any
    other named file, all questions are returned.

    Args:
        predictions: the run's predictions.
        name: a question file, a published set, or "sample"; None: no named file.
        format: the format of the file; None: detected from the content of a named file, or as the run recorded.

    Raises:
        InputError: no questions can be found, or the recorded file has changed since the run.
    """
    run_json = predictions.run_json
    is_given = ((run_json.get("settings") or {}).get("search") or {}).get("retriever") == GIVEN
    if name is not None:
        questions = find_questions(name, format, with_passages=is_given)
        return RunQuestions(_select_own(questions, run_json, predictions.rows.values()) or tuple(questions), name, name)
    source: Mapping[str, Any] = next(
        (session["source"] for session in reversed(run_json.get("sessions") or ()) if session.get("source")), {}
    )
    file = source.get("file") or ""
    if file and has_questions(file):
        selected = _select_own(find_questions(file, format or source.get("format"), with_passages=is_given), run_json)
        if selected is None:
            raise InputError(f"{file} does not hold the questions of {predictions.path}: name their file with --questions")
        return RunQuestions(selected, file, file)
    if not predictions.questions:
        raise InputError(f"{predictions.path} does not tell its questions: name their file with --questions")
    n_asked = _n_asked(run_json) or len(predictions.questions)
    absent = f", because {file} is missing" if file else ""
    return RunQuestions(predictions.questions, file, f"the predictions{absent}", max(0, n_asked - len(predictions.questions)))


def is_same_text(text: str, other: str) -> bool:
    """Return whether two questions are equal except for capitals, spaces, punctuation and articles."""
    return normalizing.squad(text) == normalizing.squad(other)


def _select_own(
    questions: Sequence[Question], run_json: Mapping[str, Any], rows: Iterable[PredictionRow] = ()
) -> tuple[Question, ...] | None:
    """Return the questions that a run selected from a file.

    Returns None if the file matches neither the recorded digest nor the questions of ``rows``.
    """
    recorded = (run_json.get("settings") or {}).get("questions") or {}
    sample = recorded.get("sample") or {}
    try:
        chosen = select(questions, Selection(recorded.get("protocol"), sample.get("n"), sample.get("seed") or 0))
    except InputError:  # the file has too few questions for the protocol or the sample
        return None
    is_own = questions_digest([(question.id, question.text, question.golden_answers) for question in chosen]) == recorded.get("sha256")
    is_match = len(chosen) == recorded.get("n") and _match(rows, chosen)
    return tuple(chosen[: _n_asked(run_json)]) if is_own or is_match else None


def _match(rows: Iterable[PredictionRow], questions: Iterable[Question]) -> bool:
    """Return whether every row has the id and text of a question; False without rows."""
    texts = {question.id: question.text for question in questions}
    matches = [row.question is not None and row.id in texts and is_same_text(row.question, texts[row.id]) for row in rows]
    return bool(matches) and all(matches)


def _n_asked(run_json: Mapping[str, Any]) -> int | None:
    """Return the number of questions in a run's largest session; None: unknown."""
    return max((n for session in run_json.get("sessions") or () if isinstance(n := session.get("questions"), int)), default=None)
