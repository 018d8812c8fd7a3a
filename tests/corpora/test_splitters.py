from __future__ import annotations

import re
from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import read_rows
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.splitters import SPLITTERS, split_sections

LETTERS = st.text("abcdefgh", min_size=1, max_size=3)
WORDS = st.lists(LETTERS, max_size=60)
LENGTH = st.integers(1, 12)
SECTIONS = st.lists(st.tuples(LETTERS.map(str.capitalize), st.lists(LETTERS, min_size=1, max_size=30)), max_size=5)


def article(text: str) -> Passage:
    return Passage("7", "Sun", text)


def blocks(rule: str, text: str, n_words: int) -> list[str]:
    return [passage.text for passage in SPLITTERS[rule](article(text), n_words)]


@pytest.mark.parametrize(("text", "expected"), read_rows("corpora/sections.jsonl"))
def test_sections(text: str, expected: list[list[str]]) -> None:
    assert [[passage.title, passage.text] for passage in split_sections(article(text), 100)] == expected


def test_long_marked_line_takes_no_time() -> None:
    line = "== " + " " * 200_000 + "x"
    assert blocks("sections", f"lead\n{line}\nend", 100) == ["lead == x end"]


@pytest.mark.parametrize("rule", SPLITTERS)
@pytest.mark.parametrize("text", ["", " \n\n\t"])
def test_article_without_words_gives_nothing(rule: str, text: str) -> None:
    assert blocks(rule, text, 100) == []


@pytest.mark.parametrize("rule", SPLITTERS)
def test_ids_count_from_0_behind_the_article_id(rule: str) -> None:
    passages = list(SPLITTERS[rule](article("a b c d\n== Core ==\ne f g"), 2))
    assert [passage.id for passage in passages] == [f"7#{n}" for n in range(len(passages))]
    assert {passage.title for passage in passages} == ({"Sun", "Sun: Core"} if rule == "sections" else {"Sun"})
    assert len(passages) >= 4


@given(st.text(), LENGTH)
def test_words_joined_again_are_the_article(text: str, n_words: int) -> None:
    found = [block.split() for block in blocks("words", text, n_words)]
    assert [word for block in found for word in block] == text.split()
    assert all(len(block) == n_words for block in found[:-1])


@given(WORDS, LENGTH)
def test_dpr_blocks_have_all_the_same_length_and_wrap(words: list[str], n_words: int) -> None:
    found = [block.split() for block in blocks("dpr", " ".join(words), n_words)]
    if len(words) < n_words:
        assert found == ([words] if words else [])
    else:
        assert [word for block in found for word in block] == (words + words)[: -(-len(words) // n_words) * n_words]
        assert all(len(block) == n_words for block in found)


@given(WORDS, SECTIONS, LENGTH, st.sampled_from(["== {} ==", "==={}===", "{}."]))
def test_sections_are_cut_into_nearly_equal_parts_and_never_crossed(
    lead: list[str], sections: list[tuple[str, list[str]]], n_words: int, mark: str
) -> None:
    expected = [("Sun", ["lead", *lead]), *((f"Sun: {heading}", words) for heading, words in sections)]
    text = "\n".join([" ".join(expected[0][1]), *(f"{mark.format(heading)}\n{' '.join(words)}" for heading, words in sections)])
    passages = iter(split_sections(article(text), n_words))
    for title, words in expected:
        parts = [next(passages) for _ in range(-(-len(words) // n_words))]
        assert {part.title for part in parts} == {title}
        assert [word for part in parts for word in part.text.split()] == words
        lengths = [len(part.text.split()) for part in parts]
        assert max(lengths) <= n_words
        assert max(lengths) - min(lengths) <= 1
    assert list(passages) == []


@given(st.lists(st.one_of(st.text(), st.sampled_from(["== A ==", "Core.", "a b", "=="])), max_size=8).map("\n".join), LENGTH)
def test_sections_lose_no_word_of_any_text(text: str, n_words: int) -> None:
    assert_only_headings_left_the_text(text, list(split_sections(article(text), n_words)))


def assert_only_headings_left_the_text(text: str, passages: list[Passage]) -> None:
    """Every word of the text is in a passage as often as in the text, but for lines that became the heading of a passage."""
    found = [(title, [word for passage in group for word in passage.text.split()]) for title, group in groupby(passages, lambda p: p.title)]
    in_passages = Counter(word for _, words in found for word in words)
    headings = {title.partition(": ")[2] for title, _ in found}
    lines = [line.strip() for line in text.splitlines()]
    in_headings = Counter(word for line in lines if re.sub(r"^=+\s*|\s*=+$|\.$", "", line) in headings for word in line.split())
    in_text = Counter(text.split())
    assert not in_passages - in_text
    assert not in_text - in_passages - in_headings
