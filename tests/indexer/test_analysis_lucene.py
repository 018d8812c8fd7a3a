"""Our analysis against Lucene's own, run in Java: the same terms for the same texts, without exception."""

from __future__ import annotations

import itertools
import json
import random
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indexer.real_collections import COLLECTIONS
from tests.indexer.test_analysis import CASES, STEMS, numbers_of
from tests.lucene.jvm import java_class, read_json, require_java
from wikidx.indexer.analysis.characters import CLASSES, OTHER, class_table
from wikidx.indexer.analysis.english import TermNumbers, english

pytestmark = pytest.mark.slow  # Java

require_java()

SENTINEL = "zqz"  # a line of its own between texts; its term is the word itself
BATCH_CHARACTERS = 1_000_000


def batched(texts: Iterable[str]) -> Iterator[list[str]]:
    batch, size = list[str](), 0
    for text in texts:
        batch.append(text)
        size += len(text) + len(SENTINEL) + 2
        if size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def lucene_terms(texts: Sequence[str], analyzer: Any = None) -> list[list[str]]:  # noqa: ANN401 - a Java object
    """Return each text's terms by Anserini's analyzer (or another), all in one call: every crossing into Java costs."""

    used = analyzer or java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    terms = java_class("io.anserini.analysis.AnalyzerUtils").analyze(used, f"\n{SENTINEL}\n".join(texts))
    by_text: list[list[str]] = [[]]
    for term in json.loads(read_json(terms)):
        if term == SENTINEL:
            by_text.append([])
        else:
            by_text[-1].append(term)
    assert len(by_text) == len(texts)
    return by_text


def differences(texts: Iterable[str]) -> list[tuple[str, list[str], list[str]]]:
    """Return the first texts whose terms differ, with ours and Lucene's."""
    found = []
    for batch in batched(texts):
        ours, theirs = numbers_of(TermNumbers(), batch), lucene_terms(batch)
        found += [(text, our, their) for text, our, their in zip(batch, ours, theirs, strict=True) if our != their]
        if len(found) > 5:
            break
    return found[:5]


class Strings:
    """Seeded strings of hard cases: characters of all classes mixed, emoji, apostrophes, numbers, endings, words of any length."""

    SUFFIXES = (
        "s es ies sses eed ed ing ational tional enci anci izer bli abli alli entli eli ousli ization ation ator alism iveness fulness "
        "ousness aliti iviti biliti logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent sion tion "
        "ion ou ism ate iti ous ive ize e ll y ying 's ’s ＇S s' 'd at bl iz"
    ).split()
    EMOJI = "👍 👍🏽 👩‍👩‍👧 👩🏽‍🚀 🏳️‍🌈 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪 🇩🇪🇫🇷🇬 1️⃣ #️⃣ *⃣ ☝︎ ❤️ ❤ ©️ ™ ℹ️ Ⓜ 🏿".split()
    WORDS = "The of İt Kelvin U.S.A. can't O’Neill's rock'n'roll 1,000.5 3:45 1e-5 a_b __x C++ naïve ÉCOLE ΣΊΣΥΦΟΣ straße 𐐀𐐁ing".split()
    SCRIPTS = "日本語 ひらがな カタカナ ｶﾀｶﾅ 한국어 ภาษาไทย ខ្មែរ မြန်မာ ລາວ צה״ל צה\"ל ג'ירפה العربية हिन्दी தமிழ் é y̆ e\u0301\u0327".split()
    INVISIBLE = ["\u00ad", "\u200b", "\ufeff", "\u2028", "\x00", "\x85"]
    MIXTURES = ("".join(CLASSES.values()), "plmzstox#r", "plzms", "ahnk_:,.'\"xz", "hn'\".")  # classes by their codes

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        classes = class_table()
        self._members = {code: np.flatnonzero(classes == number) for number, code in enumerate(CLASSES.values())}
        self._members[" "] = np.setdiff1d(self._members[" "], np.arange(0xD800, 0xE000))

    def _mixture(self) -> str:
        codes = self._random.choices(self._random.choice(self.MIXTURES), k=self._random.randrange(1, 8))
        return "".join(chr(self._random.choice(self._members[code])) for code in codes)

    def _word(self) -> str:
        letters = "".join(self._random.choices("abcdeilnorstuwxyzéßđ𐐨", k=self._random.randrange(1, 6)))
        return letters + "".join(self._random.choices(self.SUFFIXES, k=self._random.randrange(3)))

    def _long(self) -> str:
        characters = self._random.choice(
            ["a", "é", "𐐨", "𐐨a", "7", "_", "カ", "ก", "가", "a.", "1,", "😀\u200d", "e\u0301", "\u0301", "z-"]
        )
        length = self._random.choice([253, 254, 255, 256, 257, 300, 509, 510, 511, 1000])
        return ("x" * self._random.randrange(3) + characters * length)[:length] + self._random.choice(
            ["", "b", "𐐨", "'s", "\u0301", "_a", ".b"]
        )

    def _piece(self) -> str:
        kind = self._random.random()
        if kind < 0.005:
            return self._long()
        if kind < 0.5:
            return self._mixture()
        if kind < 0.7:
            return self._word()
        return self._random.choice(self._random.choice([self.EMOJI, self.WORDS, self.SCRIPTS, self.INVISIBLE, list("'’.:,;\"_ \n-")]))

    def some(self, n: int) -> Iterator[str]:
        for _ in range(n):
            pieces = [self._piece() for _ in range(self._random.randrange(1, 12))]
            yield self._random.choice(["", "", " "]).join(pieces)


