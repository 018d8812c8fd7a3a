"""Errors reach the user whole, whichever process raised them."""

from __future__ import annotations

import pickle

from corpora.errors import MissingExtraError


def test_a_missing_extra_is_named_across_processes() -> None:
    error = pickle.loads(pickle.dumps(MissingExtraError("the encoder 'gtr'", "dense")))
    assert isinstance(error, MissingExtraError)
    assert str(error) == "the encoder 'gtr' needs the extra 'dense': pip install 'wikidx[dense]'"
    assert error.extra == "dense"
