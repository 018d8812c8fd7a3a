from __future__ import annotations

import re

import pytest

from wikidx.corpora.known import sample
from wikidx.indexer.analysis.english import english
from wikidx.retrievers.highlight import find_highlights


@pytest.mark.parametrize(
    ("text", "queries", "words"),
    [
        ("rivers, the river's bank\n\nand a RIVER", ["river"], ["rivers", "river's", "RIVER"]),
        ("the bank of the Nile", ["the river", "of banks"], ["bank"]),
        ("𝒳 a 🦊 fox, نهر النيل", ["foxes", "النيل"], ["fox", "النيل"]),
        ("", ["river"], []),
        ("a river", ["the of"], []),
    ],
)
def test_words_that_share_a_term_with_a_query_are_marked(text: str, queries: list[str], words: list[str]) -> None:
    (spans,) = find_highlights([text], queries)
    assert [text[start:end] for start, end in spans] == words


def test_they_are_the_words_by_which_bm25_finds_a_passage() -> None:
    texts, query = [passage.text for passage in sample.passages()][:200], "the metals and the river's whales"
    for text, spans in zip(texts, find_highlights(texts, [query]), strict=True):
        expected = [word for word in re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text) if {*english(query)} & {*english(word)}]
        assert [text[start:end] for start, end in spans] == expected
