"""Choice of the fields that make a passage, by well-known names or the user's, for records whose format does not determine them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from wikidx.base.errors import InputError
from wikidx.base.registry import suggest

from .records import BEIR, CONTENTS, PASSAGE_IDS, PLAIN, FieldMap, plain_name

# Names by what they hold; those of an earlier group count before those of a later one, and within a group equally.
_NAMES = {
    "id": (("id", "_id"), tuple(name for name in PASSAGE_IDS if name not in ("id", "_id"))),
    "title": (("title",), ("page_title", "article_title", "doc_title", "document_title", "headline", "heading", "name")),
    "text": (
        ("text",),
        ("contents", "content", "passage", "passage_text", "paragraph", "paragraph_text", "chunk", "chunk_text", "document_text"),
        ("body", "document", "segment", "article", "abstract"),
    ),
}
_SHOWN = 200  # characters of names in messages


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNames:
    """Names that the user gives for the fields of a passage; None: they are found by well-known names."""

    id: str | None = None
    title: str | None = None
    text: str | None = None

    def __bool__(self) -> bool:
        return self != FieldNames()

    def recorded(self) -> dict[str, str]:
        """Return the given names, as a manifest has them."""
        given = {"id_field": self.id, "title_field": self.title, "text_field": self.text}
        return {name: value for name, value in given.items() if value is not None}


class GivenFields(TypedDict, total=False):
    """The names of ``FieldNames`` as arguments of a call."""

    id_field: str | None
    title_field: str | None
    text_field: str | None


def field_names(id_field: str | None = None, title_field: str | None = None, text_field: str | None = None) -> FieldNames:
    """Return the names that a call gives."""
    return FieldNames(id=id_field, title=title_field, text=text_field)


def choose_fields(record: Mapping[str, Any], given: FieldNames = FieldNames()) -> FieldMap:  # noqa: B008 - immutable
    """Return the fields of a record, or of a table's columns, that make a passage.

    Records without a field for the id have an ``id`` of their reader's.

    Raises:
        ValueError: no field is known to hold a text.
        InputError: two fields may hold the same, or a given field is missing.
    """
    if not given:
        known = next((each for each in (BEIR, PLAIN, CONTENTS) if each.fits(record)), None)
        if known is not None:
            return known
    text = given.text or _find("text", record)
    if text is None:
        raise ValueError(f"has the fields {_shown(record) or 'none'}; needed are id, title, text, or name them (--text-field)")
    id_ = given.id or _find("id", record)
    title = given.title or _find("title", record) or PLAIN.title
    for name in filter(None, (given.id, given.text)):
        if name not in record:
            raise InputError(f"there is no field {name!r}: {suggest(name, [*map(str, record)])}the first record has {_shown(record)}")
    section = PLAIN.section if text == PLAIN.text else None
    own_id = id_ or PLAIN.id
    return FieldMap(id=own_id, title=title, text=text, section=section, has_heading=text == CONTENTS.text, is_numbered=id_ is None)


def has_text(names: Collection[str]) -> bool:
    """Return whether some of the names are known to be those of a text."""
    known = {plain_name(name) for group in _NAMES["text"] for name in group}
    return not known.isdisjoint(map(plain_name, names))


def _find(kind: str, names: Collection[str]) -> str | None:
    for group in _NAMES[kind]:
        plain = {*map(plain_name, group)}
        found = [name for name in names if plain_name(name) in plain]
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise InputError(f"the fields {both} may hold the {kind}: name one with --{kind}-field (in Python {kind}_field=…)")
        if found:
            return found[0]
    return None


def describe_fields(fields: FieldMap) -> str:
    """Return which fields are taken for id, title and text, as far as their names do not say it; may be empty."""
    if fields.is_numbered:
        return ", ".join(filter(None, ("ids by number", describe_fields(replace(fields, is_numbered=False)))))
    pairs = (("id", fields.id, ("id", "_id")), ("title", fields.title, ("title",)), ("text", fields.text, ("text", "contents")))
    return ", ".join(f"{kind} from {name!r}" for kind, name, usual in pairs if name not in usual)


def _shown(names: Collection[str]) -> str:
    return f"{', '.join(map(str, names)):.{_SHOWN}}"
