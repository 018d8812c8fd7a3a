"""Methods: a generator function over a question, its options, and the roles of its models.

Every option states whether its default is the paper's ("paper") or ours where the paper is silent ("proposed"). Options are recorded
with every run, and validated on creation: see ``corpora.validation.options``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, cast

from pydantic import Field, TypeAdapter

from wikidx.corpora.passage import Passage

from .requests import Run

T = TypeVar("T")


class Answer(NamedTuple):
    """The result of a method.

    Attributes:
        text: the answer.
        passages: those that the answer is based on, in the order in which they were read.
        detail: further findings of the method (verdicts, sub-questions, citations), JSON-serialisable.
    """

    text: str
    passages: tuple[Passage, ...] = ()
    detail: Mapping[str, Any] = {}


Origin = Literal["paper", "proposed"]


def option(default: T, origin: Origin, about: str, *, least: float = 0, most: float | None = None) -> T:
    """Declare an option of a method, a field of a dataclass decorated with ``corpora.validation.options``.

    Args:
        default: its default value.
        origin: "paper" if the default is the paper's, "proposed" if it is our reading.
        about: one line of help.
        least: minimum, of a number.
        most: maximum, of a number; None: unbounded.
    """
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    bounds: dict[str, Any] = {"ge": least, "le": most} if is_number else {}
    return cast("T", Field(default, description=about, json_schema_extra={"origin": origin}, **bounds))


class Option(NamedTuple):
    """An option of a method with its value."""

    name: str
    value: Any
    default: Any
    origin: Origin
    about: str
    choices: tuple[Any, ...]
    least: float | None
    most: float | None


def list_options(options: Any) -> list[Option]:  # noqa: ANN401 - of any method
    """Return a method's options with their values, in declaration order."""
    defaults = type(options)()
    return [
        Option(
            name=name,
            value=getattr(options, name),
            default=getattr(defaults, name),
            origin=declared["origin"],
            about=declared["description"],
            choices=tuple(declared.get("enum", ())),
            least=declared.get("minimum"),
            most=declared.get("maximum"),
        )
        for name, declared in TypeAdapter(type(options)).json_schema()["properties"].items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Corpus, retriever and search options of a paper, the latter named as in ``SearchOptions``."""

    corpus: str
    retriever: str
    search: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method as the command line and the executor know it.

    Attributes:
        name: its name; also the folder of its prompts.
        summary: one line of help.
        source: the paper.
        roles: the roles of its models; the first is the one that answers.
        options: the dataclass of its options.
        run: (question, options) -> generator. Holds no model, retriever or state of its own.
        presets: dataset or "default" -> the paper's corpus and retriever.
        takes_questions: option that defaults to the texts of all questions of the file -> the option that requires it.
    """

    name: str
    summary: str
    source: str
    roles: tuple[str, ...]
    options: type[Any]
    run: Callable[[str, Any], Run[Answer]]
    presets: Mapping[str, Preset] = field(default_factory=dict)
    takes_questions: Mapping[str, str] = field(default_factory=dict)
