"""Method: an ``async`` function with its options and the roles of its models.

Every option and every prompt file states its origin (``templates.ORIGINS``). Options are validated on creation
(``base.validation.options``) and recorded with every run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from pydantic import Field, TypeAdapter

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage

from .requests import OLD_METHOD
from .templates import OWN_PROMPTS, Origin, Prompts

T = TypeVar("T")

RENAMED = {"answer_form": "form", "task": "form", "form=answer": "output=answer", "form=cot": "output=cot"}
"""Earlier names of options, and of their values -> the names now."""


class Answer(NamedTuple):
    """The result of a method.

    Attributes:
        text: the answer.
        passages: the evidence of the answer, in reading order.
        detail: further results of the method (verdicts, sub-questions, citations), as JSON values.
    """

    text: str
    passages: tuple[Passage, ...] = ()
    detail: Mapping[str, Any] = {}


def option(default: T, origin: Origin, description: str, *, minimum: float = 0, maximum: float | None = None) -> T:
    """Declare an option of a method: a field of a dataclass with the decorator ``base.validation.options``.

    Args:
        default: the default value.
        origin: the origin of the default.
        description: one line of help.
        minimum: the smallest value of a numeric option.
        maximum: the largest value of a numeric option; None: unbounded.
    """
    is_number = default is None or (isinstance(default, int | float) and not isinstance(default, bool))
    bounds: dict[str, Any] = {"ge": minimum, "le": maximum} if is_number else {}
    return cast("T", Field(default, description=description, json_schema_extra={"origin": origin}, **bounds))


class Option(NamedTuple):
    """An option of a method with its value."""

    name: str
    value: Any
    default: Any
    origin: Origin
    description: str
    choices: tuple[Any, ...]
    minimum: float | None
    maximum: float | None


def list_options(options: Any) -> list[Option]:  # noqa: ANN401 - of any method
    """Return a method's options with their values, in declaration order."""
    defaults = type(options)()
    return [
        Option(
            name=name,
            value=getattr(options, name),
            default=getattr(defaults, name),
            origin=declared["origin"],
            description=declared["description"],
            choices=tuple(declared.get("enum", ())),
            minimum=declared.get("minimum"),
            maximum=declared.get("maximum"),
        )
        for name, declared in TypeAdapter(type(options)).json_schema()["properties"].items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Corpus, retriever and search options of a paper.

    Attributes:
        search: field of ``SearchOptions`` -> value.
    """

    corpus: str
    retriever: str
    search: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method and its description.

    Attributes:
        name: the name, which is also the folder of the prompts: that of a plug-in's prompts lies beside its file.
        summary: one line of help.
        source: the paper, or the origin of a baseline.
        roles: the roles of the models; the first role answers.
        options: the dataclass of the options.
        run: ``async`` function: (question, options) -> answer.
        presets: name of a data set, or "default" -> preset.
        demonstrated: options -> prompts that a question with its answer demonstrates, so that demonstrations can be drawn from a file.
        parts: other methods that this one runs, with their prompts.
        prompts: replaced prompts and drawn demonstrations; ``prompt_sets.with_prompts`` sets them.
    """

    plugin_kind: ClassVar[str] = "method"

    name: str
    summary: str
    source: str
    roles: tuple[str, ...]
    options: type[Any]
    run: Callable[[str, Any], Coroutine[Any, Any, Answer]]
    presets: Mapping[str, Preset] = field(default_factory=dict)
    demonstrated: Callable[[Any], tuple[str, ...]] = lambda options: ()
    parts: tuple[str, ...] = ()
    prompts: Prompts = OWN_PROMPTS

    def __post_init__(self) -> None:
        """Refuse a generator function."""
        if inspect.isgeneratorfunction(self.run):
            raise InputError(OLD_METHOD.format(f"the method '{self.name}' is a generator function"))

    def question_texts(self, assigned: Collection[str], questions: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the values of options that take the texts of all questions: ``noise_questions``, if the user sets ``noise``."""
        return {"noise_questions": tuple(questions)} if "noise" in assigned else {}
