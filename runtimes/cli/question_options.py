"""What commands on questions are told alike: the file, its format, and which of its questions are meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wikidx.runtimes.questions import Question, Selection

_SAMPLE = "sample"

Questions = Annotated[
    str,
    typer.Option(
        help='A file of questions, such as JSON Lines of {"id", "question", "golden_answers"}; or "sample", those on the sample corpus.'
    ),
]
QuestionFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="The file's format, such as flashrag, nq-open, dpr-tsv, triviaqa, hotpotqa, kilt; known by its content unless named.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """How questions are read, and which of them are meant."""

    question_format: QuestionFormat = None
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="Only the questions a paper was evaluated on, such as retrorag-hotpotqa.")
    ] = None
    sample: Annotated[int | None, typer.Option("--sample", min=1, help="Only N questions, drawn at random.")] = None
    sample_seed: Annotated[int, typer.Option("--sample-seed", min=0, help="Of this sample.")] = 0

    def selection(self) -> Selection:
        """Return which questions are meant."""
        from wikidx.runtimes.questions import Selection

        return Selection(self.protocol, self.sample, self.sample_seed)


def asked(named: str, format: str | None, selection: Selection) -> list[Question]:
    """Return the questions that a command is to ask.

    Args:
        named: a file, or "sample".
        format: of the file; None: known by its content.
        selection: which of them.

    Raises:
        InputError, UnknownNameError: as ``read_questions`` and ``select``; or "sample" is given a format.
    """
    from wikidx.corpora.errors import InputError
    from wikidx.runtimes.questions import read_questions, sample_questions, select

    if named != _SAMPLE or Path(named).exists():
        return select(read_questions(Path(named), format), selection)
    if format is not None:
        raise InputError(f"--format {format} is of a file, and there is none called '{_SAMPLE}'")
    return select(sample_questions(), selection)
