"""Coroutines that a method creates and does not await, for which Python has a warning: here an error that names the method."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Coroutine, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TextIO

from wikidx.base.errors import InputError
from wikidx.runtimes.methods.base import Answer

_WARNING = r"coroutine '(.*)' was never awaited"


class Forgotten:
    """The coroutines that the method of an open question has not awaited.

    Args:
        run: the coroutine of the method.
    """

    def __init__(self, run: Coroutine[Any, Any, Answer]) -> None:
        self.method = f"{run.__qualname__} ({run.cr_code.co_filename.rpartition('/')[2]})"  # type: ignore[attr-defined]
        self._names = list[str]()
        _QUESTION.set(self)

    def add(self, name: str) -> None:
        """Note a coroutine that has ended without having begun."""
        self._names.append(name)

    def check(self, answer: object) -> None:
        """Check what the method has returned.

        Raises:
            InputError: it is no answer, or the method has forgotten an await.
        """
        text: object = answer.text if isinstance(answer, Answer) else answer
        self._names += _not_begun([text])
        if self._names:
            raise InputError(self._message())
        if not isinstance(answer, Answer) or not isinstance(text, str):
            raise InputError(f"the method {self.method} returns {text!r:.80}, not an Answer with a text")

    def explain(self, error: Exception) -> str:
        """Return the error of the question for an exception that comes from a forgotten await; empty for others."""
        used = [value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values()]
        self._names += _not_begun([getattr(error, "obj", None), *used])
        return f"{InputError.__name__}: {self._message()}" if self._names else ""

    def _message(self) -> str:
        return f"the method {self.method} forgets to await '{self._names[0]}': write 'await' before the call"


_QUESTION: ContextVar[Forgotten] = ContextVar("question")


def watch() -> None:
    """Have Python's warnings of coroutines that were never awaited noted at the question in which they occur."""
    global _show_before
    warnings.filterwarnings("always", message=_WARNING, category=RuntimeWarning)
    if warnings.showwarning is not _show:
        _show_before = warnings.showwarning
        warnings.showwarning = _show


_show_before = warnings.showwarning


def _show(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    found, question = re.match(_WARNING, str(message)), _QUESTION.get(None)
    if found and question:
        question.add(found[1])
    else:
        _show_before(message, category, filename, lineno, file, line)


def _not_begun(values: Iterable[object]) -> Iterator[str]:
    """Yield the names of coroutines that have not begun; they are closed, so that there is no warning any more."""
    for value in values:
        if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
            value.close()
            yield value.__qualname__
