"""Lines of TREC runs, and what can stand in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from wikidx.base.errors import InputError


def trec_lines(run: Mapping[str, Mapping[str, float]], tag: str) -> Iterator[str]:
    """Yield the lines of a TREC run.

    Args:
        run: scores by question id and passage id; the passages of a question are in ranked order.
        tag: the run's name.

    Raises:
        InputError: a question id, a passage id or the tag cannot be written; see ``trec_separator``.
    """
    separator = trec_separator(name for question, scores in run.items() for name in (tag, question, *scores))
    for question, scores in run.items():
        for rank, (passage, score) in enumerate(scores.items(), 1):
            yield separator.join((question, "Q0", passage, str(rank), repr(score), f"{tag}\n"))


def trec_separator(names: Iterable[str]) -> str:
    """Return the separator of columns of a TREC file: a blank, or a tab if a name contains white space.

    Raises:
        InputError: a name is empty, begins or ends with white space, or contains a tab or a line break.
    """
    separator = " "
    for name in names:
        if not re.fullmatch(r"\S([^\t\r\n]*\S)?", name):
            raise InputError(f"{name!r:.80} cannot be written to a TREC file: it is empty, or has blanks at an end, a tab or a line break")
        separator = separator if name.split() == [name] else "\t"
    return separator
