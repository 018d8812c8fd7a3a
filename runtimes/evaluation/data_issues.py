"""Data issues: irregular or unmatched input, counted, and what becomes of it by the table ``data_issues.toml``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from wikidx.corpora.reading.compression import read_toml
from wikidx.runtimes.evaluation.prediction_files import PREDICTED

_EXAMPLES = 5


class DataIssue(NamedTuple):
    """A data issue.

    Attributes:
        source: the run or kind of input that has the issue; empty: the run that is evaluated.
        issue: the kind, a key of ``data_issues.toml``.
        n: number of affected ids.
        examples: the first few of these ids.
    """

    source: str
    issue: str
    n: int
    examples: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The rule of its kind."""
        return issue_rules()[self.issue]


@cache
def issue_rules() -> Mapping[str, str]:
    """Return the table: kind of issue -> rule."""
    rules = read_toml(Path(__file__).with_name("data_issues.toml"))
    return {issue: rule.format(predicted=", ".join(PREDICTED)) for issue, rule in rules.items()}


def find_issues(source: str, ids_by_issue: Mapping[str, Collection[str]]) -> list[DataIssue]:
    """Return the issues that affect any id; examples are the first of a list, or of a set in alphabetical order."""
    return [
        DataIssue(source, issue, len(ids), tuple(ids if isinstance(ids, list) else sorted(ids))[:_EXAMPLES])
        for issue, ids in ids_by_issue.items()
        if ids
    ]
