"""The sentences of a text, and its words."""

from __future__ import annotations

import time

import pytest

from wikidx.runtimes.methods.sentences import normalize_words, sentence_spans, split_sentences


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("  One.\n\n Two \n", ["One.", "Two"]),
        ("It lies in the U.S. state of Ohio. It is old.", ["It lies in the U.S. state of Ohio.", "It is old."]),
        ("J. S. Bach wrote it. He died.", ["J. S. Bach wrote it.", "He died."]),
        ("St. Paul met Dr. Who at 3.5 km. Then he left.", ["St. Paul met Dr. Who at 3.5 km.", "Then he left."]),
        ("He came, saw etc. and left. Why?", ["He came, saw etc. and left.", "Why?"]),
        ('He said "No." Then (so it goes.) They left.', ['He said "No."', "Then (so it goes.)", "They left."]),
        ("彼は東京で生まれた。彼女は京都で生まれた。", ["彼は東京で生まれた。", "彼女は京都で生まれた。"]),
        ("Żuławski był reżyserem. Łódź leży w Polsce.", ["Żuławski był reżyserem.", "Łódź leży w Polsce."]),
        ("Yahoo! was first. He waited ... and left (at 5 p.m. sharp).", ["Yahoo! was first.", "He waited ... and left (at 5 p.m. sharp)."]),
        ("See No. 5. The answer is no. He left.", ["See No. 5.", "The answer is no.", "He left."]),
        ("(a). b", ["(a). b"]),
        (". A", [".", "A"]),
        ("no end", ["no end"]),
        ("...", ["..."]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences_end_where_a_reader_sees_their_end(text: str, parts: list[str]) -> None:
    assert split_sentences(text) == parts
    assert [text[start:end] for start, end in sentence_spans(text)] == parts


@pytest.mark.parametrize(
    ("text", "levelled"),
    [
        (" Who  wrote\n“Dracula”? ", "who wrote dracula"),
        ("Ｙｅｓ!", "yes"),
        ("U.S.-born", "u s born"),
        ("कि", "कि"),
        ("STRASSE Straße", "strasse strasse"),
        ("?!…", ""),
    ],
)
def test_words_level_case_marks_and_forms(text: str, levelled: str) -> None:
    assert normalize_words(text) == levelled


def test_a_long_text_takes_no_more_than_its_length() -> None:
    text = "a.b. " * 50_000 + "." * 100_000 + '."' * 50_000 + "A. B" * 50_000
    started = time.perf_counter()
    assert split_sentences(text)
    assert time.perf_counter() - started < 5
