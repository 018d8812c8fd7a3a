"""Builders of a method's training data: they ask models, then make examples from the replies.

The two phases are separate. Asking is slow and its replies are stored; making is fast and is repeated each time. Hence two sets of
options: those of *asking*, which must be unchanged for a run to be resumed, and those of *making*, which may differ each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.llms.base import Chat
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import Question

from .sets import QuestionSet

Provenance = Mapping[str, str | int | float | bool | Sequence[str]]


class Example(NamedTuple):
    """A training example, one line of a file in the chat format that TRL and LLaMA-Factory read.

    Attributes:
        id: unique in its file.
        messages: the conversation; the last turn, the assistant's, is the target.
        provenance: where it comes from, one flat object with the same names and types in all examples of a file, which the ``datasets``
            package needs to read a file as one table.
    """

    id: str
    messages: Chat
    provenance: Provenance

    def to_json(self) -> dict[str, Any]:
        """Return the example as JSON values."""
        messages = [{"role": message.role, "content": message.content} for message in self.messages]
        return {"messages": messages, "id": self.id, "provenance": dict(self.provenance)}


class Collected(NamedTuple):
    """A question and the replies of models, as in a line of ``predictions.jsonl``."""

    set: str
    question: Question
    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The question's id, unique over all sets."""
        return f"{self.set}/{self.question.id}"

    @property
    def detail(self) -> Mapping[str, Any]:
        """The findings of the builder."""
        detail: Mapping[str, Any] = self.record["detail"]
        return detail

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The retrieved passages, in the order in which they were read."""
        return tuple(Passage(**passage) for passage in self.record["passages"])


class Tally(NamedTuple):
    """Counts of examples kept by kind and dropped by rule."""

    kept: Counter[str]
    dropped: Counter[str]

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        n_kept = self.kept.total()
        return {"in": n_kept + self.dropped.total(), "kept": n_kept, "kinds": dict(self.kept), "dropped": dict(self.dropped)}


class Made(NamedTuple):
    """The files and their counts.

    Attributes:
        files: name -> examples.
        tallies: name -> counts.
    """

    files: Mapping[str, list[Example]]
    tallies: Mapping[str, Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A builder of a method's training data.

    Attributes:
        name: the method's.
        summary: one line for people.
        source: the paper.
        asking, making: the options; no name is in both.
        draw: (sets, asking, seed) -> the questions to ask.
        method: (a set, seed) -> the method that asks the models about the set's questions; its options are ``asking``.
        make: (replies, asking, making, seed, citation scorer for long answers) -> files.
        about: name of a file -> one line on what it is.
        check: (drawn sets, asking, making) -> nothing; raises ``InputError``, before anything is asked, if files could not be made.
        citations: (drawn sets, asking, making, device) -> citation scorer for long answers; None: there are none. Raises ``IdxError``
            before anything is asked if there is no such model; the model is opened on first use.
    """

    name: str
    summary: str
    source: str
    asking: type[Any]
    making: type[Any]
    draw: Callable[[Sequence[QuestionSet], Any, int], list[QuestionSet]]
    method: Callable[[QuestionSet, int], Method]
    make: Callable[[Sequence[Collected], Any, Any, int, RowMetric | None], Made]
    about: Mapping[str, str]
    check: Callable[[Sequence[QuestionSet], Any, Any], None]
    citations: Callable[[Sequence[QuestionSet], Any, Any, str], RowMetric | None]
