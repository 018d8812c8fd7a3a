from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.readers import read
from wikidx.corpora.reading.splitters import SPLITTERS, split_dpr, split_sections, split_words

LETTERS = st.text("abcdefgh", min_size=1, max_size=3)
WORDS = st.lists(LETTERS, max_size=60)
LENGTH = st.integers(1, 12)
SECTIONS = st.lists(st.tuples(LETTERS.map(str.capitalize), st.lists(LETTERS, min_size=1, max_size=30)), max_size=5)


def article(text: str) -> Passage:
    return Passage("7", "Sun", text)


def blocks(rule: str, text: str, n_words: int) -> list[str]:
    return [passage.text for passage in SPLITTERS[rule](article(text), n_words)]


@pytest.mark.parametrize(
    ("rule", "text", "n_words", "expected"),
    [
        pytest.param("words", " a\n\tb\u00a0c ", 2, ["a b", "c"], id="words: a shorter rest"),
        pytest.param("dpr", "a b c d e f g", 3, ["a b c", "d e f", "g a b"], id="dpr: the rest is filled from the beginning"),
        pytest.param("sections", "a b c d e f g", 3, ["a b", "c d", "e f g"], id="sections: parts of nearly equal length"),
    ],
)
def test_blocks(rule: str, text: str, n_words: int, expected: list[str]) -> None:
    assert blocks(rule, text, n_words) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("lead\n== Core ==\nhot", [("Sun", "lead"), ("Sun: Core", "hot")], id="marked heading"),
        pytest.param("lead\n====Deep core====\nhot", [("Sun", "lead"), ("Sun: Deep core", "hot")], id="deep heading without spaces"),
        pytest.param("lead\nThe core.\nhot", [("Sun", "lead"), ("Sun: The core", "hot")], id="WikiExtractor's heading"),
        pytest.param("lead\n\n\nThe core.\n\nhot\n\ncold", [("Sun", "lead"), ("Sun: The core", "hot cold")], id="blank lines"),
        pytest.param("lead\r\nThe core.\r\nhot\r\n", [("Sun", "lead"), ("Sun: The core", "hot")], id="CRLF"),
        pytest.param("Sun\n\nlead\nCore.\nhot", [("Sun", "Sun lead"), ("Sun: Core", "hot")], id="title line stays in the lead"),
        pytest.param("Sun.\nlead", [("Sun", "Sun. lead")], id="first line is never a heading"),
        pytest.param("lead\nCore.\nInner.\nhot", [("Sun", "lead Core."), ("Sun: Inner", "hot")], id="nested headings"),
        pytest.param("lead\nhot\nCore.", [("Sun", "lead hot Core.")], id="heading without a body"),
        pytest.param("lead\n== ==\nhot", [("Sun", "lead == == hot")], id="marks around nothing"),
        pytest.param("lead\n== A = B ==\nhot", [("Sun", "lead == A = B == hot")], id="mark inside a heading"),
        pytest.param("lead\n= Core =\nhot", [("Sun", "lead = Core = hot")], id="mark of a title"),
        pytest.param("lead\nhot is it.\ncold", [("Sun", "lead hot is it. cold")], id="lower-case line"),
        pytest.param("lead\nIs it? Yes.\ncold", [("Sun", "lead Is it? Yes. cold")], id="two sentences"),
        pytest.param("lead\nA b c d e f g h.\nx", [("Sun", "lead"), ("Sun: A b c d e f g h", "x")], id="heading of eight words"),
        pytest.param("lead\nA b c d e f g h i.\nx", [("Sun", "lead A b c d e f g h i. x")], id="line of nine words"),
        pytest.param("lead\nCore.\nhot\nCore.\ncold", [("Sun", "lead"), ("Sun: Core", "hot"), ("Sun: Core", "cold")], id="heading twice"),
    ],
)
def test_sections(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(passage.title, passage.text) for passage in split_sections(article(text), 100)] == expected


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


def test_real_articles(shared_data: Path) -> None:
    for found in read(shared_data / "wikiextractor" / "wiki_00.gz", "wikiextractor"):
        real = found.passage
        words = real.text.split()
        assert [word for passage in split_words(real, 100) for word in passage.text.split()] == words
        wrapped = [passage.text.split() for passage in split_dpr(real, 100)]
        assert {len(block) for block in wrapped} == {min(100, len(words))}
        assert [word for block in wrapped for word in block][: len(words)] == words
        passages = list(split_sections(real, 100))
        assert all(len(passage.text.split()) <= 100 for passage in passages)
        assert_only_headings_left_the_text(real.text, passages)
