from __future__ import annotations

import functools
import json
import math
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import with_checksum
from wikidx.base.errors import ArtifactCorrupt, ArtifactError, ArtifactMismatch, ArtifactMissing, InputError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis import TermNumbers, english
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.catalog import built_indexes, index_ref, possible_indexes
from wikidx.indexer.indexes.bm25 import BM25Index, files, inversion
from wikidx.indexer.indexes.bm25.dictionary import Dictionary
from wikidx.indexer.indexes.bm25.files import BLOCK_ROWS, IndexFiles
from wikidx.indexer.indexes.bm25.index import KIND
from wikidx.indexer.indexes.kinds import Size

Build = Callable[..., PassageStore]

WORDS = "river bank water flow gold silver mine deep lake fish boat sail wind storm night day sun moon star".split()


@pytest.fixture
def passages() -> list[Passage]:
    """500 passages of random words, some equal, some empty; document frequencies fall off as in language."""
    rng = np.random.default_rng(7)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(0, 30), p=weights / weights.sum())) for _ in range(450)]
    return [Passage(str(n), "The title" if n % 3 else f"Rare{n % 60}", text) for n, text in enumerate(texts + texts[:50])]


terms_of = functools.cache(english)


def coded(length: int) -> int:
    """The length that Lucene's one byte keeps of a length: exact to 40, then the four highest bits of the excess over 24."""
    rest = length - 24
    if rest < 16:
        return length
    shift = rest.bit_length() - 4
    return 24 + (rest >> shift << shift)


def slow_bm25(passages: Sequence[Passage], query: str, k1_and_b: Sequence[float]) -> list[tuple[np.float32, int]]:
    """Lucene's BM25Similarity over dictionaries: (score, row) of every row above 0, best first."""
    one, (k1, b) = np.float32(1), map(np.float32, k1_and_b)
    documents = [Counter(terms_of(f"{passage.title} {passage.text}")) for passage in passages]
    lengths = [sum(document.values()) for document in documents]
    n_rows_with_terms = sum(length > 0 for length in lengths)
    mean = np.float32(sum(lengths) / n_rows_with_terms) if n_rows_with_terms else one
    with np.errstate(divide="ignore"):
        inverse = [one / (k1 * ((one - b) + b * np.float32(coded(length)) / mean)) for length in lengths]
    scores = [0.0] * len(documents)
    for term, n in Counter(terms_of(query)).items():
        df = sum(term in document for document in documents)
        weight = np.float32(n) * np.float32(math.log(1 + (n_rows_with_terms - df + 0.5) / (df + 0.5)))
        for row, document in enumerate(documents):
            if document[term]:
                scores[row] += float(weight - weight / (one + np.float32(document[term]) * inverse[row]))
    return sorted(((np.float32(score), row) for row, score in enumerate(scores) if score > 0), key=lambda pair: (-pair[0], pair[1]))


QUERIES = [
    "river bank",
    "gold gold silver",
    "rare9 river rare12 rare9",
    "rare30",
    "stars in the night",
    "unknownword",
    "unknownword moon",
    "",
    "the of and",
    " ".join(WORDS * 200),
    "river\0bank",
]


def built(build: Build, passages: list[Passage], name: str = "bm25") -> BM25Index:
    store = build(passages)
    build_index("made", name, store)
    index = open_index("made", name, store)
    assert isinstance(index, BM25Index)
    return index


def check_bits(index: BM25Index, passages: list[Passage], k: int, k1_and_b: Sequence[float]) -> None:
    """Assert that rows and scores are those of ``slow_bm25``."""
    hits = index.search(QUERIES, k)
    for line, query in enumerate(QUERIES):
        expected = slow_bm25(passages, query, k1_and_b)[:k]
        n = len(expected)
        assert hits.rows[line, :n].tolist() == [row for _, row in expected]
        assert hits.scores[line, :n].tolist() == [float(score) for score, _ in expected]
        assert (hits.rows[line, n:] == -1).all()
        assert (hits.scores[line, n:] == -np.inf).all()


