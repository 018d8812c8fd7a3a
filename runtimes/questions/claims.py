"""Claims of FEVER."""

from __future__ import annotations

from collections.abc import Iterator

from wikidx.corpora.reading.records import find_field, plain_name

from .base import FEVER_LABELS, Question, gold
from .fields import record_id, text_from, text_of, unique
from .records import Record

_ESCAPES = (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"), ("-COLON-", ":"), ("_", " "))

_LABELS = {plain_name(label): label for label in FEVER_LABELS} | {"supported": "SUPPORTS", "refuted": "REFUTES"}


def parse_fever(record: Record) -> Question:
    """Parse a FEVER claim. The label is the golden answer; the shared task's test set has no labels.

    The gold ``titles`` are the titles of the evidence pages, spelled as in Wikipedia.
    """
    given = record.value.get(find_field(record.value, ("label", "claim_label")) or "label")
    label = _LABELS.get(plain_name(given), given)
    if label is not None and label not in FEVER_LABELS:
        shown = f"the label is {given!r:.40}, none of {', '.join(FEVER_LABELS)}: leave the record out, or give 'question' and 'answer'"
        raise record.error(shown)
    titles = list(unique(page_title(page) for page in _pages(record)))
    return Question(record_id(record), text_of(record, "claim", "question"), (label,) if label else (), gold(label=label, titles=titles))


def page_title(page: str) -> str:
    """Return a page's title from its name in FEVER's dump."""
    for escaped, plain in _ESCAPES:
        page = page.replace(escaped, plain)
    return page


def _pages(record: Record) -> Iterator[str]:
    """Yield the page names of the evidence, which is a list of lists of [annotation, evidence, page, sentence]."""
    evidence = record.value.get("evidence")
    if evidence is None:
        return
    is_known = isinstance(evidence, list) and all(isinstance(group, list) for group in evidence)
    if not is_known or not all(isinstance(piece, list) and len(piece) == 4 for group in evidence for piece in group):
        raise record.wrong("evidence", evidence, "not sets of [annotation, evidence, page, sentence]")
    for group in evidence:
        for _, _, page, _ in group:
            if page is not None:
                yield text_from(record, page, "evidence")
