"""Formats of questions by the user's own code: plug-ins of the kind "question_format"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from wikidx.base.errors import InputError
from wikidx.base.plugins import find_plug_in, plug_in_names
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.plugged import checked

from .base import Question
from .formats import FORMATS

KIND = "question_format"
_QUESTION = "Question(id, text, golden_answers): an id and a text that are not empty, and a tuple of texts"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFormat:
    """A format of files of questions in a plug-in. It reads the files for which it is named, and is never detected.

    >>> def read_cards(path):  # such as "Which metal is liquid? | mercury"
    ...     for number, line in enumerate(path.open(encoding="utf-8"), 1):
    ...         text, answer = line.split("|")
    ...         yield Question(str(number), text.strip(), (answer.strip(),))
    >>> CARDS = QuestionFormat(name="cards", questions=read_cards)

    Attributes:
        name: name on the command line and in runs.
        questions: function from a file's path to its questions, each with an id of its own.
    """

    plugin_kind: ClassVar[str] = KIND
    name: str
    questions: Callable[[Path], Iterable[Question]]


def read_own_format(path: Path, name: str, *, with_passages: bool = False) -> list[Question]:
    """Return the questions of a file in the format of a plug-in; see ``read_questions``.

    Raises:
        InputError: the plug-in is no ``QuestionFormat``, its code fails, or it yields no question, something else, or an id twice.
        UnknownNameError: there is no such plug-in.
    """
    plugged = find_plug_in(KIND, name)
    if plugged is None:
        raise unknown_name_error("format", name, [*FORMATS, *plug_in_names(KIND)])
    own = plugged.instance_of(QuestionFormat, "a format of questions is a wikidx.runtimes.questions.QuestionFormat")
    found = dict[str, Question]()
    for question in checked(plugged, lambda: own.questions(path), str(path), (_is_question, _QUESTION)):
        if question.id in found:
            raise InputError(f"{plugged.reference} yields two questions of {path} with the id '{question.id}': give each its own")
        found[question.id] = question if with_passages else question._replace(passages=())
    if not found:
        raise InputError(f"{plugged.reference} finds no questions in {path}")
    return list(found.values())


def _is_question(item: object) -> bool:
    if not isinstance(item, Question):
        return False
    id_, text, answers = tuple[Any, ...](item)[:3]
    are_texts = all(isinstance(value, str) and value.strip() for value in (id_, text))
    return are_texts and isinstance(answers, tuple) and all(isinstance(answer, str) for answer in answers)
