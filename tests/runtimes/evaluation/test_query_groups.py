from __future__ import annotations

from pathlib import Path

import pytest

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups


def test_groups_are_read(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text('{"id": 7, "queries": ["a", "b"]}\n\n{"id": "x", "queries": [], "more": 1}\n')
    assert read_groups(tmp_path / "groups") == {"7": ["a", "b"], "x": []}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "line 2: not JSON"),
        ("[]", "line 2: the id is None"),
        ('{"id": true, "queries": []}', "line 2: the id is True"),
        ('{"id": "b"}', "line 2: the field 'queries' is None"),
        ('{"id": "b", "queries": ["x", 1]}', "line 2: the field 'queries' is"),
        ('{"id": "a", "queries": []}', "line 2: the question 'a' has a group before"),
    ],
)
def test_a_bad_line_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "groups").write_text(f'{{"id": "a", "queries": []}}\n{line}\n')
    with pytest.raises(InputError, match=message):
        read_groups(tmp_path / "groups")


def test_a_file_without_groups_is_refused(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("\n")
    with pytest.raises(InputError, match="has no groups"):
        read_groups(tmp_path / "groups")
