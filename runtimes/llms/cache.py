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
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from wikidx.base.errors import StorageError, explain_os_error, find_write_error
from wikidx.runtimes.errors import LLMError

from .base import LLM, Call, Capabilities, Deliver, Generate, Reply
from .prompts import End

_BUSY_S = 30.0
_REPLY = TypeAdapter(Reply)

logger = logging.getLogger(__name__)


def is_repeatable(call: Call) -> bool:
    """Return True unless the call samples without a seed."""
    return not isinstance(call, Generate) or call.decoding.is_greedy or call.decoding.seed is not None


def cache_key(model: str, call: Call) -> bytes:
    """Return the cache key of a call to a model: 32 bytes, independent of the call's role and path."""
    fields = {name: value for name, value in asdict(call).items() if name not in {"role", "path"}}
    if not fields.get("control"):  # calls that ask for none have the keys that they had before there were any
        fields.pop("control", None)
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
        """Return the cached reply to a call, or None. ``model`` is all that identifies the model, such as its name and URL."""
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
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            error = find_write_error(self._file, error)
        reason = explain_os_error(error) if isinstance(error, OSError) else f"{error}: name another file"
        return StorageError(f"replies cannot be kept in {self._file}, where those before are kept: {reason}")


class CachedLLM:
    """A model whose replies are cached, each as soon as the model delivers it.

    Args:
        llm: the model; closed with this object.
        cache: the cache, which stays open.
        model: all that identifies the model, its weights and its options.
    """

    def __init__(self, llm: LLM, cache: ReplyCache, model: str) -> None:
        self._llm, self._cache, self._model = llm, cache, model

    @property
    def name(self) -> str:
        """Backend and model, as named by the user."""
        return self._llm.name

    @property
    def capabilities(self) -> Capabilities:
        """Known capabilities of the model."""
        return self._llm.capabilities

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer a batch of calls, of which the model gets those without a cached reply; raises as the model does."""
        replies: dict[int, Reply | LLMError] = {}
        for number, call in enumerate(calls):
            if (reply := self._cache.get(self._model, call)) is not None:
                replies[number] = reply
        missing = [number for number in range(len(calls)) if number not in replies]
        if deliver is not None:
            deliver(dict(replies))

        def keep(answers: Mapping[int, Reply | LLMError]) -> None:
            new = {missing[number]: answer for number, answer in answers.items() if missing[number] not in replies}
            replies.update(new)
            for number, answer in new.items():
                if isinstance(answer, Reply):
                    self._cache.put(self._model, calls[number], answer)
            if deliver is not None:
                deliver(new)

        if missing:
            keep(dict(enumerate(self._llm.run([calls[number] for number in missing], keep))))
        return [replies[number] for number in range(len(calls))]

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._llm.count_tokens(text)

    def truncate(self, text: str, max_tokens: int, *, keep: End = "start") -> str:
        """Return the first or last tokens of a text."""
        return self._llm.truncate(text, max_tokens, keep=keep)

    def close(self) -> None:
        """Close the model."""
        self._llm.close()
