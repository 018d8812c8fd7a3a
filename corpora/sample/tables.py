"""Reading the fact tables and putting sentences together: what the renderers of all tables share."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Sequence
from importlib.resources import files

from corpora.passage import Passage

Row = dict[str, str]

_FULL = 100
_THIN = 78


@functools.cache
def fact_text(name: str) -> str:
    """Return the contents of a file in ``facts/``."""
    return (files("corpora.sample") / "facts" / name).read_text(encoding="utf-8")


@functools.cache
def table(name: str) -> tuple[Row, ...]:
    """Return the rows of a fact table in file order, each as column -> cell; an empty cell means that nothing certain is known."""
    return tuple(csv.DictReader(fact_text(f"{name}.tsv").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


@functools.cache
def names(name: str, key: str) -> dict[str, str]:
    """Return key -> name of a fact table, e.g. country codes -> country names."""
    return {row[key]: row["name"] for row in table(name)}


def country(code: str) -> str:
    """Return a country's name as it stands in a sentence: ``'the Netherlands'``."""
    return names("countries", "code")[code]


def home(place: str, code: str) -> str:
    """Return ``'Ulm, Germany'``; a place that names its province, a border that has moved since, or its country stays as it is."""
    return place if "," in place or "(" in place or place == bare(country(code)) else f"{place}, {bare(country(code))}"


def bare(name: str) -> str:
    """Return a name without its article, as titles and lists of places need it."""
    return name.removeprefix("the ")


def opened(text: str) -> str:
    """Return a text with its first letter as a capital, to open a sentence."""
    return text[:1].upper() + text[1:]


def listed(items: Sequence[str]) -> str:
    """Return ``'a'``, ``'a and b'`` or ``'a, b and c'``."""
    return " and ".join([*([", ".join(items[:-1])] if items[1:] else []), *items[-1:]])


def indefinite(noun: str) -> str:
    """Return a noun with ``a`` or ``an``, by its first letter."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def pick(n: int, *variants: str) -> str:
    """Return the wording of row number ``n``, so that neighbouring rows of a table do not read alike."""
    return variants[n % len(variants)]


def article(id_: str, title: str, sentences: Iterable[str], more: Iterable[str] = ()) -> Passage:
    """Join the sentences (empty ones are left out) to an article.

    ``more`` are sentences drawn from other rows. They are added only while the article is thin, and only if they fit: a hundred words
    make one full passage, and a few more would leave a stub behind it.
    """
    text = " ".join(filter(None, sentences))
    for sentence in more:
        if len(text.split()) < _THIN and len(text.split()) + len(sentence.split()) <= _FULL:
            text = f"{text} {sentence}"
    return Passage(id_, title, text)
