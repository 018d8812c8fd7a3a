"""Sentence splitters by name. Evaluators use different ones, and their figures differ accordingly.

punkt    nltk's trained English splitter, which ALCE's evaluator calls; needs the package and its data
simple   after ".", "!" or "?" followed by white space; knows no abbreviations, needs nothing
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wikidx.corpora.errors import InputError, MissingExtraError
from wikidx.corpora.registry import near_names
from wikidx.runtimes.evaluation.answers.alce_text import split_sentences


class Splitter(NamedTuple):
    """A way to split a text into its sentences; a blank text has none."""

    name: str
    split: Callable[[str], list[str]]


SIMPLE = Splitter("simple", split_sentences)


def splitter(name: str) -> Splitter:
    """Return a splitter by its name.

    Raises:
        UnknownNameError: there is none of that name.
        MissingExtraError: nltk is not installed.
        InputError: its data are not.
    """
    if name == "simple":
        return SIMPLE
    if name != "punkt":
        raise near_names("sentence splitter", name, ("punkt", "simple"))
    try:
        import nltk
    except ImportError as error:
        raise MissingExtraError("the sentence splitter 'punkt'", "eval") from error

    def split(text: str) -> list[str]:
        found: list[str] = nltk.sent_tokenize(text)
        return found

    try:
        split("One. Two.")
    except LookupError as error:
        raise InputError(
            "nltk's data for the sentence splitter 'punkt' are not on this machine: run 'python -m nltk.downloader punkt_tab', "
            "or take the splitter 'simple', whose figures differ a little"
        ) from error
    return Splitter(f"punkt (nltk {nltk.__version__})", split)
