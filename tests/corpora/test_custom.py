from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from wikidx.base.errors import InputError
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.passage import BadRecord
from wikidx.corpora.reading.readers import detect_format, fail

DOC = '<doc id="7" url="u" title="Sun">\nSun\n\none two three\nMoons.\nfour five\n</doc>\n'
JSON_ARTICLE = json.dumps({"id": "7", "url": "https://wiki?curid=7", "title": "Sun", "text": "one two three four five"}) + "\n"
PASSAGE = json.dumps({"id": "7", "title": "Sun", "text": "one  two three\nfour five"}) + "\n"


def made_file(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "mine.data"
    path.write_text(content)
    return path


def texts(path: Path, reading: ReadOptions) -> list[tuple[str, str, str]]:
    return [found.passage for found in custom_corpus(path, "mine", reading).read([path], fail)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(DOC, [("7#0", "Sun", "Sun one two three Moons. four five")], id="WikiExtractor"),
        pytest.param(JSON_ARTICLE, [("7#0", "Sun", "one two three four five")], id="WikiExtractor --json"),
        pytest.param(PASSAGE, [("7", "Sun", "one  two three\nfour five")], id="passages are not split"),
        pytest.param("7\tone two three four\tSun\n", [("7", "Sun", "one two three four")], id="rows are not split"),
    ],
)
def test_articles_alone_are_split_by_default(tmp_path: Path, content: str, expected: list[tuple[str, str, str]]) -> None:
    assert texts(made_file(tmp_path, content), ReadOptions()) == expected


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("none", [("7", "Sun", "Sun\n\none two three\nMoons.\nfour five\n")]),
        ("words:4", [("7#0", "Sun", "Sun one two three"), ("7#1", "Sun", "Moons. four five")]),
        ("dpr:4", [("7#0", "Sun", "Sun one two three"), ("7#1", "Sun", "Moons. four five Sun")]),
        ("sections:4", [("7#0", "Sun", "Sun one two three"), ("7#1", "Sun: Moons", "four five")]),
    ],
)
def test_splitting_rule_can_be_chosen(tmp_path: Path, split: str, expected: list[tuple[str, str, str]]) -> None:
    assert texts(made_file(tmp_path, DOC), ReadOptions(split=split)) == expected
    assert len(texts(made_file(tmp_path, PASSAGE), ReadOptions(split=split))) == (1 if split == "none" else 2)  # if asked


def test_named_format_overrides_the_detected_one(tmp_path: Path) -> None:
    path = made_file(tmp_path, JSON_ARTICLE)
    assert texts(path, ReadOptions(file_format="jsonl")) == [("7", "Sun", "one two three four five")]


def test_named_format_is_used_where_none_can_be_detected(tmp_path: Path) -> None:
    path = made_file(tmp_path, "not JSON\n" + PASSAGE)
    bad: list[BadRecord] = []
    corpus = custom_corpus(path, "mine", ReadOptions(file_format="jsonl"))
    assert [found.passage.id for found in corpus.read([path], bad.append)] == ["7"]
    assert bad == [(str(path), 1, "not JSON: Expecting value at column 1")]


def test_passages_of_an_article_are_located_where_it_stands(tmp_path: Path) -> None:
    path = made_file(tmp_path, "\n" + DOC + DOC)
    located = custom_corpus(path, "mine", ReadOptions(split="words:5")).read([path], fail)
    assert [(found.passage.id, found.file, found.line) for found in located] == [
        (f"7#{n}", str(path), line) for line in (2, 9) for n in range(2)
    ]


@pytest.mark.parametrize("name", ["../x", "passages", "vectors", "UPPER", "", "-x", ".x", "a/b", "a b", "a@5", "ä", "x\n"])
def test_name_that_cannot_be_a_directory_of_its_own_is_refused(tmp_path: Path, name: str) -> None:
    shown = re.escape(name.replace("\n", r"\n"))
    with pytest.raises(InputError, match=f"'{shown}' (cannot be a name: use lower-case letters|is a reserved name: choose another)"):
        custom_corpus(made_file(tmp_path, PASSAGE), name, ReadOptions())


@pytest.mark.parametrize(
    ("content", "reading", "summary", "recorded"),
    [
        (PASSAGE, ReadOptions(), "jsonl", {"format": "jsonl", "split": "none"}),
        (DOC, ReadOptions(), "wikiextractor, split by words", {"format": "wikiextractor", "split": "words", "words": 100}),
        (
            DOC,
            ReadOptions(split="dpr:64"),
            "wikiextractor, split by dpr:64",
            {"format": "wikiextractor", "split": "dpr", "words": 64},
        ),
        (DOC, ReadOptions(split="tokens:9:2"), "wikiextractor, split by tokens:9:2", {"format": "wikiextractor", "split": "tokens:9:2"}),
        (DOC, ReadOptions(split="none"), "wikiextractor", {"format": "wikiextractor", "split": "none"}),
    ],
    ids=["passages", "articles", "rule and length", "tokens", "not split"],
)
def test_a_corpus_says_how_its_file_is_read(
    tmp_path: Path, content: str, reading: ReadOptions, summary: str, recorded: dict[str, object]
) -> None:
    path = made_file(tmp_path, content)
    corpus = custom_corpus(path, "mine", reading)
    assert (corpus.summary, corpus.reading, corpus.path, corpus.files) == (f"mine.data ({summary})", recorded, path, ())


def test_a_refusal_does_not_repeat_all_that_a_record_holds(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"x" * 10_000: 1}) + "\n")
    with pytest.raises(InputError, match="line 1: has the fields xxx") as refused:
        detect_format(path)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("text", ["a" * 131_073, "word " * 1_000_000])
def test_articles_of_any_length_are_read_from_tsv(tmp_path: Path, text: str) -> None:
    path = made_file(tmp_path, f'1\t{text}\tT\n2\t"{text}\n{text}"\tU\n')
    assert texts(path, ReadOptions()) == [("1", "T", text), ("2", "U", f"{text}\n{text}")]
