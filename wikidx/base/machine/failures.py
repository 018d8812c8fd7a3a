"""Messages to the user for exceptions of other libraries."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from wikidx.base.errors import IdxError

_NO_MEMORY = ("out of memory", "can't allocate memory")  # torch's messages for a GPU, pinned memory, and a CPU


class DeviceLost(IdxError):
    """An error of a GPU after which this process cannot use it any more, as after most errors of CUDA: the process should end."""


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
        DeviceLost: the device fails, and takes no work any more.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # ``OutOfMemoryError`` is compared by name, because this module also works without torch
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in _NO_MEMORY):
            raise IdxError(f"{device} has too little memory for {task}: {advice}{aftermath}") from error
        kind = DeviceLost if _is_lost(device) else IdxError
        raise kind(f"{device} failed: {first_line(error)}{aftermath}") from error


def _is_lost(device: str) -> bool:
    """Return whether a GPU that has failed fails again."""
    torch = sys.modules.get("torch")
    if torch is None or not device.startswith("cuda"):
        return False
    try:
        torch.cuda.synchronize(device)
    except (RuntimeError, AssertionError):
        return True
    return False
