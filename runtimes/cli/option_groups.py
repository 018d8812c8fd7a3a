"""Groups of options: a command takes each as one dataclass, and shows the fields as options of its own."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo


def flatten(**written: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:  # noqa: ANN401 - annotations
    """Make typer show the fields of a command's dataclass parameters as options, and build the dataclasses from their values.

    Args:
        written: annotations that replace those of fields; a function after the option converts its value to the field's.

    A field is annotated as typer's parameters are. One that has pydantic's ``Field`` instead becomes the option ``--its-name``, or ``-k``
    if its name is one letter; its help is the first sentence of the description.
    """
    return lambda command: _flat(command, written)


def _flat(command: Callable[..., None], written: dict[str, Any]) -> Callable[..., None]:
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {one.name: one.annotation for one in parameters if dataclasses.is_dataclass(one.annotation)}

    made_by = {name: about for name, annotation in written.items() for about in get_args(annotation)[2:]}

    def flat(**values: Any) -> None:  # noqa: ANN401 - of any option
        values |= {name: make(values[name]) for name, make in made_by.items()}
        made = {name: kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)}) for name, kind in groups.items()}
        command(**values, **made)

    shown = [part for one in parameters for part in (_parameters(one.annotation, written) if one.name in groups else [one])]
    flat.__signature__ = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in shown])  # type: ignore[attr-defined]
    flat.__annotations__, flat.__doc__, flat.__name__ = {}, command.__doc__, command.__name__
    return flat


def _parameters(kind: Any, written: dict[str, Any]) -> Iterator[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    types = get_type_hints(kind, include_extras=True) | written
    for field in dataclasses.fields(kind):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        annotation = _option(field.name, types[field.name])
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(name: str, annotation: Any) -> Any:  # noqa: ANN401 - annotations
    """Return an annotation as typer reads it."""
    kind, *about = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    field = next((one for one in about if isinstance(one, FieldInfo)), None)
    if field is None:
        return annotation
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    text = f"{(field.description or '').partition('. ')[0].rstrip('.')}."
    least = next((one.ge for one in field.metadata if hasattr(one, "ge")), None) if kind is int else None
    metavar = "N" if kind == int | None else None
    return Annotated[str if get_origin(kind) is Literal else kind, typer.Option(flag, help=text, min=least, metavar=metavar)]
