"""Errors on unknown names suggest similar ones."""

from __future__ import annotations

import time

from wikidx.corpora.registry import near_names


def test_near_names_are_named() -> None:
    message = "unknown corpus 'smaple': did you mean 'sample'? known: sample, wiki2018"
    assert str(near_names("corpus", "smaple", ["wiki2018", "sample"])) == message
    assert str(near_names("corpus", "x", [])) == "unknown corpus 'x': known: none"


def test_odd_names_are_shown_on_one_line_and_cut() -> None:
    assert str(near_names("corpus", "a\nb", [])) == r"unknown corpus 'a\nb': known: none"
    started = time.process_time()
    assert str(near_names("corpus", "sample" * 1_000_000, ["sample"])) == f"unknown corpus '{('sample' * 14)[:80]}': known: sample"
    assert time.process_time() - started < 1  # several, if all of it is compared
