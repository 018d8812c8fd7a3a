"""Options of commands that read questions: file, format, and selection of questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import questions

if TYPE_CHECKING:
    from wikidx.runtimes.questions import Question, Selection

Questions = Annotated[
    str,
    typer.Option(
        help='A file of questions, such as JSON Lines of {"id", "question", "golden_answers"}; or a set that "idx questions" has fetched, '
        'such as nq or nq:train; "sample": those of the sample corpus.',
        autocompletion=questions,
    ),
]
_FORMAT_HELP = (
    "The file's format, such as flashrag, nq-open, dpr-tsv, triviaqa, hotpotqa, kilt, or a plug-in, FILE.py:NAME; default: detected from "
    "its content."
)


def format_named(text: str | None) -> str | None:
    """Return the name of a format of questions that is given by name or as ``FILE.py:NAME``, whose plug-in is loaded."""
    if text is None:
        return None
    from wikidx.base.plugins import name_of

    return name_of("question_format", text)


QuestionFormat = Annotated[str | None, typer.Option("--format", help=_FORMAT_HELP, callback=format_named)]
ScoredQuestionFormat = Annotated[str | None, typer.Option("--question-format", help=_FORMAT_HELP, callback=format_named)]
"""The same where ``--format`` is that of the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """Options of reading and selecting questions."""

    question_format: QuestionFormat = None
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="Only the questions on which a paper was evaluated, such as retrorag-hotpotqa.")
    ] = None
    sample: Annotated[int | None, typer.Option("--sample", min=1, help="Only a random sample of this many questions.")] = None
    sample_seed: Annotated[int, typer.Option("--sample-seed", min=0, help="Random seed of the sample.")] = 0

    def selection(self) -> Selection:
        """Return protocol, sample and format as a ``Selection``."""
        from wikidx.runtimes.questions import Selection

        return Selection(self.protocol, self.sample, self.sample_seed, self.question_format)

    def read(self, name: str, *, with_passages: bool = False) -> list[Question]:
        """Return the selected questions of a file, a fetched set or "sample"; raises as ``find_questions`` and ``select``."""
        from wikidx.runtimes.questions import find_questions, select

        return select(find_questions(name, self.question_format, with_passages=with_passages), self.selection())
