from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT, read_rows
from wikidx.indexer.analysis import ENGLISH
from wikidx.indexer.analysis.automaton import DEAD, START, compile_pattern
from wikidx.indexer.analysis.characters import CLASSES, class_table, lower_case_table
from wikidx.indexer.analysis.english import ANALYZER, TermNumbers, english
from wikidx.indexer.analysis.numbering import number_terms
from wikidx.indexer.analysis.terms import STOP_WORDS
from wikidx.indexer.analysis.tokens import PATTERN, next_token, token_rules

# What Lucene answers; test_analysis_lucene holds each case to it.
CASES = read_rows("indexer/analysis.jsonl")
STEMS = read_rows("indexer/stems.jsonl")


def terms_of(numbers: TermNumbers) -> list[str]:
    pool, ends = numbers.table()
    return [pool[begin:end].tobytes().decode("utf-8") for begin, end in pairwise([0, *ends.tolist()])]


def numbers_of(numbers: TermNumbers, texts: Sequence[str]) -> list[list[str]]:
    """Number the terms of texts and look the numbers up again."""
    in_order, ends = numbers.add(texts)
    assert (in_order.dtype.name, ends.dtype.name, ends.shape) == ("int32", "int64", (len(texts),))
    terms = terms_of(numbers)
    return [[terms[number] for number in of_text] for of_text in np.split(in_order, ends)[:-1]]


@pytest.mark.parametrize(("text", "terms"), CASES)
def test_terms_are_those_of_lucene(text: str, terms: str) -> None:
    assert english(text) == terms.split(" ") * (terms != "")


@pytest.mark.parametrize(("word", "stemmed"), STEMS)
def test_stems_are_those_of_the_paper_and_its_departures(word: str, stemmed: str) -> None:
    assert english(word) == [stemmed]


def test_stop_words_go_in_any_case_and_stems_that_look_like_them_stay() -> None:
    assert len(STOP_WORDS) == 33
    assert english(" ".join([*STOP_WORDS, *map(str.upper, STOP_WORDS), *map(str.title, STOP_WORDS)])) == []
    assert english("ins being notes, anded as's 慳") == ["in", "be", "note", "and", "慳"]


@given(st.text(alphabet=[code for code in CLASSES.values() if code != " "] + [" "], max_size=12))
def test_tokens_are_the_longest_matches_of_the_grammar(codes: str) -> None:
    """Checked with Python's own regular expressions, trying all ends."""
    classes = class_table()
    some_member = {code: int(np.flatnonzero(classes == number)[-1]) for number, code in enumerate(CLASSES.values())}
    points = np.array([some_member[code] for code in codes], dtype=np.uint32)
    at, rules = 0, token_rules()
    while at < len(codes):
        ends = [end for end in range(len(codes), at, -1) if re.fullmatch(PATTERN, codes[at:end])]
        if not ends:
            at += 1
            continue
        assert next_token(points, at, len(points), rules) == (at, ends[0])
        at = ends[0]


