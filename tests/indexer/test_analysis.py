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

from tests.conftest import ROOT
from wikidx.indexer.analysis import ENGLISH
from wikidx.indexer.analysis.automaton import DEAD, START, compile_pattern
from wikidx.indexer.analysis.characters import CLASSES, class_table, lower_case_table
from wikidx.indexer.analysis.english import ANALYZER, TermNumbers, english
from wikidx.indexer.analysis.numbering import number_terms
from wikidx.indexer.analysis.terms import STOP_WORDS
from wikidx.indexer.analysis.tokens import PATTERN, next_token, token_rules

# What Lucene answers; test_analysis_lucene holds each case to it.
CASES = [
    # letters and digits (WB5-13)
    ("Mississippi River, 3,766 km long", "mississippi river 3,766 km long"),
    ("rock'n'roll example.com a:b", "rock'n'rol example.com a:b"),
    ("1,000.5 1;2 3:45 5'10 1.a a.1 1e-5", "1,000.5 1;2 3 45 5'10 1 1 1e 5"),
    ("mp3 B2B 4x4 x1.5y", "mp3 b2b 4x4 x1.5y"),
    ("a.b,c;d.e 1.2:3", "a.b c d.e 1.2 3"),
    ("snake_case __init__ _ a_.b 1_000", "snake_cas __init__ a_ b 1_000"),
    ("C++ C# AT&T R&D x-y", "c c t r d x y"),
    ("can''t .net 'quoted' don't", "can t net quot don't"),
    # characters that extend others (WB4)
    ("e\u0301cole E\u0301COLE co\u00adop \u0301x", "e\u0301col e\u0301col co\u00adop x"),
    ("a\u200db 1\u20e3 a\ufe0fb \u200d", "a\u200db 1\u20e3 a\ufe0fb"),
    # Hebrew (WB7a-c)
    ('צה״ל צה"ל ג\'ירפה ג\' א"ב"ג', "צה״ל צה\"ל ג'ירפה ג' א\"ב ג"),
    # Katakana, Hangul, ideographs, South-East Asian scripts
    ("カタカナ カ_タ カa", "カタカナ カ_タ カ"),
    ("한국어 한글abc", "한국어 한글abc"),
    ("日本語 ひらがな 漢a々", "日 本 語 ひ ら が な 漢 a々"),
    ("ภาษาไทย ภาษา1 ลาว", "ภาษาไทย ภาษา 1 ลาว"),
    # emoji (WB3c, WB15, WB16)
    ("👍🏽👍 👩‍👩‍👧x 🏳️‍🌈", "👍🏽 👍 👩‍👩‍👧 x 🏳️‍🌈"),
    ("🇩🇪🇫🇷🇬 #️⃣ 1️⃣ * #", "🇩🇪 🇫🇷 #️⃣ 1️⃣"),
    ("☝︎ ❤️ ❤ © ℹ ℹ️x 🏿", "☝ ❤️ ❤ © ℹ ℹ️x 🏿"),
    (
        "\u200d👍 \u200d\u200d👍\ufe0f\u200d\u200d👍 👍\ufe0f\u200d🏽 👍\ufe0f\u200d\u200d🏽",
        "\u200d👍 \u200d\u200d👍\ufe0f\u200d\u200d👍 👍\ufe0f\u200d🏽 👍\ufe0f 🏽",
    ),
    # possessives
    ("John's JOHN'S John’s John＇s boys' s's 's's", "john john john john boi s s"),
    ("John's's U.S.'s it's", "john' u. s"),
    # lower case, one code point for one
    ("ÉCOLE ΣΊΣΥΦΟΣ İstanbul Straße ÞÓR Ⓐ", "école σίσυφοσ istanbul straße þór ⓐ"),
    ("𐐀𐐁 Ꭰ Ა ＡＢ \u212a", "𐐨𐐩 ꭰ ა ａｂ k"),
    # stop words, after both
    ("The the THE of Of's İt ＴＨＥ the1", "ｔｈｅ the1"),
    # stems
    ("U.S. bus gas as is ties", "u. bu ga ti"),
    ("naïvely ééing aééing a𐐨𐐨ing über's runs1", "naïv ééing aé a𐐨𐐨 über runs1"),
    # what separates
    ("x\x00y a\ue000b a\u200bb c\ufffdd \u0378 1\u2044 2", "x y b b c d 1 2"),
    ("", ""),
    (" .,'\"- \n", ""),
]
STEMS = (
    "caresses:caress ponies:poni ties:ti caress:caress cats:cat feed:feed agreed:agre plastered:plaster bled:bled motoring:motor sing:sing "
    "conflated:conflat troubled:troubl sized:size hopping:hop tanned:tan falling:fall hissing:hiss fizzed:fizz failing:fail filing:file "
    "happy:happi sky:sky relational:relat conditional:condit rational:ration valenci:valenc hesitanci:hesit digitizer:digit "
    "conformabli:conform radicalli:radic differentli:differ vileli:vile analogousli:analog vietnamization:vietnam predication:predic "
    "operator:oper feudalism:feudal decisiveness:decis hopefulness:hope callousness:callous formaliti:formal sensitiviti:sensit "
    "sensibiliti:sensibl triplicate:triplic formative:form formalize:formal electriciti:electr electrical:electr hopeful:hope "
    "goodness:good revival:reviv allowance:allow inference:infer airliner:airlin gyroscopic:gyroscop adjustable:adjust "
    "defensible:defens irritant:irrit replacement:replac adjustment:adjust dependent:depend adoption:adopt homologou:homolog "
    "communism:commun activate:activ angulariti:angular homologous:homolog effective:effect bowdlerize:bowdler probate:probat rate:rate "
    "cease:ceas controll:control roll:roll apology:apolog archaeology:archaeolog possibly:possibl oxen:oxen yyy:yyi sayings:sai "
    "onion:onion ion:ion mission:mission ionion:ionion zziing:zzi"
).split()


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


@pytest.mark.parametrize("pair", STEMS)
def test_stems_are_those_of_the_paper_and_its_departures(pair: str) -> None:
    word, stemmed = pair.split(":")
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
    texts = [text for text, _ in CASES] + [" ".join(STEMS).replace(":", " "), "𐐨" * 200 + "s", *(f"term{i}" for i in range(300))]
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