@pytest.mark.parametrize("k", [1, 10, 1000])
@pytest.mark.parametrize("max_terms", [0, 1000], ids=["all rows scored", "filtered"])
def test_scores_and_ranking_are_lucenes_bit_by_bit(build: Build, passages: list[Passage], k: int, max_terms: int) -> None:
    built(build, passages)
    files_of = IndexFiles(index_ref("made", "bm25").path, index_ref("made", "bm25").manifest(None))
    check_bits(BM25Index(files_of, 0.9, 0.4, max_terms), passages, k, (0.9, 0.4))


RANDOM = random.Random(12)
NAMES = ["1.2-0.75", "1.5-0.75", "2-1", "1.2-0", "0-0.75", "0-1", "0.00001-1", "254-1", "1000-0.5"]
NAMES += [f"{round(RANDOM.uniform(0, 4), 3) or 0:g}-{RANDOM.choice([0, 1, round(RANDOM.random(), 3)]):g}" for _ in range(12)]


@pytest.mark.parametrize("numbers", NAMES)
def test_scores_with_any_k1_and_b_are_lucenes_bit_by_bit(build: Build, passages: list[Passage], numbers: str) -> None:
    passages += [Passage(f"repeated {n}", "", "gold " * n + "silver " * (n % 7)) for n in (1, 2, 3, 40, 2_000)]
    index, k1_and_b = built(build, passages, f"bm25-{numbers}"), [*map(float, numbers.split("-"))]
    for k in (3, 1000):
        check_bits(index, passages, k, k1_and_b)
    everything = np.arange(len(passages))
    for query, scores in zip(QUERIES, index.rescore(QUERIES, [everything] * len(QUERIES)), strict=True):
        expected = {row: score for score, row in slow_bm25(passages, query, k1_and_b)}
        assert scores.tolist() == [expected.get(row, -np.inf) for row in everything.tolist()]


def test_an_index_is_refused_under_the_name_of_another_k1_and_b(build: Build, passages: list[Passage]) -> None:
    store = build(passages)
    build_index("made", "bm25", store)
    build_index("made", "bm25-1.2-0.75", store)
    assert built_indexes("made") == ["bm25", "bm25-1.2-0.75"]
    with pytest.raises(ArtifactMissing, match=r"run 'idx build made --index bm25-1\.2-0'"):
        open_index("made", "bm25-1.2-0", store)
    index_ref("made", "bm25-1.2-0.75").path.rename(index_ref("made", "bm25-1.2-0").path)
    with pytest.raises(
        ArtifactMismatch, match=r"'b': 0\.75}, its name means .*'b': 0\.0}: run 'idx build made --index bm25-1\.2-0 --force'"
    ):
        open_index("made", "bm25-1.2-0", store)
    index_ref("made", "bm25-1.2-0").path.replace(index_ref("made", "bm25-1.2-0").path.with_name(".bm25-1.2-0.partial"))
    assert built_indexes("made") == ["bm25"]
    assert possible_indexes("made")[-1] == "bm25-1.2-0"  # a build of it may be running


def test_equal_passages_tie_and_come_by_ascending_row(build: Build) -> None:
    passages = [Passage(str(n), "", text) for n, text in enumerate(["a red fox", "a blue fox", "a red fox", "", "a red fox"])]
    hits = built(build, passages).search(["red"], 5)
    assert hits.rows.tolist() == [[0, 2, 4, -1, -1]]
    assert hits.scores[0, 0] == hits.scores[0, 1] == hits.scores[0, 2]


@pytest.mark.parametrize("n_rows", [BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS])
def test_ties_across_full_blocks_come_by_ascending_row(build: Build, n_rows: int) -> None:
    index = built(build, [Passage(str(n), "", "fox" if n % 50 else "fox owl") for n in range(n_rows)])
    foxes, owls = [n for n in range(n_rows) if n % 50], list(range(0, n_rows, 50))
    assert index.search(["fox"], 10).rows[0].tolist() == foxes[:10]
    assert index.search(["owl"], n_rows).rows[0].tolist() == owls + [-1] * (n_rows - len(owls))
    assert index.search(["owl fox"], n_rows).rows[0].tolist() == owls + foxes


