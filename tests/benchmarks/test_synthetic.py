"""The synthetic corpus, from a made-up source and, if the test data is available, from the real one."""

import gzip
import json
import math
import os
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic import BLOCK, MIN_PART, data_folder, real_passages, synthetic, write
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage


def made_up(n: int) -> list[Passage]:
    """Return passages of 10 to 60 distinct words ``p<passage>w<word>`` in sentences of 6 words; some words are not ASCII."""
    rng = np.random.default_rng(3)
    passages = []
    for row in range(n):
        words = [f"p{row}w{word}" + "é" * (word % 5 == 0) for word in range(int(rng.integers(10, 61)))]
        words[4::7] = [".?!"[place % 3] for place in range(len(words[4::7]))]
        passages.append(Passage(f"x{row}", f"Title {row}", "  ".join(words)))
    return passages


SOURCE = made_up(200)
N = 3 * BLOCK // 2  # more than a block, and many rounds of the source


@pytest.fixture(scope="module")
def corpus() -> list[Passage]:
    return list(synthetic(N, seed=5, source=SOURCE))


def parents_of(passage: Passage) -> list[int]:
    """Return the rows of the source that its words name, each once, in order."""
    rows = [int(word[1:].split("w")[0]) for word in passage.text.split() if word.startswith("p") and "w" in word]
    return list(dict.fromkeys(rows))


@pytest.mark.parametrize("n", [0, 1, 1000, BLOCK, BLOCK + 1, N])
def test_a_seed_gives_the_same_corpus_of_which_a_smaller_one_is_the_beginning(corpus: list[Passage], n: int) -> None:
    assert list(synthetic(n, seed=5, source=SOURCE)) == corpus[:n]
    assert n < 2 or list(synthetic(n, seed=6, source=SOURCE)) != corpus[:n]


def test_ids_are_numbered_and_texts_and_parents_distinct(corpus: list[Passage]) -> None:
    assert [passage.id for passage in corpus] == [str(row) for row in range(N)]
    assert len({passage.text for passage in corpus}) == N
    assert len({(parents[0], parents[-1]) for parents in map(parents_of, corpus)}) == N


def test_lengths_are_those_of_the_source_and_words_are_parted_by_one_space(corpus: list[Passage]) -> None:
    assert all(passage.text == " ".join(passage.text.split()) for passage in corpus)
    per_round = Counter(len(passage.text.split()) for passage in SOURCE)
    for begin in range(0, N - len(SOURCE), len(SOURCE)):
        assert Counter(len(passage.text.split()) for passage in corpus[begin : begin + len(SOURCE)]) == per_round


def test_a_passage_is_the_beginning_of_one_parent_and_consecutive_words_of_another(corpus: list[Passage]) -> None:
    for passage in corpus[: 5 * len(SOURCE)]:
        first, *others = parents_of(passage)
        assert passage.title == f"Title {first}"
        second = others[0] if others else first
        words = passage.text.split()
        opening, other = SOURCE[first].text.split(), " ".join(SOURCE[second].text.split())
        n_same = next((n for n, (ours, theirs) in enumerate(zip(words, opening, strict=True)) if ours != theirs), len(words))
        rest = words[n_same:]
        # Beyond the source's size the second part's first word may be an invented one.
        assert n_same >= MIN_PART
        assert " ".join(rest) in other or (int(passage.id) >= len(SOURCE) and " ".join(rest[1:]) in other)


def test_joints_are_at_sentence_ends_where_there_are_any() -> None:
    sentences = " . ".join(f"a{n} b{n} c{n} d{n} e{n}" for n in range(8)) + " ."
    source = [Passage(str(row), "", sentences.replace("a", f"r{row}a")) for row in range(30)]
    for passage in synthetic(30, source=source):
        words = passage.text.split()
        assert all(place == 0 or words[place - 1] == "." for place, word in enumerate(words) if word.startswith("r"))


def test_the_vocabulary_grows_beyond_the_sources(corpus: list[Passage]) -> None:
    known = {word for passage in SOURCE for word in passage.text.split()}
    seen = Counter(word for passage in corpus for word in passage.text.split() if word not in known)
    assert len(seen) > len(corpus) // 2  # every word of the source is new, so Heaps' exponent is near 1
    assert set(seen.values()) == {1}
    assert {len(word) for word in seen} == {9}
    assert not any(word not in known for passage in corpus[: len(SOURCE)] for word in passage.text.split())


def test_equal_and_short_passages_are_no_parents() -> None:
    source = [*made_up(20), Passage("short", "Short", "too short ."), *made_up(20)]
    assert list(synthetic(400, source=source)) == list(synthetic(400, source=made_up(20)))


@pytest.mark.parametrize(("n", "n_source"), [(-1, 20), (401, 20), (1, 0)])
def test_more_than_all_pairs_is_refused(n: int, n_source: int) -> None:
    with pytest.raises(ValueError, match=f"n is {n}: a source of {n_source} passages gives 0 to {n_source**2}"):
        synthetic(n, source=made_up(n_source))


def test_write(tmp_path: Path) -> None:
    write([Passage("0", "T", "é ."), Passage("1", "", "b")], tmp_path / "a.jsonl.gz")
    lines = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"id": "0", "title": "T", "text": "é ."}, {"id": "1", "title": "", "text": "b"}]


def test_real_passages_are_split_and_a_source_that_is_not_there_or_not_right_is_named(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl.gz"
    with pytest.raises(InputError, match=f"no source of real passages at {path}: set IDX_TEST_DATA"):
        real_passages(path)
    path.write_bytes(gzip.compress(b'{"id": "7", "title": "T", "text": "a b c d e"}\n'))
    assert real_passages(path, 3) == [Passage("7#0", "T", "a b c"), Passage("7#1", "T", "d e")]
    path.write_bytes(gzip.compress(b'{"id": "1", "title": "T", "text": "a"}\n{"id": "2"}\n'))
    with pytest.raises(InputError, match=f"{path}, line 2: the field 'text' is missing"):
        real_passages(path)


def test_real_source_gives_distinct_texts_of_natural_length_and_frequency() -> None:
    path = data_folder() / "wiki_intro" / "passages.jsonl.gz"
    if not path.exists() and "CI" not in os.environ:
        pytest.skip(f"no test data at {path}")
    source = real_passages(path)
    n = 50_000
    corpus = list(synthetic(n, source=source))
    assert len({passage.text for passage in corpus}) == n
    rows = np.random.default_rng(1).permutation(len(source))[:20_000].tolist()
    real, made = ([passage.text.lower().split() for passage in of] for of in ([source[row] for row in rows], corpus[:20_000]))
    assert sum(map(len, made)) == pytest.approx(sum(map(len, real)), rel=0.05)
    of_real, of_made = (Counter(int(math.log2(len(of) / n)) for n in Counter(chain(*map(set, of))).values()) for of in (real, made))
    for power in range(3, 11):  # words in 1/16 to 1/2048 of the passages
        assert of_made[power] == pytest.approx(of_real[power], rel=0.25)
