from __future__ import annotations

import pytest

from benchmarks.report import exit_status
from wikidx.corpora.errors import InputError


def test_a_mistake_is_one_line_and_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    def mistake() -> None:
        raise InputError("there is no file x: name one")

    assert exit_status(mistake) == 2
    assert capsys.readouterr() == ("", "there is no file x: name one\n")


def test_other_ends_are_left_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert [exit_status(lambda: None), exit_status(lambda: 1)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        exit_status(lambda: 1 // 0)
    assert capsys.readouterr() == ("", "")
