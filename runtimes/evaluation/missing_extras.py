"""Parts of an evaluation whose extra is not installed: they are left out, and the rest is shown."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import cache, partial

from wikidx.base.errors import MissingExtraError

_warn = cache(partial(logging.getLogger(__name__).warning, "left out: %s"))  # each message once


@contextlib.contextmanager
def leave_out_missing(*, is_alone: bool = False) -> Iterator[None]:
    """Suppress the error of a missing extra in the ``with`` block, unless ``is_alone``: nothing would be left.

    A warning names each feature that is left out, once in this process.
    """
    try:
        yield
    except MissingExtraError as error:
        if is_alone:
            raise
        _warn(str(error))
