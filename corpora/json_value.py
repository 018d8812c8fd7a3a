"""JSON that somebody else wrote."""

from __future__ import annotations

import json
from typing import Any


def json_value(content: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the value that some JSON is.

    Raises:
        ValueError: it is not JSON or not UTF-8, a number in it has thousands of digits, or it is nested too deeply for Python.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
