from __future__ import annotations

import pytest

from indexer.analysis import plain_english


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Rivers of Europe", ["river", "europe"]),
        ("cities, taxes and glasses", ["city", "taxe", "glasse"]),
        ("bus gas focus this", ["bus", "gas", "focus"]),
        ("U.S. 1,000 naïve_café don't", ["u", "s", "1", "000", "naïve", "café", "don", "t"]),
        ("日本 ÄÖ", ["日本", "äö"]),
        ("", []),
        ("the of and", []),
    ],
)
def test_terms_are_lower_case_words_without_stop_words_and_plurals(text: str, terms: list[str]) -> None:
    assert plain_english(text) == terms
