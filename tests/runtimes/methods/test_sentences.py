"""The sentences of a text, and its words."""

from __future__ import annotations

import time

import pytest

from tests.conftest import read_rows
from wikidx.runtimes.methods.sentences import normalize_words, sentence_spans, split_sentences


@pytest.mark.parametrize(
    ("text", "parts"),
    read_rows("runtimes/methods/sentences.jsonl"),
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
