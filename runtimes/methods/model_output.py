"""Parsing of model output meant to be JSON, labelled lines or a list: strict if possible, else lenient; never fails."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from wikidx.corpora.passage import text_key
from wikidx.runtimes.llms.text import whole_characters

State = Literal["whole", "within", "cut"]

_MAX_DEPTH = 32  # nested brackets; deeper nesting is not intended, and would exhaust the JSON parser's stack
_MAX_STARTS = 50  # opening brackets to try; keeps the worst case linear
_TOKENS = re.compile(r'["\\{}\[\],]')
_CLOSING = {"{": "}", "[": "]"}
_BULLET = re.compile(r"^(?:[-*•–]\s+|\(?\d{1,3}[.)]\s+)+")
_NOTHING = frozenset({"", "none", "(none)", "[]", "n/a"})


class Found(NamedTuple):
    """A JSON object found in a text.

    Attributes:
        value: its keys in lower case, with "_" for spaces and hyphens; empty if none was found.
        state: "whole" if the text is the object, "within" if there is other text around it, "cut" if the text ends before the object does:
            then it holds the part there is, perhaps with a truncated last string. None if none was found.
    """

    value: dict[str, Any]
    state: State | None


class _Extent(NamedTuple):
    """Extent of a bracketed value: its ``end``, or, if it is cut off, its possible completions, the likeliest first."""

    end: int | None
    repairs: tuple[str, ...] = ()


def json_object(text: str, keys: Sequence[str]) -> Found:
    """Find the first JSON object that has one of the keys (in lower case, with "_")."""
    for start in itertools.islice(_starts(text, "{"), _MAX_STARTS):
        extent = _extent(text, start)
        candidates = extent.repairs if extent.end is None else (text[start : extent.end],)
        for candidate in candidates:
            value = folded_keys(_parsed(candidate))
            if any(key in value for key in keys):
                is_all = not text[:start].strip() and not text[extent.end :].strip()
                return Found(value, "cut" if extent.end is None else "whole" if is_all else "within")
    return Found({}, None)


def labelled(text: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the value of each label, in order: ``name: value`` at the start of a line or after "{" or ",", with any decoration.

    A value extends to the next label. ``names`` are in lower case, with "_" for a space, a hyphen or "_".
    """
    spellings = "|".join(name.replace("_", "[ _-]") for name in sorted(names, key=len, reverse=True))
    label = re.compile(rf"(?:^|[{{,])[ \t\-*•#\"'\d.)]*({spellings})[ \t*\"']*:[ \t*]*", re.IGNORECASE | re.MULTILINE)
    places = list(label.finditer(text))
    ends = [*(place.start() for place in places), len(text)][1:]
    return [(_folded_key(place[1]), _undecorated(text[place.end() : end])) for place, end in zip(places, ends, strict=True)]


def listed(text: str, *, is_cut: bool) -> list[str]:
    """Return the distinct items of a list, a JSON array or one item per line; none for "none".

    Args:
        text: the model's output.
        is_cut: whether it was cut off at its maximum length: then the last item, which may be incomplete, is left out.
    """
    items = strings(text)
    if not items:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("```")]
        items = [_BULLET.sub("", line).strip(" \t`") for line in (lines[:-1] if is_cut else lines) if not line.endswith(":")]
    kept: dict[int, str] = {}
    for item in items:
        if item.strip(" .").casefold() not in _NOTHING:
            kept.setdefault(text_key(item), item)
    return list(kept.values())


def strings(text: str) -> list[str]:
    """Return the strings of the first JSON array with any, except one that is cut off; none if there is no such array.

    Other items are skipped, and so are arrays of numbers, which look like citations such as "[1]".
    """
    for start in itertools.islice(_starts(text, "["), _MAX_STARTS):
        extent = _extent(text, start)
        value = _parsed(extent.repairs[-1] if extent.end is None else text[start : extent.end])
        if found := [whole_characters(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []:
            return found
    return []


def plain(value: object) -> str:
    """Return a JSON value as plain text: a list's items joined by commas, null as the empty text."""
    if isinstance(value, str):
        return whole_characters(value).strip()
    if isinstance(value, list):
        return ", ".join(filter(None, map(plain, value)))
    return "" if value is None else whole_characters(json.dumps(value, ensure_ascii=False))


def first_line(text: str) -> str:
    """Return the first line that is not blank, or the empty text."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _undecorated(value: str) -> str:
    """Strip the quotes and brackets around a value in JSON-like text, but not the bracket that ends a citation."""
    return re.sub(r"[\"'][\]}\s,]*$", "", value).strip(" \t\n\r,{}\"'`")


def _starts(text: str, bracket: str) -> Iterator[int]:
    return (place.start() for place in re.finditer(re.escape(bracket), text))


def _extent(text: str, start: int) -> _Extent:
    """Match brackets from an opening one, skipping strings."""
    opened: list[str] = []
    is_string = False
    complete, open_there = start + 1, "}" if text[start] == "{" else "]"
    end = start
    while place := _TOKENS.search(text, end):
        token, end = place[0], place.end()
        if token == "\\":
            end += 1
        elif token == '"':
            is_string = not is_string
        elif is_string:
            continue
        elif token in _CLOSING:
            opened.append(_CLOSING[token])
            if len(opened) > _MAX_DEPTH:
                return _Extent(None, ("",))
        elif token == ",":
            complete, open_there = place.start(), "".join(reversed(opened))
        elif opened.pop() != token:
            return _Extent(None, ("",))
        elif not opened:
            return _Extent(end)
        else:
            complete, open_there = end, "".join(reversed(opened))
    closing = '"' * is_string + "".join(reversed(opened))
    rest = text[start:-1] if end > len(text) else text[start:]  # drops a backslash whose escaped character is cut off
    return _Extent(None, (rest + closing, text[start:complete] + open_there))


def _parsed(text: str) -> object:
    try:
        return json.loads(text, strict=False, parse_constant=lambda _: None)
    except ValueError:  # not JSON, or a number with thousands of digits
        return None


def folded_keys(value: object) -> dict[str, Any]:
    """Return a JSON object with its keys in lower case and "_" for spaces and hyphens; other values become empty."""
    return {_folded_key(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _folded_key(key: str) -> str:
    return re.sub(r"[\s_-]+", "_", key.strip().casefold())