def test_results_do_not_depend_on_the_batch_or_on_other_threads(
    build: Build, passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = built(build, passages)
    in_one_thread = index.search(QUERIES * 10, 20)
    monkeypatch.setattr("wikidx.indexer.indexes.bm25.index._POSTINGS_WORTH_THREADS", 0)
    batch = index.search(QUERIES * 10, 20)
    assert [part.tobytes() for part in batch] == [part.tobytes() for part in in_one_thread]
    alone = [index.search([query], 20) for query in QUERIES]
    for line in range(len(QUERIES) * 10):
        assert batch.rows[line].tolist() == alone[line % len(QUERIES)].rows[0].tolist()
        assert batch.scores[line].tobytes() == alone[line % len(QUERIES)].scores[0].tobytes()
    differing: list[int] = []

    def search() -> None:
        differing.extend(1 for _ in range(20) if index.search(QUERIES, 20).scores.tobytes() != batch.scores[: len(QUERIES)].tobytes())

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing


def test_a_corpus_without_any_term_finds_nothing(build: Build) -> None:
    assert built(build, [Passage("1", "", ""), Passage("2", "the", "of")]).search(["anything"], 3).rows.tolist() == [[-1, -1, -1]]


def test_a_killed_build_resumes_from_its_files_to_the_same_bytes(
    build: Build, passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(passages)
    undisturbed = build_index("made", "bm25", store)
    write_piece = inversion._write_block
    written: list[int] = []

    def interrupted(folder: Path, n: int, block: inversion.InvertedBlock, dictionary: Dictionary) -> None:
        write_piece(folder, n, block, dictionary)
        written.append(n)
        if len(written) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(inversion, "_write_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_index("made", "bm25", store, force=True)
    resumed = build_index("made", "bm25", store, force=True)
    assert written == [0]
    assert resumed.files == undisturbed.files


def test_an_index_of_another_store_is_refused(build: Build, passages: list[Passage]) -> None:
    built(build, passages)
    other = build(passages[:-1])
    with pytest.raises(ArtifactMismatch, match=r"was built over other passages .*run 'idx build made --bm25 --force'"):
        open_index("made", "bm25", other)
    with pytest.raises(ArtifactMismatch):
        build_index("made", "bm25", other)
    build_index("made", "bm25", other, force=True)
    open_index("made", "bm25", other)


def test_a_missing_index_says_what_to_run(build: Build, passages: list[Passage]) -> None:
    with pytest.raises(ArtifactMissing, match="run 'idx build made --bm25'"):
        open_index("made", "bm25", build(passages))


def test_a_truncated_postings_file_is_refused(build: Build, passages: list[Passage]) -> None:
    store = build(passages)
    build_index("made", "bm25", store)
    file = index_ref("made", "bm25").path / "lengths"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ArtifactCorrupt, match=r"lengths has .* bytes instead of"):
        open_index("made", "bm25", store)


@pytest.mark.parametrize("name", ["tokens", "rows_with_terms", "k1", "b"])
def test_a_manifest_that_says_something_else_is_refused(build: Build, passages: list[Passage], name: str) -> None:
    built(build, passages)
    manifest = index_ref("made", "bm25").path / "manifest.json"
    intact = json.loads(manifest.read_text())
    del intact["sha256"]
    changed = re.sub(rf'("{name}": [\d.]*)(\d)', lambda found: found[1] + str(9 - int(found[2])), json.dumps(intact))
    assert json.loads(changed) != intact
    manifest.write_text(with_checksum(json.loads(changed)))
    with pytest.raises(ArtifactError, match=name):
        open_index("made", "bm25", open_store("made"))


def test_k_below_one_is_refused(build: Build, passages: list[Passage]) -> None:
    with pytest.raises(ValueError, match="k is 0"):
        built(build, passages).search(["gold"], 0)


def test_a_flipped_bit_anywhere_is_a_typed_error_or_changes_nothing(build: Build, passages: list[Passage]) -> None:
    store = build(passages)
    expected = built(build, passages).search(QUERIES, 20)
    n_errors = 0
    for name in files.DTYPES:
        path = index_ref("made", "bm25").path / name
        content = path.read_bytes()
        for position in {0, len(content) // 2, len(content) - 1} if content else ():
            path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
            try:
                hits = open_index("made", "bm25", store).search(QUERIES, 20)  # type: ignore[arg-type]
            except ArtifactCorrupt:
                n_errors += 1
            else:
                assert hits.rows.tobytes() == expected.rows.tobytes()
                assert hits.scores.tobytes() == expected.scores.tobytes()
        path.write_bytes(content)
    assert n_errors >= 20


def test_long_passages_are_analysed_a_few_at_a_time(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    store, at_once = build([Passage(str(n), "", f"word{n} " * 150_000) for n in range(12)]), []
    add = TermNumbers.add

    def counted(self: TermNumbers, texts: Sequence[str]) -> object:
        at_once.append(sum(map(len, texts)))
        return add(self, texts)

    monkeypatch.setattr(TermNumbers, "add", counted)
    build_index("made", "bm25", store)
    assert max(at_once) < 6_000_000
    assert sum(at_once) > 11_000_000


def test_blocks_of_long_passages_are_inverted_one_after_the_other_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "available_bytes", lambda: 16 << 30)
    monkeypatch.setattr(inversion, "n_threads", lambda: 16)
    assert [inversion.max_parallel_blocks(65_536 * n_bytes) for n_bytes in (600, 5_000, 20_000, 100_000)] == [16, 16, 4, 1]


@pytest.mark.parametrize(("n_rows", "passage_bytes"), [(65_536, 50_000), (262_144, 50_000), (1_000, 16 << 20)])
def test_the_memory_that_long_passages_take_is_reported(n_rows: int, passage_bytes: int) -> None:
    block_bytes = min(n_rows, BLOCK_ROWS) * passage_bytes
    assert KIND.estimate(Size(n_rows, 0, passage_bytes)).memory_bytes > 1.6 * block_bytes


@pytest.mark.parametrize(("limit", "most"), [("_MAX_BYTES", 12), ("_MAX_TERMS", 3)])
def test_more_terms_than_can_be_numbered_are_refused(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"wikidx.indexer.indexes.bm25.dictionary.{limit}", most)
    dictionary, terms = Dictionary(), np.frombuffer(b"fishboatsail", np.uint8)
    assert dictionary.add(terms, np.array([4, 8, 12])).tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"^the passages have 4 distinct terms of 0\.0 GB, a bm25 index can have .*: divide the corpus"):
        dictionary.add(np.frombuffer(b"wind", np.uint8), np.array([4]))
    assert len(dictionary) == 3


def test_the_lengths_and_new_terms_of_a_piece_are_merged_once(
    build: Build, passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = build(passages), list[int]()
    whole = build_index("made", "bm25", store)
    marker = inversion._marker_path

    def counted(folder: Path, n: int) -> Path:
        opened.append(n)
        return marker(folder, n)

    monkeypatch.setattr(inversion, "_marker_path", counted)
    monkeypatch.setattr("wikidx.indexer.indexes.bm25.merging.RANGE_POSTINGS", 100)
    assert build_index("made", "bm25", store, force=True).files == whole.files
    assert len(opened) <= 3  # whether it is there, to write it, and to read it


@pytest.mark.parametrize(("n_threads", "n_bytes"), [(2, 1.496e9), (16, 2.451e9)])
def test_the_blocks_that_are_inverted_at_a_time_take_memory(n_threads: int, n_bytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "available_bytes", lambda: 1 << 40)
    monkeypatch.setattr(inversion, "n_threads", lambda: n_threads)
    assert KIND.estimate(Size(21_000_000, 0, 650)).memory_bytes == pytest.approx(n_bytes, rel=0.01)
