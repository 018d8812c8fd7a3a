"""Claims to verify: FEVER with its three classes."""

from __future__ import annotations

from collections.abc import Iterator

from wikidx.corpora.errors import InputError

from .base import FEVER_LABELS, Question, gold
from .fields import identifier, once, text_from, text_of
from .records import Record

_ESCAPES = (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"), ("-COLON-", ":"), ("_", " "))


def fever(record: Record) -> Question:
    """Parse a claim of FEVER; the shared task's test set has no labels.

    The golden answer is the label. ``titles`` are the pages of the evidence, spelt as in Wikipedia.
    """
    label = record.value.get("label")
    if label is not None and label not in FEVER_LABELS:
        raise InputError(f"{record.where}: the label is {label!r:.40}, none of {', '.join(FEVER_LABELS)}")
    titles = list(once(page_title(page) for page in _pages(record)))
    return Question(identifier(record), text_of(record, "claim", "question"), (label,) if label else (), gold(label=label, titles=titles))


def page_title(page: str) -> str:
    """Return the title of a page from its name in FEVER's dump."""
    for escaped, plain in _ESCAPES:
        page = page.replace(escaped, plain)
    return page


def _pages(record: Record) -> Iterator[str]:
    """Yield the page of each piece of evidence: [annotation, evidence, page, sentence], in sets, in a list."""
    evidence = record.value.get("evidence")
    if evidence is None:
        return
    is_known = isinstance(evidence, list) and all(isinstance(group, list) for group in evidence)
    if not is_known or not all(isinstance(piece, list) and len(piece) == 4 for group in evidence for piece in group):
        raise InputError(f"{record.where}: the field 'evidence' is {evidence!r:.40}, not sets of [annotation, evidence, page, sentence]")
    for group in evidence:
        for _, _, page, _ in group:
            if page is not None:
                yield text_from(record, page, "evidence")
