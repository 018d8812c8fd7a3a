"""Errors on unknown names suggest similar ones."""

from __future__ import annotations

import time

from wikidx.corpora.registry import unknown_name_error


def test_near_names_are_named() -> None:
    message = "unknown corpus 'smaple': did you mean 'sample'? known: sample, wiki2018"
    assert str(unknown_name_error("corpus", "smaple", ["wiki2018", "sample"])) == message
    assert str(unknown_name_error("corpus", "x", [])) == "unknown corpus 'x': known: none"


def test_odd_names_are_shown_on_one_line_and_cut() -> None:
    assert str(unknown_name_error("corpus", "a\nb", [])) == r"unknown corpus 'a\nb': known: none"
    started = time.process_time()
    assert str(unknown_name_error("corpus", "sample" * 1_000_000, ["sample"])) == f"unknown corpus '{('sample' * 14)[:80]}': known: sample"
    assert time.process_time() - started < 1  # several, if all of it is compared