@pytest.mark.parametrize("length", [254, 255, 256, 257, 510, 511, 1000])
def test_words_are_cut_after_255_units_of_utf_16(length: int) -> None:
    assert [len(term) for term in english("ж" * length)] == [255] * (length // 255) + [length % 255] * (length % 255 > 0)
    pairs = [len(term) for term in english("𐐨" * length)]
    assert pairs == [127] * (length // 127) + [length % 127] * (length % 127 > 0)


def test_what_a_word_needs_is_looked_for_no_further_than_255_units() -> None:
    assert english("_" * 300 + "b") == ["_" * 254 + "b"]
    assert english("a" + "\u0301" * 254 + "b") == ["a" + "\u0301" * 254, "b"]
    assert english("a" * 253 + ".b c") == ["a" * 253 + ".b", "c"]
    assert english("a" * 254 + ".b c") == ["a" * 254, "b", "c"]


def test_a_lone_surrogate_parts_words() -> None:
    assert english("a\ud800b \udc00 x\ud83d\ude00y") == ["b", "x", "y"]


def test_numbers_go_up_as_terms_appear_and_stay() -> None:
    numbers = TermNumbers()
    assert numbers_of(numbers, ["the Rivers of Europe", "", "rivers, cities"]) == [["river", "europ"], [], ["river", "citi"]]
    in_order, ends = numbers.add(["A city in Europe", "and Asia's cities"])
    assert (in_order.tolist(), ends.tolist()) == ([2, 1, 3, 2], [2, 4])
    assert (len(numbers), terms_of(numbers)) == (4, ["river", "europ", "citi", "asia"])


def test_a_table_stays_as_it_is_when_terms_are_added() -> None:
    numbers = TermNumbers()
    numbers.add(["four two three"])
    table = numbers.table()
    before = (table.pool.tobytes(), table.ends.tolist())
    numbers.add([f"x{i}" for i in range(10_000)])
    assert (table.pool.tobytes(), table.ends.tolist()) == before == (b"fourtwothree", [4, 7, 12])


def test_many_and_long_terms_are_all_kept() -> None:
    """Enough to enlarge the table many times, within texts and between them; numbers as words have no stem."""
    words = [f"{i:x}9" + "ж" * (i % 250) for i in range(30_000)]
    texts = [" ".join(words[i : i + 7000]) for i in range(0, len(words), 7000)]
    numbers = TermNumbers()
    in_order, ends = numbers.add(texts)
    assert in_order.tolist() == list(range(len(words)))
    assert ends.tolist() == [7000, 14_000, 21_000, 28_000, 30_000]
    assert terms_of(numbers) == words
    again, _ = numbers.add([" ".join(reversed(words))])
    assert again.tolist() == list(reversed(range(len(words))))


def test_a_text_of_megabytes_is_analysed() -> None:
    assert english("rivers " * 300_000) == ["river"] * 300_000
    assert len(english("x" * 2_000_000)) == 7844
    assert english("_" * 200_000) == []


@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=40), max_size=6), st.randoms(use_true_random=False))
def test_any_strings_have_the_same_terms_in_any_batches(texts: list[str], choose: random.Random) -> None:
    numbers = TermNumbers()
    split = choose.randrange(len(texts) + 1)
    batches = numbers_of(numbers, texts[:split]) + numbers_of(numbers, texts[split:])
    assert batches == numbers_of(TermNumbers(), texts) == [english(text) for text in texts]
    assert terms_of(numbers) == list(dict.fromkeys(term for of_text in batches for term in of_text))


def test_the_kernels_do_what_their_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for text, _ in CASES] + [
        " ".join(word for pair in STEMS for word in pair),
        "𐐨" * 200 + "s",
        *(f"term{i}" for i in range(300)),
    ]
    compiled = TermNumbers()
    arrays: list[np.ndarray[Any, Any]] = [*compiled.add(texts), *compiled.table()]
    monkeypatch.setattr("wikidx.indexer.analysis.english.number_terms", number_terms.interpreted)
    interpreted = TermNumbers()
    with np.errstate(over="ignore"):
        assert [array.tolist() for array in (*interpreted.add(texts), *interpreted.table())] == [array.tolist() for array in arrays]


def test_importing_compiles_nothing() -> None:
    script = """
import sys
import wikidx.indexer.analysis
assert "numba" not in sys.modules  # the contract is for commands that search nothing, too
from wikidx.indexer.analysis.numbering import number_terms
assert not number_terms.compiled.signatures and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)


def test_lower_case_is_that_of_python_but_for_one_letter() -> None:
    classes = class_table()
    lower = lower_case_table(classes)
    letters = np.flatnonzero(np.isin(classes, [list(CLASSES).index(name) for name in ("ALetter", "Hebrew_Letter", "Pictographic_Letter")]))
    smaller = {point: int(lower[point]) if point < len(lower) else point for point in letters.tolist()}
    assert [point for point, small in smaller.items() if chr(small) != chr(point).lower()] == [0x130]
    assert smaller[0x130] == ord("i")


def test_patterns_are_regular_expressions() -> None:
    automaton = compile_pattern("(a|bc)*[ab]?c", "abc")
    for text in ("c", "ac", "bc", "bcc", "abcac", "aabcbc", "", "a", "b", "ca", "abb"):
        state = START
        for code in text:
            state = int(automaton.moves[state, "abc".index(code)])
        assert bool(automaton.accepting[state]) == (re.fullmatch("(a|bc)*[ab]?c", text) is not None), text
    assert not automaton.accepting[DEAD]


def test_an_index_keeps_the_name_of_the_analysis() -> None:
    assert ENGLISH == ANALYZER.name == "lucene-english"
