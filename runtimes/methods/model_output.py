"""Lenient parsing of model output that should be JSON, labelled lines or a list. Any text is accepted."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from wikidx.corpora.passage import text_key
from wikidx.runtimes.llms.text import replace_surrogates

State = Literal["whole", "within", "cut"]

_MAX_DEPTH = 32  # maximum depth of nested brackets; deeper nesting could exhaust the JSON parser's stack
_MAX_STARTS = 50  # maximum number of opening brackets to try; keeps the time linear
_TOKENS = re.compile(r'["\\{}\[\],]')
_CLOSING = {"{": "}", "[": "]"}
_BULLET = re.compile(r"^(?:[-*•–]\s+|\(?\d{1,3}[.)]\s+)+")
_MISSING_COMMA = re.compile(r"(?<=[\"\]}])\s*(?=\"[\w -]+\"\s*:)")
_PLACEHOLDER = re.compile(r"[*_\"'`]*(?:(?:final )?answer[*_ ]*:)?[ *_\"'`]*\(none\)[.*_\"'`]*", re.IGNORECASE)
_NOTHING = frozenset({"", "none", "(none)", "[]", "n/a"})


class ParsedObject(NamedTuple):
    """A JSON object found in a text.

    Attributes:
        value: the object, with keys in lower case and "_" for spaces and hyphens; empty if no object was found.
        state: "whole" if the text is the object, "within" if other text surrounds the object, "cut" if the text ends within the object.
            A cut object lacks its end, and its last string may be truncated. None: no object was found.
    """

    value: dict[str, Any]
    state: State | None


class _Extent(NamedTuple):
    """Extent of a bracketed value in a text.

    Attributes:
        end: offset after the closing bracket; None: the value is truncated or malformed.
        repairs: possible completions of a truncated value, likeliest first.
    """

    end: int | None
    repairs: tuple[str, ...] = ()


def find_object(text: str, keys: Sequence[str]) -> ParsedObject:
    """Find the first JSON object that has one of ``keys``. The keys are in lower case with "_", as in ``ParsedObject``."""
    for start in itertools.islice(_starts(text, "{"), _MAX_STARTS):
        extent = _extent(text, start)
        candidates = extent.repairs if extent.end is None else (text[start : extent.end],)
        for candidate in (*candidates, *(_MISSING_COMMA.sub(", ", candidate) for candidate in candidates)):
            value = fold_keys(_parse_json(candidate))
            if any(key in value for key in keys):
                is_whole_text = not text[:start].strip() and not text[extent.end :].strip()
                return ParsedObject(value, "cut" if extent.end is None else "whole" if is_whole_text else "within")
    return ParsedObject({}, None)


def parse_labels(text: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the labels in a text with their values, in order.

    A label is one of ``names`` before a colon, at the start of a line or after "{" or ",". Bullets, numbers, quotes and asterisks around
    the label are ignored. The value extends to the next label. ``names`` are in lower case; "_" also matches a space or a hyphen.
    """
    spellings = "|".join(name.replace("_", "[ _-]") for name in sorted(names, key=len, reverse=True))
    label = re.compile(rf"(?:^|[{{,])[ \t\-*•#\"'\d.)]*({spellings})[ \t*\"']*:[ \t*]*", re.IGNORECASE | re.MULTILINE)
    matches = list(label.finditer(text))
    ends = [*(match.start() for match in matches), len(text)][1:]
    return [(_fold_key(match[1]), _strip_decoration(text[match.end() : end])) for match, end in zip(matches, ends, strict=True)]


def parse_list(text: str, *, is_cut: bool) -> list[str]:
    """Return the distinct items of a list: a JSON array of strings, or one item per line. Items such as "none" are omitted.

    Args:
        text: the model's output.
        is_cut: whether the output was cut at its maximum length; the last item, which may be incomplete, is then omitted.
    """
    items = find_strings(text)
    if not items:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("```")]
        items = [_BULLET.sub("", line).strip(" \t`") for line in (lines[:-1] if is_cut else lines) if not line.endswith(":")]
    distinct: dict[int, str] = {}
    for item in items:
        if item.strip(" .").casefold() not in _NOTHING:
            distinct.setdefault(text_key(item), item)
    return list(distinct.values())


def find_strings(text: str) -> list[str]:
    """Return the strings in the first JSON array that contains a string; an empty list without such an array.

    A truncated array is read up to its last complete item. Items of other types are skipped.
    """
    for start in itertools.islice(_starts(text, "["), _MAX_STARTS):
        extent = _extent(text, start)
        value = _parse_json(extent.repairs[-1] if extent.end is None else text[start : extent.end])
        if items := [replace_surrogates(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []:
            return items
    return []


def to_text(value: object) -> str:
    """Return a JSON value as plain text. The items of a list are joined by commas; null becomes the empty text."""
    if isinstance(value, str):
        return drop_placeholder(replace_surrogates(value)).strip()
    if isinstance(value, list):
        return ", ".join(filter(None, map(to_text, value)))
    return "" if value is None else replace_surrogates(json.dumps(value, ensure_ascii=False))


def drop_placeholder(text: str) -> str:
    """Return a text; the empty text if it is "(none)", perhaps as an answer with its label, which stands for nothing."""
    return "" if _PLACEHOLDER.fullmatch(text.strip()) else text


def first_line(text: str) -> str:
    """Return the first line that is not blank; the empty text if all are blank."""
    return next((line.strip() for line in text.splitlines() if drop_placeholder(line).strip()), "")


def _strip_decoration(value: str) -> str:
    """Strip quotes and brackets around a value. "]" is stripped only after a quote, because it may end a citation."""
    return re.sub(r"[\"'][\]}\s,]*$", "", value).strip(" \t\n\r,{}\"'`")


def _starts(text: str, bracket: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(re.escape(bracket), text))


def _extent(text: str, start: int) -> _Extent:
    """Find the end of the value whose opening bracket is at ``start``. Brackets in strings are ignored."""
    brackets: list[str] = []
    is_string = False
    complete, closing_at_complete = start + 1, "}" if text[start] == "{" else "]"
    end = start
    while match := _TOKENS.search(text, end):
        token, end = match[0], match.end()
        if token == "\\":
            end += 1
        elif token == '"':
            is_string = not is_string
        elif is_string:
            continue
        elif token in _CLOSING:
            brackets.append(_CLOSING[token])
            if len(brackets) > _MAX_DEPTH:
                return _Extent(None, ("",))
        elif token == ",":
            complete, closing_at_complete = match.start(), "".join(reversed(brackets))
        elif brackets.pop() != token:
            return _Extent(None, ("",))
        elif not brackets:
            return _Extent(end)
        else:
            complete, closing_at_complete = end, "".join(reversed(brackets))
    closing = '"' * is_string + "".join(reversed(brackets))
    rest = text[start:-1] if end > len(text) else text[start:]  # without a final backslash, whose escaped character is missing
    return _Extent(None, (rest + closing, text[start:complete] + closing_at_complete))


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, strict=False, parse_constant=lambda _: None)
    except ValueError:  # not JSON, or a number with thousands of digits
        return None


def fold_keys(value: object) -> dict[str, Any]:
    """Return a JSON object with keys in lower case and "_" for spaces and hyphens; an empty dict for any other value."""
    return {_fold_key(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _fold_key(key: str) -> str:
    return re.sub(r"[\s_-]+", "_", key.strip().casefold())
