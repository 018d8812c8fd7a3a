"""Errors reach the user whole, whichever process raised them."""

from __future__ import annotations

import pickle

from wikidx.corpora.errors import InputError, MissingExtraError


def test_a_missing_extra_is_named_across_processes() -> None:
    error = pickle.loads(pickle.dumps(MissingExtraError("the encoder 'gtr'", "dense")))
    assert isinstance(error, MissingExtraError)
    assert str(error) == "the encoder 'gtr' needs the extra 'dense': pip install 'wikidx[dense]'"
    assert error.extra == "dense"


def test_what_a_message_quotes_can_neither_end_its_line_nor_steer_a_terminal() -> None:
    error = InputError("'a\nb\x1b[2J\u2028\x85\udcff' is no name, é is")
    assert str(error) == "'a\\nb\\x1b[2J\\u2028\\x85\\udcff' is no name, é is"
