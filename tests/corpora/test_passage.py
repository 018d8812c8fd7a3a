from __future__ import annotations

import hashlib
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.corpora.passage import text_key

SPACES = [chr(code) for code in range(0x110000) if chr(code).isspace()]
TEXT = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from([*" \u00a0\u3000\t\nAaßİΣſﬁ①\u0301", *SPACES])))


def slow_key(text: str) -> int:
    folded = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    return int.from_bytes(hashlib.blake2b(folded.encode(), digest_size=8).digest(), "little")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("", 0xB4B2797457A0A6E4, id="nothing"),
        pytest.param("The  Sun", 0xB496C5E7E807EB59, id="ASCII"),
        pytest.param("Caf\u00e9\u00a0oﬃce", 0xD49C66BCCA8F3B2C, id="Unicode"),
    ],
)  # b2sum -l 64 of the folded text, its bytes reversed
def test_key_does_not_change_between_versions(text: str, key: int) -> None:
    assert text_key(text) == key


@given(TEXT)
def test_key_is_what_the_definition_says(text: str) -> None:
    assert text_key(text) == slow_key(text)


@pytest.mark.slow
def test_key_is_what_the_definition_says_for_every_character() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    assert [c for c in characters if text_key(f"{c} a{c} {c}") != slow_key(f"{c} a{c} {c}")] == []
