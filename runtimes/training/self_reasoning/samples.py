"""Reading of the teacher's samples with the parser of the method ``self_reasoning``."""

from __future__ import annotations

from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.forms import normalize_citations, parse_label
from wikidx.runtimes.methods.self_reasoning import SelfReasoningOptions
from wikidx.runtimes.methods.self_reasoning.checks import find_cited
from wikidx.runtimes.methods.self_reasoning.fields import requested_fields
from wikidx.runtimes.methods.self_reasoning.trajectory import Trajectory, parse_trajectory
from wikidx.runtimes.training.base import Response

from .options import CollectOptions
from .tasks import Task
from .teacher import method_options


class Sample(NamedTuple):
    """A question, its documents, and a complete trajectory.

    Attributes:
        response: the question and the replies.
        task: the question's task.
        documents: the documents shown to the teacher, in order.
        fields: the trajectory, name -> value, in output order.
    """

    response: Response
    task: Task
    documents: tuple[Passage, ...]
    fields: dict[str, Any]

    @property
    def is_negative(self) -> bool:
        """True if the documents were retrieved for another question."""
        return bool(self.response.detail["is_negative"])

    @property
    def graded_text(self) -> str:
        """The answer as the method returns it; a long answer is on one line, with citations as ``[n]``."""
        if self.task == "long":
            return normalize_citations(self.fields["analysis"], len(self.documents)).text
        return str(self.fields["answer"])


def read_sample(response: Response, collect_options: CollectOptions) -> Sample | str:
    """Return the sample in a response, or the reason why the response has none: "cut off", "unreadable" or "incomplete"."""
    task: Task = response.detail["task"]
    if response.detail["is_cut"]:
        return "cut off"
    options = method_options(collect_options, task, 0)
    names = requested_fields(options)
    trajectory = parse_trajectory(response.record["answer"], names, options.max_citations)
    if trajectory.parse == "none":
        return "unreadable"
    documents = response.passages
    fields = _whole_fields(trajectory, documents, options)
    return "incomplete" if fields is None else Sample(response, task, documents, fields)


def _whole_fields(trajectory: Trajectory, documents: tuple[Passage, ...], options: SelfReasoningOptions) -> dict[str, Any] | None:
    """Return the fields that the prompt requests; None if a value is missing or unreadable. Only the list of citations may be empty."""
    values = trajectory._asdict()
    values["relevance"] = [{**item._asdict(), "document": _number(item.document, documents)} for item in trajectory.relevance]
    values["cite_list"] = [{**item._asdict(), "cite": _number(item.cite, documents)} for item in trajectory.cite_list]
    if options.form == "fever":
        label, is_read = parse_label(trajectory.answer)
        values["answer"] = label if is_read else ""
    fields = {name: values[name] for name in requested_fields(options)}
    items = [value for item in (*fields.get("relevance", ()), *fields["cite_list"]) for value in item.values()]
    texts = [value for name, value in fields.items() if name != "cite_list"]
    return None if any(value in (None, "", []) for value in (*items, *texts)) else fields


def _number(name: str, documents: tuple[Passage, ...]) -> int | None:
    """Return the number, from 1, of the document that a title or number names.

    A number that belongs to no document is returned unchanged. Any other name gives None.
    """
    position = find_cited(name, documents)
    if position is not None:
        return position + 1
    return int(name) if name.isdecimal() and name.isascii() and 0 < len(name) < 5 else None
