"""The teacher's samples, read as the method reads them; a sample that cannot be a target yields a reason."""

from __future__ import annotations

from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.self_reasoning import SelfReasoningOptions
from wikidx.runtimes.methods.self_reasoning.checks import cited_text, label_of, place_of
from wikidx.runtimes.methods.self_reasoning.fields import fields_of
from wikidx.runtimes.methods.self_reasoning.trajectory import Trajectory, parse_trajectory
from wikidx.runtimes.training.base import Collected

from .asking import method_options
from .options import SelfReasoningAsking
from .tasks import Task


class Sample(NamedTuple):
    """A question, its documents, and a whole trajectory.

    Attributes:
        collected: its question and replies.
        task: the question's.
        documents: as shown to the teacher.
        fields: the trajectory, name -> value, in the order of the output.
    """

    collected: Collected
    task: Task
    documents: tuple[Passage, ...]
    fields: dict[str, Any]

    @property
    def is_negative(self) -> bool:
        """True if the documents are another question's."""
        return bool(self.collected.detail["is_negative"])

    @property
    def graded_text(self) -> str:
        """The answer in the form that the method returns: a long answer on one line, citations as ``[n]``."""
        if self.task == "long":
            return cited_text(self.fields["analysis"], len(self.documents)).text
        return str(self.fields["answer"])


def read_sample(collected: Collected, asking: SelfReasoningAsking) -> Sample | str:
    """Return the sample, or the reason why there is none: "cut off", "unreadable", "incomplete"."""
    task: Task = collected.detail["task"]
    if collected.detail["is_cut"]:
        return "cut off"
    options = method_options(asking, task, 0)
    wanted = fields_of(options)
    trajectory = parse_trajectory(collected.record["answer"], wanted, options.max_citations)
    if trajectory.parse == "none":
        return "unreadable"
    documents = collected.passages
    fields = _whole_fields(trajectory, documents, options)
    return "incomplete" if fields is None else Sample(collected, task, documents, fields)


def _whole_fields(trajectory: Trajectory, documents: tuple[Passage, ...], options: SelfReasoningOptions) -> dict[str, Any] | None:
    """Return the fields as requested by the prompt; None if one is missing or unreadable."""
    whole = trajectory._asdict()
    whole["relevance"] = [{**one._asdict(), "document": _number(one.document, documents)} for one in trajectory.relevance]
    whole["cite_list"] = [{**one._asdict(), "cite": _number(one.cite, documents)} for one in trajectory.cite_list]
    if options.task == "fever":
        label, is_read = label_of(trajectory.answer)
        whole["answer"] = label if is_read else ""
    fields = {name: whole[name] for name in fields_of(options)}
    items = [value for item in (*fields.get("relevance", ()), *fields["cite_list"]) for value in item.values()]
    texts = [value for name, value in fields.items() if name != "cite_list"]
    return None if any(value in (None, "", []) for value in (*items, *texts)) else fields


def _number(said: str, documents: tuple[Passage, ...]) -> int | None:
    """Return the number of a document named by its title or number; a number out of range is returned unchanged."""
    place = place_of(said, documents)
    if place is not None:
        return place + 1
    return int(said) if said.isdecimal() and said.isascii() and 0 < len(said) < 5 else None
