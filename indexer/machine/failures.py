"""Messages to the user for exceptions of other libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from wikidx.corpora.errors import IdxError

_NO_MEMORY = ("out of memory", "can't allocate memory")  # torch's messages for a GPU, pinned memory, and a CPU


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if it has none."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextlib.contextmanager
def device_errors(device: str, task: str, advice: str, *, aftermath: str = "") -> Iterator[None]:
    """Translate torch's exceptions for a failing device.

    Args:
        device: the device's name.
        task: the task that needs memory, for the message.
        advice: remedy for too little memory, for the message.
        aftermath: text at the end of every message.

    Raises:
        IdxError: the device has too little memory, or fails otherwise.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # ``OutOfMemoryError`` is compared by name, because this module also works without torch
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in _NO_MEMORY):
            raise IdxError(f"{device} has too little memory for {task}: {advice}{aftermath}") from error
        raise IdxError(f"{device} failed: {first_line(error)}{aftermath}") from error
