"""Corpora without a name, which stay in the data home as long as the process that built them uses them."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack, suppress

from wikidx.base.artifacts.building import discard, lock
from wikidx.base.artifacts.home import UNNAMED, corpus_path, home
from wikidx.base.errors import LockedError

_PREFIX = "unnamed-"


class UnnamedCorpus:
    """A generated name for a corpus that ``delete`` deletes.

    The process holds the lock of the corpus's folder while the corpus is in use. If the process ends without deleting the corpus, the
    kernel releases the lock, and the next process that builds an unnamed corpus deletes the abandoned corpus.

    Attributes:
        name: the generated name.
    """

    def __init__(self) -> None:
        _delete_abandoned()
        self.name = _PREFIX + secrets.token_hex(4)
        self._pid, self._lock = os.getpid(), ExitStack()
        self._lock.enter_context(lock(corpus_path(self.name)))

    def delete(self) -> None:
        """Delete the corpus; in a forked process, do nothing."""
        if os.getpid() == self._pid:
            _delete(self.name)
            self._lock.close()


def _delete_abandoned() -> None:
    for path in (home() / ".locks").glob(f"{_PREFIX}*"):
        if UNNAMED.fullmatch(path.name):  # not the lock of an artifact in the corpus's folder
            with suppress(LockedError), lock(home() / path.name):
                _delete(path.name)


def _delete(name: str) -> None:
    """Delete a corpus and its lock files."""
    discard(corpus_path(name))
    for path in (home() / ".locks").glob(f"{name}*"):
        path.unlink(missing_ok=True)
