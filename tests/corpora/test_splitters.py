from __future__ import annotations

import re
from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import read_rows
from wikidx.base.errors import IdxError, InputError
from wikidx.corpora.passage import LocatedPassage, Passage
from wikidx.corpora.reading.document import Document, Heading, LocatedDocument
from wikidx.corpora.reading.splitters import SPLITTERS, Split, Tokenizer, split

LETTERS = st.text("abcdefgh", min_size=1, max_size=3)
WORDS = st.lists(LETTERS, max_size=60)
LENGTH = st.integers(1, 12)
SECTIONS = st.lists(st.tuples(LETTERS.map(str.capitalize), st.lists(LETTERS, min_size=1, max_size=30)), max_size=5)


# Tokens of at most three letters, so that words have several.
LETTER_TOKENS = Tokenizer("made", lambda text: [match.span() for match in re.finditer(r"\w{1,3}|[^\w\s]", text)])


def located(rule: str, document: Document) -> list[LocatedPassage]:
    return list(split([LocatedDocument(document, "f", 3)], Split.parse(rule, LETTER_TOKENS)))


def passages_of(rule: str, text: str) -> list[Passage]:
    return [each.passage for each in located(rule, Document("7", "Sun", text))]


def blocks(rule: str, text: str, n_words: int) -> list[str]:
    return [passage.text for passage in passages_of(f"{rule}:{n_words}", text)]


@pytest.mark.parametrize(("text", "expected"), read_rows("corpora/sections.jsonl"))
def test_sections(text: str, expected: list[list[str]]) -> None:
    assert [[passage.title, passage.text] for passage in passages_of("sections", text)] == expected


def test_long_marked_line_takes_no_time() -> None:
    line = "== " + " " * 200_000 + "x"
    assert blocks("sections", f"lead\n{line}\nend", 100) == ["lead == x end"]


@pytest.mark.parametrize("rule", [rule.example for rule in SPLITTERS.values()])
@pytest.mark.parametrize("text", ["", " \n\n\t"])
def test_article_without_words_gives_nothing(rule: str, text: str) -> None:
    assert passages_of(rule, text) == []


@pytest.mark.parametrize("rule", ["words", "dpr", "sections"])
def test_ids_count_from_0_behind_the_article_id(rule: str) -> None:
    passages = passages_of(f"{rule}:2", "a b c d\n== Core ==\ne f g")
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
    passages = iter(passages_of(f"sections:{n_words}", text))
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
    assert_only_headings_left_the_text(text, passages_of(f"sections:{n_words}", text))


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


PIECES = st.sampled_from(
    ["a", "bc", "defghij", "Klmnopqrst", ".", "!", "?", " ", "  ", "\n", "\n\n", "\t", "\u3000", "\x1c", "é", "水。", "== A ==", "B."]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join)
RULES = ["words:3", "dpr:3", "sections:3", "sentences:2", "tokens:4", "tokens:5:2", "tokens:1", "headings", "pages"]


@st.composite
def documents(draw: st.DrawFn) -> Document:
    parts = draw(st.lists(TEXTS, max_size=6))
    text, pages, headings = "", [], []
    for part in parts:
        if draw(st.booleans()):
            pages.append(len(text))
        if draw(st.booleans()):
            title = draw(LETTERS)
            headings.append(Heading(len(text), draw(st.integers(1, 3)), title))
            text += f"{title}\n"
        text += part
    return Document("7", "Sun", text, tuple(pages), tuple(headings))


@given(documents(), st.sampled_from(RULES))
def test_spans_are_exact_and_nothing_is_lost(document: Document, rule: str) -> None:
    found = located(rule, document)
    assert [each.passage.id for each in found] == [f"7#{n}" for n in range(len(found))]
    end, words = 0, document.text.split()
    for (passage, file, line, span), is_last in zip(found, [*[False] * (len(found) - 1), True], strict=False):
        assert span is not None
        text = document.text[span.start : span.end]
        if rule.startswith(("words", "dpr", "sections")):
            padding = words[: 3 - len(text.split())] if rule == "dpr:3" and is_last and len(words) > 3 else []
            assert passage.text.split() == text.split() + padding
        else:
            assert passage.text == text == text.strip() != ""
        assert (file, line, span.document) == ("f", 3, "7")
        assert span.page == sum(start <= span.start for start in document.pages[1:]) + (document.pages != ())
        assert rule.startswith("tokens:5") or not document.text[end : span.start].strip() or rule == "sections:3"
        assert span.end > end
        end = span.end
    assert not document.text[end:].strip() or rule == "sections:3"


