"""BM25's names, manifests, blocks and memory; contracts/test_lexical_index has its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.contracts.test_lexical_index import PASSAGES
from wikidx.base.errors import ArtifactMismatch, ArtifactMissing, InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis.dictionary import Dictionary
from wikidx.indexer.analysis.english import TermNumbers
from wikidx.indexer.base import LexicalIndex
from wikidx.indexer.build import build_index, open_index, open_lexical_index
from wikidx.indexer.catalog import built_indexes, index_ref, possible_indexes
from wikidx.indexer.indexes.bm25.index import KIND
from wikidx.indexer.indexes.kinds import Size
from wikidx.indexer.indexes.postings import inversion, merging
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS

Build = Callable[..., PassageStore]


def built(build: Build, passages: Sequence[Passage]) -> LexicalIndex:
    store = build(passages)
    build_index("made", "bm25", store)
    return open_lexical_index("made", "bm25", store)


def test_an_index_is_refused_under_another_k1_and_b(build: Build) -> None:
    store = build(PASSAGES)
    build_index("made", "bm25", store)
    build_index("made", "bm25-1.2-0.75", store)
    assert built_indexes("made") == ["bm25", "bm25-1.2-0.75"]
    with pytest.raises(ArtifactMissing, match=r"run 'idx build made --index bm25-1\.2-0"):
        open_index("made", "bm25-1.2-0", store)
    renamed = index_ref("made", "bm25-1.2-0.75").path.rename(index_ref("made", "bm25-1.2-0").path)
    with pytest.raises(
        ArtifactMismatch, match=r"'b': 0\.75}, its name means .*'b': 0\.0}: run 'idx build made --index bm25-1\.2-0 --force'"
    ):
        open_index("made", "bm25-1.2-0", store)
    renamed.replace(renamed.with_name(".bm25-1.2-0.partial"))
    assert built_indexes("made") == ["bm25"]
    assert possible_indexes("made")[-1] == "bm25-1.2-0"  # a build of it may be running


@pytest.mark.parametrize("n_rows", [BLOCK_ROWS, BLOCK_ROWS + 1])
def test_ties_across_full_blocks_come_by_ascending_row(build: Build, n_rows: int) -> None:
    index = built(build, [Passage(str(n), "", "fox" if n % 50 else "fox owl") for n in range(n_rows)])
    foxes, owls = [n for n in range(n_rows) if n % 50], list(range(0, n_rows, 50))
    assert index.search(["fox"], 10).rows[0].tolist() == foxes[:10]
    assert index.search(["owl"], n_rows).rows[0].tolist() == owls + [-1] * (n_rows - len(owls))
    assert index.search(["owl fox"], n_rows).rows[0].tolist() == owls + foxes


def test_a_corpus_without_any_term_finds_nothing(build: Build) -> None:
    assert built(build, [Passage("1", "", ""), Passage("2", "the", "of")]).search(["anything"], 3).rows.tolist() == [[-1, -1, -1]]


def test_ranges_of_terms_are_merged_to_the_same_bytes(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    store = build(PASSAGES)
    whole = build_index("made", "bm25", store)
    monkeypatch.setattr(merging, "RANGE_POSTINGS", 100)
    assert build_index("made", "bm25", store, force=True).files == whole.files


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


@pytest.mark.parametrize(
    ("available", "n_threads", "passage_bytes", "expected"),
    [
        (16 << 30, 16, 600, 16),
        (16 << 30, 16, 5_000, 16),
        (16 << 30, 16, 20_000, 4),
        (16 << 30, 16, 100_000, 1),
        (1 << 40, 2, 100_000, 2),
    ],
)
def test_blocks_are_inverted_in_turn_where_memory_is_short(
    available: int, n_threads: int, passage_bytes: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inversion, "available_bytes", lambda: available)
    monkeypatch.setattr(inversion, "n_threads", lambda: n_threads)
    assert inversion.max_parallel_blocks(BLOCK_ROWS * passage_bytes) == expected


@pytest.mark.parametrize(
    ("size", "n_threads", "n_bytes"),
    [
        (Size(21_000_000, 0, 650), 2, 1.496e9),
        (Size(21_000_000, 0, 650), 16, 2.451e9),
        (Size(BLOCK_ROWS, 0, 50_000), 1, 10.948e9),
        (Size(1_000, 0, 16 << 20), 1, 55.23e9),
    ],
)
def test_a_build_takes_memory_for_the_blocks_inverted_at_a_time(
    size: Size, n_threads: int, n_bytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inversion, "available_bytes", lambda: 1 << 40)
    monkeypatch.setattr(inversion, "n_threads", lambda: n_threads)
    assert KIND.estimate(size).memory_bytes == pytest.approx(n_bytes, rel=0.01)


@pytest.mark.parametrize(("limit", "most"), [("_MAX_BYTES", 12), ("_MAX_TERMS", 3)])
def test_more_terms_than_can_be_numbered_are_refused(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"wikidx.indexer.analysis.dictionary.{limit}", most)
    dictionary, terms = Dictionary(), np.frombuffer(b"fishboatsail", np.uint8)
    assert dictionary.add(terms, np.array([4, 8, 12])).tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"^the passages have 4 distinct terms of 0\.0 GB, a bm25 index can have .*: divide the corpus"):
        dictionary.add(np.frombuffer(b"wind", np.uint8), np.array([4]))
    assert len(dictionary) == 3