def in_contexts(code_point: int) -> str:
    """Return text with a character alone, doubled, and next to characters that it may join or part."""
    it = chr(code_point)
    contexts = (
        "{0} {0}{0} a{0}b 1{0}2 א{0}ב カ{0}カ _{0}_ ก{0}ก 漢{0} 😀{0}😀 \u200d{0} 😀\u200d{0} 😀\ufe0f{0} {0}\u20e3 🇩{0}🇪 א{0} b{0}s {0}ing"
    )
    return contexts.format(it)


def sequences_of_classes(length: int, seed: int) -> Iterator[str]:
    """Yield texts for all sequences of classes, each with some member of each class, a hundred to a text."""
    choose = random.Random(seed)
    classes = class_table()
    members = [np.flatnonzero(classes == number)[:500].tolist() for number in range(1, len(CLASSES))]
    texts = ("".join(chr(choose.choice(of_class)) for of_class in sequence) for sequence in itertools.product(members, repeat=length))
    while hundred := list(itertools.islice(texts, 100)):
        yield " \n".join(hundred)


def real_texts(name: str, data: Path) -> list[str]:
    return [f"{passage.title}\n{passage.text}" for passage in COLLECTIONS[name](data).passages]


@pytest.mark.parametrize(
    ("name", "n"),
    [("dpr_union", 33_888), ("cacm", 3_204), ("nfcorpus", 3_633), pytest.param("wiki_intro", 178_775, marks=pytest.mark.exhaustive)],
)
def test_terms_of_all_real_texts_are_those_of_lucene(name: str, n: int, shared_data: Path) -> None:
    texts = real_texts(name, shared_data)
    assert len(texts) == n
    assert differences(texts) == []


@pytest.mark.parametrize(("seed", "n"), [(0, 60_000), *(pytest.param(seed, 200_000, marks=pytest.mark.exhaustive) for seed in range(3))])
def test_terms_of_many_strange_texts_are_those_of_lucene(seed: int, n: int) -> None:
    assert differences(Strings(seed).some(n)) == []


@pytest.mark.parametrize("step", [64, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_every_character_parts_and_joins_as_in_lucene(step: int) -> None:
    """Most code points are ideographs, no characters or private, and one part words like the other: of these each ``step``-th is tried."""
    classes, ideograph = class_table(), list(CLASSES).index("Ideograph")
    are_alike = classes == ideograph
    are_alike[[point for point in np.flatnonzero(classes == OTHER).tolist() if unicodedata.category(chr(point)) in ("Cn", "Co")]] = True
    tried = (point for point in range(0x110000) if not 0xD800 <= point < 0xE000 and (point % step == 0 or not are_alike[point]))
    assert differences(map(in_contexts, tried)) == []


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_sequences_of_all_classes_part_and_join_as_in_lucene(length: int) -> None:
    assert differences(sequences_of_classes(length, seed=length)) == []


@pytest.mark.parametrize("characters", ["a", "é", "𐐨", "_", "カ", "ก", "👩\u200d", "\u0301", "1,"])
def test_long_words_are_cut_as_in_lucene(characters: str) -> None:
    texts = [f"{before}{characters * length} c" for before in ("", "b", "bb") for length in (*range(120, 131), *range(250, 261), 510, 1000)]
    assert differences(texts) == []


def test_texts_joined_have_the_terms_that_they_have_alone(shared_data: Path) -> None:
    texts = [*random.Random(2).sample(real_texts("nfcorpus", shared_data), 50), *Strings(9).some(200)]
    alone = [terms for text in texts for terms in lucene_terms([text])]
    assert alone == lucene_terms(texts) == [english(text) for text in texts]


def test_a_lone_surrogate_parts_words_as_in_lucene(tmp_path: Path) -> None:
    """Such a string cannot be handed to Java, so Java is told to make surrogates of private characters."""
    surrogates = [0xD800, 0xD83D, 0xDBFF, 0xDC00, 0xDE00, 0xDFFF]
    (tmp_path / "mapping.txt").write_text("".join(f'"\\u{0xE000 + i:04X}" => "\\u{point:04X}"\n' for i, point in enumerate(surrogates)))

    options, none = java_class("java.util.HashMap")(), java_class("java.util.HashMap")
    options.put("mapping", "mapping.txt")
    builder = java_class("org.apache.lucene.analysis.custom.CustomAnalyzer").builder(java_class("java.io.File")(str(tmp_path)).toPath())
    builder = builder.addCharFilter("mapping", options).withTokenizer("standard", none())
    for name in ("englishPossessive", "lowercase", "stop", "porterStem"):
        builder = builder.addTokenFilter(name, none())
    mapped = ["{}", "a{}b", "ab{}", "{}ab", "1{}2 _{}_", "👩{}👩", "a{}ing's {}{}s x", "a" * 254 + "{}b", "a" * 255 + "{}b"]
    texts = [text.replace("{}", chr(0xE000 + i)) for text in mapped for i in range(len(surrogates))]
    lone = [text.replace("{}", chr(point)) for text in mapped for point in surrogates]
    assert numbers_of(TermNumbers(), lone) == lucene_terms(texts, builder.build())


def test_the_hand_written_cases_are_what_lucene_answers() -> None:
    assert lucene_terms([text for text, _ in CASES]) == [terms.split(" ") * (terms != "") for _, terms in CASES]
    words, stems = zip(*STEMS, strict=True)
    assert lucene_terms(words) == [[stemmed] for stemmed in stems]
