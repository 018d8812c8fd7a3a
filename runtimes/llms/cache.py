"""An on-disk cache of replies, keyed by model, prompt and parameters.

Sampling calls without a seed and failed calls are never cached. Several processes may share the file. A corrupt reply is deleted, and the
call is repeated.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from wikidx.corpora.errors import StorageError

from .base import Call, Generate, Reply

_BUSY_S = 30.0
_REPLY = TypeAdapter(Reply)

logger = logging.getLogger(__name__)


def is_repeatable(call: Call) -> bool:
    """Return True unless the call samples without a seed."""
    return not isinstance(call, Generate) or call.decoding.is_greedy or call.decoding.seed is not None


def cache_key(model: str, call: Call) -> bytes:
    """Return the cache key of a call to a model: 32 bytes, independent of the call's role and path."""
    fields = {name: value for name, value in asdict(call).items() if name not in {"role", "path"}}
    schema = type(call.schema).__name__ if isinstance(call, Generate) else None
    identity = [model, type(call).__name__, type(call.prompt).__name__, schema, fields]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest()


class ReplyCache:
    """A cache of replies in a file. Thread-safe; must be closed.

    Raises:
        StorageError: the file cannot be used.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._refusal(error) from error
        try:
            self._database.text_factory = bytes  # a corrupt row may hold any type
            self._execute("PRAGMA journal_mode = WAL")
            self._execute("PRAGMA synchronous = NORMAL")
            self._execute(
                "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL, sha256 BLOB NOT NULL) WITHOUT ROWID"
            )
        except StorageError:
            self._database.close()
            raise

    def get(self, model: str, call: Call) -> Reply | None:
        """Return the cached reply to a call, or None. ``model`` is the name of the model with its URL."""
        if not is_repeatable(call):
            return None
        key = cache_key(model, call)
        rows = self._execute("SELECT reply, sha256 FROM replies WHERE key = ?", key)
        if not rows:
            return None
        reply, checksum = rows[0]
        if isinstance(reply, bytes) and hashlib.sha256(key + reply).digest() == checksum:
            return _REPLY.validate_json(reply)
        logger.warning("a reply in %s is corrupt: the call is repeated", self._file)
        self._execute("DELETE FROM replies WHERE key = ?", key)
        return None

    def put(self, model: str, call: Call, reply: Reply) -> None:
        """Store the reply to a call; an existing reply is kept."""
        if is_repeatable(call):
            key, content = cache_key(model, call), _REPLY.dump_json(reply)
            self._execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", key, content, hashlib.sha256(key + content).digest())

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _execute(self, statement: str, *values: bytes) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._database.execute(statement, values).fetchall()
            except (sqlite3.Error, UnicodeDecodeError) as error:  # names in a corrupt file may not be UTF-8
                raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> StorageError:
        return StorageError(f"replies cannot be kept in {self._file}: {error}; name another file, or delete this one")
