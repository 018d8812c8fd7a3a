"""What makes a method's training data: what models are asked, and what becomes of their replies.

The two are kept apart. Asking is slow and is written down; making is quick, and is done anew each time. So there are two
sets of switches: those of *asking*, with which alone a run is resumed, and those of *making*, which may change from one time to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.llms.base import Chat
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import Question

from .sets import QuestionSet

Provenance = Mapping[str, str | int | float | bool | Sequence[str]]


class Example(NamedTuple):
    """What a model is trained on once.

    Attributes:
        id: unique in its file.
        messages: the conversation; the last turn, the assistant's, is what is learned.
        provenance: where it comes from, one flat object with the same names and types in all examples of a file.
    """

    id: str
    messages: Chat
    provenance: Provenance


class Collected(NamedTuple):
    """A question and what models replied, as a line of ``predictions.jsonl`` holds it."""

    set: str
    question: Question
    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The question's id, unique over all sets."""
        return f"{self.set}/{self.question.id}"

    @property
    def detail(self) -> Mapping[str, Any]:
        """What the builder has found out."""
        detail: Mapping[str, Any] = self.record["detail"]
        return detail

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What was retrieved, in the order in which it was read."""
        return tuple(Passage(**passage) for passage in self.record["passages"])


@dataclass(slots=True)
class Tally:
    """How many came in, how many of which kind were kept, and how many were dropped by which rule."""

    n_in: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def told(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return {"in": self.n_in, "kept": self.kept.total(), "kinds": dict(self.kept), "dropped": dict(self.dropped)}


class Made(NamedTuple):
    """The files and the figures.

    Attributes:
        files: name -> examples.
        about: name -> one line on what the file is.
        tallies: what is counted -> its figures.
    """

    files: Mapping[str, list[Example]]
    about: Mapping[str, str]
    tallies: Mapping[str, Tally]


class Making(NamedTuple):
    """What making needs beside the replies.

    Attributes:
        options: the builder's switches of making.
        asking: its switches of asking, as the replies were asked for.
        seed: of all that is drawn.
        citations: scores the citations of long answers, as ``AlceCitations`` does; None: nothing does.
    """

    options: Any
    asking: Any
    seed: int
    citations: RowMetric | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """What makes a method's training data.

    Attributes:
        name: the method's.
        summary: one line for people.
        source: the paper.
        asking, making: the switches; no name is in both.
        draw: (sets, asking, seed) -> the questions that are asked.
        method: (a set, seed) -> the method that asks the models about the set's questions; its options are ``asking``.
        make: replies -> files.
        check: (drawn sets, asking, making) -> nothing; raises ``InputError``, before anything is asked, if files could not be made.
        citations: (drawn sets, asking, making, device) -> what scores the citations of long answers; None: there are none. Raises
            ``IdxError``, before anything is asked, if there is no such model, and opens it when it is first asked.
    """

    name: str
    summary: str
    source: str
    asking: type[Any]
    making: type[Any]
    draw: Callable[[Sequence[QuestionSet], Any, int], list[QuestionSet]]
    method: Callable[[QuestionSet, int], Method]
    make: Callable[[Sequence[Collected], Making], Made]
    check: Callable[[Sequence[QuestionSet], Any, Any], None]
    citations: Callable[[Sequence[QuestionSet], Any, Any, str], RowMetric | None]
