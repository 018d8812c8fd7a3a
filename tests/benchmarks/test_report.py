from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.report import exit_status, print_table
from wikidx.base.errors import InputError


def test_a_mistake_is_one_line_and_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    def mistake() -> None:
        raise InputError("there is no file x: name one")

    assert [exit_status(mistake), exit_status(lambda: None), exit_status(lambda: 1)] == [2, 0, 1]
    assert capsys.readouterr() == ("", "there is no file x: name one\n")


def test_figures_are_printed_before_the_next_ones_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> Iterator[dict[str, int]]:
        yield {"n": 1_000, "ms": 2}
        raise MemoryError

    with pytest.raises(MemoryError):
        print_table("Speed", measure(), {}, None)
    assert capsys.readouterr().out == "\nSpeed\n\n| n | ms |\n|---|---|\n| 1,000 | 2 |\n"
