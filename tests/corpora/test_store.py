from __future__ import annotations

import hashlib
import os
import signal
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import corpus_of
from wikidx.base.errors import ArtifactMissing, InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store, skipped_records, store_path
from wikidx.corpora.passage import Passage, text_key
from wikidx.corpora.store import PassageStore, phrases
from wikidx.corpora.store.frames import Vocabulary, sizes, to_stream, train
from wikidx.corpora.store.layout import Bytes, bytes_of

Build = Callable[..., PassageStore]


def test_rows_come_in_the_order_asked_repeats_included(made_store: PassageStore, made_passages: list[Passage]) -> None:
    assert made_store.get_many([2999, 0, 0, 17]) == [made_passages[n] for n in (2999, 0, 0, 17)]
    assert made_store.get_many(np.array([5, 4], dtype=np.int64)) == [made_passages[5], made_passages[4]]
    assert made_store.get_many([]) == []
    assert made_store.get_many(range(3000)) == list(made_store.read()) == made_passages


EQUAL_SUMS = "plumless", "buckeroo"  # of CRC-32
STRANGE = [
    Passage("a" * 511, "NUL \0 in title", "NUL \0 in text"),
    Passage("日本", "\n\t", "x" * 3_000_000),
    Passage(" ", "", ""),
    Passage("é", "e\u0301", "\U0001f600" * 1000),
    *(Passage(str(n), "very long title " * 60 + "x" * (n == 2), "") for n in range(3)),
    Passage(EQUAL_SUMS[0], EQUAL_SUMS[1], "a"),
    Passage(EQUAL_SUMS[1], EQUAL_SUMS[0], "b"),
]


@pytest.mark.parametrize("passages", [STRANGE, STRANGE[:-1]], ids=["two names of a sum", "one"])
def test_passages_come_back_by_row_by_id_and_by_title(build: Build, passages: list[Passage]) -> None:
    assert len({zlib.crc32(name.encode()) for name in EQUAL_SUMS}) == 1
    store = build(passages)
    assert (len(store), list(store.read()), list(store.read(2, 5))) == (len(passages), passages, passages[2:5])
    for name in {name for passage in STRANGE for name in passage[:2]} | {*EQUAL_SUMS, "nope", "x" * 600, "\ud800"}:
        assert store.rows_of([name]).tolist() == [next((row for row, each in enumerate(passages) if each.id == name), -1)]
        assert store.rows_with_title(name).tolist() == [row for row, each in enumerate(passages) if each.title == name]


@pytest.mark.parametrize("row", [-1, 3000])
def test_a_row_outside_the_store_is_refused(made_store: PassageStore, row: int) -> None:
    with pytest.raises(ValueError, match="the store has 0 to 2999"):
        made_store.get_many([0, row])


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return train([to_stream(str(n).encode(), b"Title", TEXT.encode()) for n in range(500)], least_bytes=0)


TEXT = "The quick brown fox jumps over the lazy dog, and the dog, being lazy, lets it. " * 3


def _frames(vocabulary: Vocabulary, texts: list[str]) -> tuple[Bytes, NDArray[np.int64]]:
    streams = [to_stream(b"id", "Ähre".encode() * n, text.encode()) for n, text in enumerate(texts)]
    encoded = vocabulary.encode(streams)
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    bounds = np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)
    return bytes_of(np.frombuffer(bytearray(b"".join(encoded) + bytes(8)), np.uint8)), bounds


def test_phrases_and_zstd_give_back_what_was_written(vocabulary: Vocabulary) -> None:
    texts = [TEXT, "", TEXT[7:], "日本語" * 40, "x" * 9_000, os.urandom(300).hex(), "\U0001f600"]
    for known in (vocabulary, Vocabulary(vocabulary.saved), train([])):
        content, places = _frames(known, texts)
        assert known.decode(content, places) == [Passage("id", "Ähre" * n, text) for n, text in enumerate(texts)]
        assert known.decode(content, places[:0]) == []
        assert np.all(sizes(content, places) >= [4 + len("Ähre".encode()) * n + len(text.encode()) for n, text in enumerate(texts)])
    content, places = _frames(vocabulary, [TEXT])
    assert places[0, 1] < len(TEXT) / 4


def test_a_corrupt_vocabulary_is_an_error(vocabulary: Vocabulary) -> None:
    saved = vocabulary.saved
    for corrupt in (saved[:3], saved[:100], saved[:-1], saved + b"x", struct.pack("<I", 1 << 17) + bytes(1 << 17)):
        with pytest.raises(ValueError, match="a vocabulary of .* phrases does not have .* bytes"):
            Vocabulary(corrupt)


