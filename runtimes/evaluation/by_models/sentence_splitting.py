"""Sentence splitters by name. Citation metrics depend on the splitter.

punkt    nltk's trained English splitter, which ALCE's evaluator uses; needs nltk and its data
simple   splits after ".", "!" or "?" followed by white space, even after abbreviations
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wikidx.base.errors import InputError, require_packages
from wikidx.base.registry import unknown_name_error
from wikidx.runtimes.evaluation.answers.alce_text import split_sentences


class Splitter(NamedTuple):
    """A named function that splits a text into sentences; for a blank text, it returns an empty list."""

    name: str
    split: Callable[[str], list[str]]


SIMPLE = Splitter("simple", split_sentences)


def splitter(name: str) -> Splitter:
    """Return a splitter by name.

    Raises:
        UnknownNameError: the name is unknown.
        MissingExtraError: nltk is not installed.
        InputError: nltk's data are not installed.
    """
    if name == "simple":
        return SIMPLE
    if name != "punkt":
        raise unknown_name_error("sentence splitter", name, ("punkt", "simple"))
    require_packages("the sentence splitter 'punkt'", "eval", "nltk")
    import nltk

    def split(text: str) -> list[str]:
        sentences: list[str] = nltk.sent_tokenize(text)
        return sentences

    try:
        split("One. Two.")
    except LookupError as error:
        raise InputError(
            "nltk's data for the sentence splitter 'punkt' are not on this machine: run 'python -m nltk.downloader punkt_tab', "
            "or take the splitter 'simple', whose figures differ a little"
        ) from error
    return Splitter(f"punkt (nltk {nltk.__version__})", split)
