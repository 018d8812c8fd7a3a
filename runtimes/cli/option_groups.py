"""Commands as functions: from groups of options, dataclasses whose fields typer shows as options, to a result that is printed here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from .completion import words
from .screen import Result, print_result

_AS_JSON = inspect.Parameter(
    "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, typer.Option("--json", help="Print JSON.")]
)


def command(**annotations: Any) -> Callable[[Callable[..., Result | None]], Callable[..., None]]:  # noqa: ANN401 - annotations
    """Make a function a command: typer shows the fields of its dataclass parameters as options, and the result of a call is printed.

    A command that returns a ``Result`` has the option ``--json``, which decides how it is printed.

    A field is annotated with a typer option or with pydantic's ``Field``. A ``Field`` becomes an option with the field's name, such as
    ``--max-k`` for ``max_k`` and ``-k`` for ``k``. The option's help is the first sentence of the field's description.

    Args:
        annotations: field name -> annotation that replaces the field's own. After the typer option, the annotation may hold a function that
            converts the option's value to the field's value.
    """
    return lambda function: _command(function, annotations)


def _command(function: Callable[..., Result | None], annotations: dict[str, Any]) -> Callable[..., None]:
    signature = inspect.signature(function, eval_str=True)
    parameters, has_result = signature.parameters.values(), signature.return_annotation is not None
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in parameters if dataclasses.is_dataclass(parameter.annotation)
    }

    converters = {name: metadata for name, annotation in annotations.items() for metadata in get_args(annotation)[2:]}

    def wrapper(**values: Any) -> None:  # noqa: ANN401 - of any option
        as_json = values.pop(_AS_JSON.name) if has_result else False
        values |= {name: convert(values[name]) for name, convert in converters.items()}
        built = {
            name: type_(**{field.name: values.pop(field.name) for field in dataclasses.fields(type_)}) for name, type_ in groups.items()
        }
        if (result := function(**values, **built)) is not None:
            print_result(result, as_json=as_json)

    shown = [
        option
        for parameter in parameters
        for option in (_parameters(parameter.annotation, annotations) if parameter.name in groups else [parameter])
    ]
    shown += [_AS_JSON] if has_result else []
    wrapper.__signature__ = inspect.Signature([parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in shown])  # type: ignore[attr-defined]
    wrapper.__annotations__, wrapper.__doc__, wrapper.__name__ = {}, function.__doc__, function.__name__
    return wrapper


def _parameters(type_: Any, annotations: dict[str, Any]) -> Iterator[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    types = get_type_hints(type_, include_extras=True) | annotations
    for field in dataclasses.fields(type_):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        annotation = _option(field.name, types[field.name])
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(name: str, annotation: Any) -> Any:  # noqa: ANN401 - annotations
    """Return the typer annotation of a field."""
    type_, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    field = next((item for item in metadata if isinstance(item, FieldInfo)), None)
    if field is None:
        return annotation
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    text = f"{(field.description or '').partition('. ')[0].rstrip('.')}."
    minimum = next((item.ge for item in field.metadata if hasattr(item, "ge")), None) if type_ is int else None
    metavar = "N" if type_ == int | None else None
    choices = get_args(type_) if get_origin(type_) is Literal else ()
    complete = words(*choices) if choices else None
    option = typer.Option(flag, help=text, min=minimum, metavar=metavar, autocompletion=complete)
    return Annotated[str if choices else type_, option]
