from __future__ import annotations

import hashlib
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.corpora.passage import Passage, text_key

SPACES = [chr(code) for code in range(0x110000) if chr(code).isspace()]
TEXT = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from([*" \u00a0\u3000\t\nAaßİΣſﬁ①\u0301", *SPACES])))


def slow_key(text: str) -> int:
    folded = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    return int.from_bytes(hashlib.blake2b(folded.encode(), digest_size=8).digest(), "little")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("The Sun", "tHE sUN", id="case"),
        pytest.param("ΑΘΗΝΑ ÉCOLE", "αθηνα école", id="case beyond ASCII"),
        pytest.param("the sun", "  the   sun ", id="spaces"),
        pytest.param("the sun", "the\n\tsun\r\n", id="line ends"),
        pytest.param("the sun", "the\u00a0sun", id="no-break space"),
        pytest.param("the sun", "the\u3000\u2003sun", id="wide spaces"),
        pytest.param("ABC 123!", "ＡＢＣ １２３！", id="full-width"),
        pytest.param("office file", "oﬃce ﬁle", id="ligatures"),
        pytest.param("caf\u00e9", "cafe\u0301", id="composed and decomposed"),
        pytest.param("x2 10 km", "x² ⑩ ㎞", id="compatibility forms"),
        pytest.param("", " \n", id="nothing"),
    ],
)
def test_keys_are_equal(one: str, other: str) -> None:
    assert text_key(one) == text_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("the sun", "thesun", id="a space missing"),
        pytest.param("the sun", "the sun.", id="a full stop"),
        pytest.param("the sun", "sun the", id="word order"),
        pytest.param("cafe", "café", id="an accent"),
        pytest.param("strasse", "straße", id="sharp s"),
        pytest.param("the sun", "the\u200bsun", id="zero-width space"),
        pytest.param("a", "", id="nothing"),
        pytest.param("-1", "−1", id="minus sign"),
    ],
)
def test_keys_differ(one: str, other: str) -> None:
    assert text_key(one) != text_key(other)


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


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1)), st.sampled_from(SPACES))
def test_key_does_not_depend_on_which_space_stands_between(words: list[str], space: str) -> None:
    assert text_key(f"{space}{space}".join(words)) == text_key(" ".join(words))


@pytest.mark.parametrize("space", SPACES, ids=lambda space: f"U+{ord(space):04X}")
def test_every_white_space_is_collapsed(space: str) -> None:
    assert text_key(f"{space}a{space}{space}b{space}") == text_key("a b")


@pytest.mark.slow
def test_key_is_what_the_definition_says_for_every_character() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    assert [c for c in characters if text_key(f"{c} a{c} {c}") != slow_key(f"{c} a{c} {c}")] == []


def test_passage_is_a_tuple_of_id_title_text() -> None:
    assert Passage("1", "T", "a") == ("1", "T", "a")