def test_machine_code_and_python_write_and_read_the_same(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [TEXT, TEXT[50:], "Something else"]
    content, places = _frames(vocabulary, texts)
    read = vocabulary.decode(content, places)
    for name in ("encode_phrases", "decode_frames"):
        monkeypatch.setattr(phrases, name, getattr(phrases, name).interpreted)
    with np.errstate(over="ignore"):
        again, _ = _frames(vocabulary, texts)
        assert again.each.tobytes() == content.each.tobytes()
        assert vocabulary.decode(content, places) == read


def test_text_keys_are_those_of_the_texts(made_store: PassageStore, made_passages: list[Passage]) -> None:
    assert made_store.text_key.tolist() == [text_key(passage.text) for passage in made_passages]


def test_fingerprint_is_the_hash_over_length_prefixed_fields(build: Build) -> None:
    passages = [Passage("1", "T", "text"), Passage("2", "Ü", "")]
    expected = hashlib.sha256()
    for passage in passages:
        fields = [field.encode() for field in passage]
        expected.update(struct.pack("<III", *map(len, fields)) + b"".join(fields))
    assert build(passages).fingerprint == expected.hexdigest()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Passage("", "t", "x"), "the id has 0 bytes"),
        (Passage("a" * 512, "t", "x"), "the id has 512 bytes"),
        (Passage("9", "t", "x\ud800"), r"surrogate pair, \\ud800"),
        (Passage("1", "t", "x"), "the id '1' is already that of made, line 1"),
    ],
    ids=["empty id", "long id", "lone surrogate", "duplicate id"],
)
def test_what_cannot_be_stored_names_its_line(home: Path, bad: Passage, reason: str) -> None:
    passages = [Passage("1", "t", "one"), Passage("2", "t", "two"), bad, Passage("3", "t", "three")]
    with pytest.raises(InputError, match=f"made, line 3: .*{reason}"):
        build_store(corpus_of(passages), StoreOptions())
    assert not store_path("made").exists()


def test_a_duplicate_in_a_later_batch_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 4)
    passages = [Passage(str(n), "t", f"text {n}") for n in range(10)]
    with pytest.raises(InputError, match="made, line 11: the id '2' is already that of made, line 3"):
        build_store(corpus_of([*passages, Passage("2", "t", "other")]), StoreOptions())


def test_skipped_records_are_counted_and_listed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 2)
    passages = [Passage(id_, "t", f"text {n}") for n, id_ in enumerate(["1", "", "2", "1", "3", "2"])]
    manifest = build_store(corpus_of(passages), StoreOptions(skip_bad=True))
    store = open_store("made")
    assert (manifest.counts["rows"], manifest.counts["skipped"]) == (3, 3)
    assert [passage.text for passage in store.read()] == ["text 0", "text 2", "text 4"]
    assert [(bad.file, bad.line) for bad in skipped_records("made")] == [("made", 2), ("made", 4), ("made", 6)]


def test_the_memory_map_grows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.corpora.store.database._FIRST_MAP_BYTES", 1 << 16)
    passages = [Passage(str(n), f"title {n}", os.urandom(200).hex()) for n in range(2000)]
    build_store(corpus_of(passages), StoreOptions())
    assert list(open_store("made").read()) == passages


def test_more_passages_than_rows_can_be_numbered_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.corpora.store.writer._MOST_PASSAGES", 9)
    monkeypatch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 4)
    passages = [Passage(str(n), "t", f"text {n}") for n in range(10)]
    build_store(corpus_of(passages[:9], "nine"), StoreOptions())
    with pytest.raises(InputError, match="^there are more than 9 passages, which one store can hold: divide the corpus"):
        build_store(corpus_of(passages, "ten"), StoreOptions())


def test_an_empty_corpus_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match="has no passages"):
        build_store(corpus_of([]), StoreOptions())
    with pytest.raises(ArtifactMissing, match="idx build made"):
        open_store("made")


def test_an_open_store_is_read_by_threads_and_forked_processes_at_once(made_store: PassageStore, made_passages: list[Passage]) -> None:
    """A fork amid reading threads waits for none of them, nor does the opening of the store in it."""
    is_over, wrong = threading.Event(), list[int]()

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not is_over.is_set():
            rows = rng.integers(0, 3000, 40)
            wrong.extend([seed] * (made_store.get_many(rows) != [made_passages[row] for row in rows]))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if not child:
                signal.alarm(20)  # what hangs is killed
                again = open_store("made")
                os._exit(int(any(opened.get_many([7, 2900]) != [made_passages[7], made_passages[2900]] for opened in (made_store, again))))
            assert os.waitpid(child, 0)[1] == 0
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not wrong
