"""What a method is: a generator function over a question, its options, and the roles whose models it asks.

Every option is a *switch*: a field that says whether its default is the paper's own ("paper") or ours where the paper is silent
("proposed"). They are recorded with every run, and checked here, for all methods: see ``check``.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from corpora.errors import InputError
from corpora.passage import Passage
from retrievers.base import ScoredPassage

from .requests import Run


class Answer(NamedTuple):
    """What a method returns.

    Attributes:
        text: the answer.
        passages: those that the answer rests on, in the order in which they were read.
        detail: what else the method has found out (verdicts, sub-questions, citations), in values that JSON has.
    """

    text: str
    passages: tuple[Passage, ...] = ()
    detail: Mapping[str, Any] = {}


def passages_of(ranking: Iterable[ScoredPassage]) -> tuple[Passage, ...]:
    """Return a ranking's passages, best first."""
    return tuple(hit.passage for hit in ranking)


Origin = Literal["paper", "proposed"]


def switch(
    default: Any,  # noqa: ANN401 - as dataclasses.field
    origin: Origin,
    about: str,
    *,
    choices: tuple[Any, ...] = (),
    least: float = 0,
    most: float | None = None,
) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Declare an option of a method. Its type is the field's: a truth value, a number, a text, several texts.

    Args:
        default: its value unless it is set.
        origin: "paper" if the paper says so, "proposed" if it is our reading.
        about: one line for people.
        choices: the values that it may have; none: any.
        least: the least value, if it is a number.
        most: the greatest value, if it is a number; None: there is none.
    """
    return field(default=default, metadata={"origin": origin, "about": about, "choices": choices, "least": least, "most": most})


class Options(Protocol):
    """A frozen dataclass whose fields are switches."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


class Switch(NamedTuple):
    """An option of a method, with the value that it has."""

    name: str
    value: Any
    default: Any
    origin: Origin
    about: str
    choices: tuple[Any, ...]
    least: float
    most: float | None


def switches(options: Options) -> list[Switch]:
    """Return a method's options with their values, in the order in which they are declared."""
    return [
        Switch(name=field.name, value=getattr(options, field.name), default=field.default, **field.metadata)
        for field in dataclasses.fields(options)
    ]


def check(options: Options) -> None:
    """Check every option's type, and its value against its choices or its bounds.

    Raises:
        InputError: one is wrong; the message names it, its value and what it may be.
    """
    types_ = _types(type(options))
    for one in switches(options):
        said = f"the option '{one.name}' is {one.value!r}: "
        if not _is_a(one.value, types_[one.name]):
            raise InputError(f"{said}it must be {_TYPES.get(types_[one.name], f'of the type {types_[one.name]}')}")
        if one.choices and one.value not in one.choices:
            raise InputError(f"{said}it can be {', '.join(map(str, one.choices))}")
        if isinstance(one.value, int | float) and not one.value >= one.least:  # a NaN is no number to go by
            raise InputError(f"{said}it must be at least {one.least:g}")
        if one.most is not None and one.value > one.most:
            raise InputError(f"{said}it must be at most {one.most:g}")


_TYPES: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "a tuple of texts",
}


@functools.cache
def _types(options: type[Options]) -> dict[str, Any]:
    return typing.get_type_hints(options)


def _is_a(value: object, type_: Any) -> bool:  # noqa: ANN401 - a type, as annotations have it
    """Tell whether a value is of an annotation's type; a whole number is a number, a truth value is none."""
    if typing.get_origin(type_) is tuple:
        return isinstance(value, tuple) and all(_is_a(item, typing.get_args(type_)[0]) for item in value)
    if isinstance(type_, types.UnionType):
        return any(_is_a(value, one) for one in typing.get_args(type_))
    if type_ in (int, float):
        return isinstance(value, int if type_ is int else int | float) and not isinstance(value, bool)
    return isinstance(value, type_)


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
        options: its dataclass of switches.
        run: (question, options) -> generator. Holds no model, retriever or state of its own. As an attribute of the method it checks the
            options before anything is asked: ``InputError`` (see ``check``).
        presets: dataset or "default" -> what the paper searched in.
    """

    name: str
    summary: str
    source: str
    roles: tuple[str, ...]
    options: type[Any]
    run: Callable[[str, Any], Run[Answer]]
    presets: Mapping[str, Preset] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Have ``run`` check the options: Python code may make them by hand, and a mistyped choice must not pass for another."""
        object.__setattr__(self, "run", _checking(self.run))


def _checking(run: Callable[[str, Any], Run[Answer]]) -> Callable[[str, Any], Run[Answer]]:
    @functools.wraps(run)
    def checked(question: str, options: Options) -> Run[Answer]:
        check(options)
        return run(question, options)

    return checked
