"""Builders of training data for a method.

A builder has two phases, each with its own options. The first phase collects replies from the models and stores the replies. It is slow,
and can be resumed only with the same collect options. The second phase builds the examples from the stored replies. It is fast and is
repeated in every run, so its build options may change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.llms.prompts import Chat
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import Question

from .sets import QuestionSet

Provenance = Mapping[str, str | int | float | bool | Sequence[str]]


class Example(NamedTuple):
    """A training example, one line of a file in the chat format that TRL and LLaMA-Factory read.

    Attributes:
        id: unique within the file.
        messages: the conversation; the assistant's last turn is the target.
        provenance: the example's origin, a flat object. Its names and types are the same in all examples of a file, as the ``datasets``
            package requires.
    """

    id: str
    messages: Chat
    provenance: Provenance

    def to_json(self) -> dict[str, Any]:
        """Return the example as JSON values."""
        messages = [message.to_json() for message in self.messages]
        return {"messages": messages, "id": self.id, "provenance": dict(self.provenance)}


class Response(NamedTuple):
    """A question and the models' replies.

    Attributes:
        set: name of the question's set.
        question: the question.
        record: the question's line in ``predictions.jsonl``.
    """

    set: str
    question: Question
    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The question's id, unique across all sets."""
        return f"{self.set}/{self.question.id}"

    @property
    def detail(self) -> Mapping[str, Any]:
        """The data that the builder's method recorded for the question."""
        detail: Mapping[str, Any] = self.record["detail"]
        return detail

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The retrieved passages, in the order in which the model read them."""
        return tuple(Passage(**passage) for passage in self.record["passages"])


class Tally(NamedTuple):
    """Numbers of kept examples by kind, and of dropped examples by rule."""

    kept: Counter[str]
    dropped: Counter[str]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        n_kept = self.kept.total()
        return {"in": n_kept + self.dropped.total(), "kept": n_kept, "kinds": dict(self.kept), "dropped": dict(self.dropped)}


class Dataset(NamedTuple):
    """The training files, and the numbers of kept and dropped examples.

    Attributes:
        files: file name without extension -> examples.
        tallies: file or filter -> numbers of examples.
    """

    files: Mapping[str, list[Example]]
    tallies: Mapping[str, Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A builder of a method's training data.

    Attributes:
        name: the method's name.
        summary: a one-line description for display.
        source: the paper.
        collect_options, build_options: the two option types, which have no option name in common.
        draw: (sets, collect options, seed) -> the sets with the questions to ask.
        method: (set, seed) -> the method that asks the models about the set's questions. Its options are ``collect_options``.
        build: (responses, collect options, build options, seed, citation scorer for long answers) -> dataset.
        descriptions: file name without extension -> one-line description.
        check: (drawn sets, collect options, build options) -> None. Called before any request; raises ``InputError`` if the files cannot be
            built.
        citation_scorer: (drawn sets, collect options, build options, device) -> citation scorer; None if no set has long answers. Called
            before any request; raises ``IdxError`` if the model is unknown. The model is loaded on first use.
    """

    name: str
    summary: str
    source: str
    collect_options: type[Any]
    build_options: type[Any]
    draw: Callable[[Sequence[QuestionSet], Any, int], list[QuestionSet]]
    method: Callable[[QuestionSet, int], Method]
    build: Callable[[Sequence[Response], Any, Any, int, RowMetric | None], Dataset]
    descriptions: Mapping[str, str]
    check: Callable[[Sequence[QuestionSet], Any, Any], None]
    citation_scorer: Callable[[Sequence[QuestionSet], Any, Any, str], RowMetric | None]