@given(documents(), st.sampled_from(["tokens:4", "tokens:5:2", "tokens:1"]))
def test_tokens_are_counted_and_shared(document: Document, rule: str) -> None:
    size, overlap = map(int, f"{rule}:0".split(":")[1:3])
    places = [(each.span.start, each.span.end) for each in located(rule, document) if each.span]
    tokens = LETTER_TOKENS.offsets(document.text)
    within = [[token for token in tokens if start <= token[0] and token[1] <= end] for start, end in places]
    assert all(len(found) <= size for found in within)
    assert [token for token in tokens if not any(token in found for found in within)] == []
    for before, after in zip(within, within[1:], strict=False):
        assert len({*before} & {*after}) >= overlap


def test_tokens_end_at_a_word_that_is_not_too_long() -> None:
    assert [each.text for each in passages_of("tokens:4", "abcdef ghijkl mnopqrstuvwxyzabc de")] == [
        "abcdef ghijkl",
        "mnopqrstuvwx",
        "yzabc de",
    ]
    assert [each.text for each in passages_of("tokens:4:1", "ab cd ef ghi jk lm no")] == ["ab cd ef ghi", "ghi jk lm no"]
    assert [each.text for each in passages_of("tokens:2", "水水水")] == ["水水水"]  # one word of the made tokenizer


GUIDE = "Lead.\nGuide\nInstall\nRun it.\n\nRemove\nDelete it.\nEnd"
HEADINGS = tuple(Heading(GUIDE.index(text), level, text) for text, level in (("Guide", 1), ("Install", 2), ("Remove", 2), ("End", 1)))


def test_passages_by_headings_have_their_paths() -> None:
    found = located("headings", Document("7", "Sun", GUIDE, (0, GUIDE.index("Run")), HEADINGS))
    assert [(each.passage.text, each.span and each.span.heading, each.span and each.span.page) for each in found] == [
        ("Lead.", "", 1),
        ("Guide\nInstall\nRun it.", "Guide > Install", 1),
        ("Remove\nDelete it.", "Guide > Remove", 2),
        ("End", "End", 2),
    ]
    assert {each.passage.title for each in found} == {"Sun"}
    marked = Document("7", "Sun", "# Guide\n\n## Install\nRun it.", (), (Heading(0, 1, "Guide"), Heading(9, 2, "Install")))
    assert [each.span and each.span.heading for each in located("headings", marked)] == ["Guide > Install"]


def test_passages_by_pages() -> None:
    assert [each.text for each in passages_of("pages", " a b\n")] == ["a b"]
    found = located("pages", Document("7", "Sun", "ab\n\x0ccd", (0, 3, 6), ()))
    assert [(each.passage.text, each.span and each.span.page) for each in found] == [("ab", 1), ("cd", 2)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One is. Two is! Is three? four", ["One is. Two is!", "Is three? four"]),
        ("Wrapped\nat a line. Dr. Who\n\nA list\n- of items", ["Wrapped\nat a line. Dr. Who", "A list\n- of items"]),
        ("水は青い。空も。海も。", ["水は青い。空も。", "海も。"]),
    ],
)
def test_passages_of_two_sentences(text: str, expected: list[str]) -> None:
    assert [each.text for each in passages_of("sentences:2", text)] == expected


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("word", "unknown splitting rule 'word'"),
        ("words:0", "the splitting rule is 'words:0': a passage needs one of the words of its own, as in 'words:100'"),
        ("words:5:1", "write it as 'words:100'"),
        ("words:-1", "write it as 'words:100'"),
        ("words:1000000000000", "write it as 'words:100'"),
        ("sentences", "write it as 'sentences:5'"),
        ("tokens:", "write it as 'tokens:256:32'"),
        ("tokens:8:8", "a passage needs one of the tokens of its own"),
        ("pages:2", "write it as 'pages'"),
        ("none:1", "write it as 'none'"),
    ],
)
def test_rules_that_say_nothing_are_refused(rule: str, message: str) -> None:
    with pytest.raises(IdxError, match=re.escape(message)):
        Split.parse(rule)


@pytest.mark.parametrize(
    "rule", ["none", "words", "words:64", "dpr", "sections:7", "sentences:5", "tokens:9", "tokens:9:2", "headings", "pages"]
)
def test_rules_are_written_as_they_are_read(rule: str) -> None:
    assert str(Split.parse(rule)) == rule
    assert str(Split.parse("words:100")) == "words"
    assert Split.parse("tokens:9", LETTER_TOKENS).parameters == {"split": "tokens:9", "tokenizer": "made"}
    assert Split.parse("dpr").parameters == {"split": "dpr", "words": 100}  # as stores have recorded it from the beginning


def test_tokens_need_a_tokenizer() -> None:
    with pytest.raises(InputError, match="'tokens:9' counts the tokens of an encoder: name it with --encoder NAME"):
        list(split([LocatedDocument(Document("7", "", "a"), "f", 1)], Split.parse("tokens:9")))
