"""Question formats, the tables of ``formats.toml``: what a file's records have, and which function reads them.

The format of a file is the first format in the table that fits the file's first record.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard

from wikidx.corpora.reading.compression import read_toml

from .base import FEVER_LABELS, Question
from .open_domain import ANSWERS, parse_list
from .records import Record
from .topics import Topic

_ABSENT = object()

_TYPES: Mapping[str, Callable[[object], bool]] = {
    "": lambda value: value is not _ABSENT,
    "list": lambda value: isinstance(value, list),
    "text": lambda value: isinstance(value, str),
    "empty": lambda value: value in ("", None),
    "truth": lambda value: isinstance(value, bool),
    "verdict": lambda value: value in FEVER_LABELS,
}

_ROWS: Mapping[str, Callable[[object], bool]] = {
    "": lambda value: False,
    "topic": lambda value: isinstance(value, Topic),
    "question and answers": lambda value: _is_pair(value) and isinstance(parse_list(value[1]), list),
    "id and question": lambda value: _is_pair(value) and len(value[0].split()) == 1 and not value[1].lstrip().startswith("["),
    "anything else": lambda value: not isinstance(value, tuple),
}


class Format(NamedTuple):
    """A question format, a table of ``formats.toml``; ``name`` is the value of ``--format``."""

    name: str
    record: str
    read: Callable[[Record], Question]
    fits: Sequence[Sequence[str]] = ()
    row: str = ""
    split: str = ""
    complete: Callable[[Path, Sequence[Question]], list[Question]] | None = None

    def matches(self, record: Record) -> bool:
        """Return whether a file's first record is in this format."""
        value = record.value
        return _ROWS[self.row](value) or (isinstance(value, dict) and any(all(_has(value, name) for name in each) for each in self.fits))

    def selects(self, record: Record) -> bool:
        """Return whether a record is of the split to read."""
        return not self.split or not record.path or record.path[0] == self.split


def _is_pair(value: object) -> TypeGuard[tuple[str, str]]:
    return isinstance(value, tuple) and len(value) == 2


def _has(value: Mapping[str, object], needed: str) -> bool:
    """Return whether an object has what an entry of ``fits`` says."""
    if needed.startswith("!"):
        return value.keys().isdisjoint(ANSWERS if needed == "!ANSWERS" else [needed[1:]])
    path, _, kind = needed.partition(":")
    found: object = value
    for name in path.split("."):
        inner = found if isinstance(found, dict) else dict(zip("0", found, strict=False)) if isinstance(found, list) else {}
        name = next((each for each in inner if each.startswith(name[:-1])), name) if name.endswith("*") else name
        found = inner.get(name, _ABSENT)
    return _TYPES[kind](found)


def _read() -> dict[str, Format]:
    tables = read_toml(Path(__file__).with_name("formats.toml"))
    for table in tables.values():
        for function in {"read", "complete"} & table.keys():
            table[function] = pkgutil.resolve_name(f"{__package__}.{table[function]}")
    return {name: Format(name, **table) for name, table in tables.items()}


FORMATS = _read()


def find_format(record: Record) -> Format:
    """Return the format of a record; raises ``InputError`` if it is in none."""
    found = next((candidate for candidate in FORMATS.values() if candidate.matches(record)), None)
    if found is None:
        advice = (
            "a table has id, tab, question; or question, tab, ['answer', …]; or a header; of lines of text make JSON Lines of {question}"
        )
        raise record.error(f"{record.value!r:.60} is no question in a known format: {advice}")
    return found
