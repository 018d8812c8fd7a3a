"""Methods: a generator function over a question, its options, and the roles whose models it asks.

Every option says whether its default is the paper's own ("paper") or ours where the paper is silent ("proposed"). Options are recorded
with every run, and checked when they are made: see ``corpora.validation.options``.
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
    """Declare an option of a method, a field of a dataclass made by ``corpora.validation.options``.

    Args:
        default: its value unless it is set.
        origin: "paper" if the paper says so, "proposed" if it is our reading.
        about: one line for people.
        least: the least value, if it is a number.
        most: the greatest value, if it is a number; None: there is none.
    """
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    bounds: dict[str, Any] = {"ge": least, "le": most} if is_number else {}
    return cast("T", Field(default, description=about, json_schema_extra={"origin": origin}, **bounds))


class Option(NamedTuple):
    """An option of a method, with the value that it has."""

    name: str
    value: Any
    default: Any
    origin: Origin
    about: str
    choices: tuple[Any, ...]
    least: float | None
    most: float | None


def list_options(options: Any) -> list[Option]:  # noqa: ANN401 - of any method
    """Return a method's options with their values, in the order in which they are declared."""
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
    """A corpus, a retriever and search options, as ``SearchOptions`` names them, that a paper used."""

    corpus: str
    retriever: str
    search: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method as the command line and the executor know it.

    Attributes:
        name: its name; also the folder of its prompts.
        summary: one line for people.
        source: the paper.
        roles: the roles whose models it asks, the first being the one that answers.
        options: the dataclass of its options.
        run: (question, options) -> generator. Holds no model, retriever or state of its own.
        presets: dataset or "default" -> what the paper searched in.
        takes_questions: options that take the texts of all the questions of a file, unless they are set -> the option that wants them.
    """

    name: str
    summary: str
    source: str
    roles: tuple[str, ...]
    options: type[Any]
    run: Callable[[str, Any], Run[Answer]]
    presets: Mapping[str, Preset] = field(default_factory=dict)
    takes_questions: Mapping[str, str] = field(default_factory=dict)
