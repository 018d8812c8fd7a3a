from __future__ import annotations

import gc
import gzip
import importlib.util
import json
import math
import os
import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.conftest import corpus_of, with_checksum
from wikidx.base.artifacts.manifest import Manifest, read_manifest
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, ArtifactMissing
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.lucene import build as lucene_build
from wikidx.indexer.indexes.lucene.index import LuceneIndex, lucene_errors
from wikidx.indexer.indexes.lucene.jvm import JavaError, call_in_java, java_class

pytestmark = pytest.mark.slow  # Java: twenty seconds

if importlib.util.find_spec("pyserini") is None and not os.environ.get("CI"):
    pytest.skip("needs the extra 'lucene'", allow_module_level=True)

Build = Callable[..., PassageStore]


class Built(NamedTuple):
    """An index over real passages, and a copy of its home to corrupt."""

    passages: list[Passage]
    lucene: LuceneIndex
    home: Path


def opened(store: PassageStore, name: str = "made") -> LuceneIndex:
    index = open_index(name, "lucene", store)
    assert isinstance(index, LuceneIndex)
    return index


def built(store: PassageStore, *, force: bool = False) -> LuceneIndex:
    build_index("made", "lucene", store, force=force)
    return opened(store)


def manifest() -> Manifest:
    return read_manifest(index_ref("made", "lucene").path, "lucene", 1, "")


@pytest.fixture(scope="module")
def union(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The first 2,000 passages of dpr_union and their index, which is built once."""
    from wikidx.corpora.build import StoreOptions, build_store

    with gzip.open(shared_data / "dpr_union" / "passages.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line, _ in zip(file, range(2000), strict=False)]
    passages = [Passage(record["id"], record["title"], record["text"]) for record in records]
    folder = tmp_path_factory.mktemp("union")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(folder))
        build_store(corpus_of(passages, "made"), StoreOptions())
        return Built(passages, built(open_store("made")), folder)


@pytest.fixture
def questions(shared_data: Path) -> list[str]:
    with gzip.open(shared_data / "dpr_union" / "queries.nq_oracle.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["question"] for line in file]


@pytest.fixture
def copied(union: Built, home: Path) -> PassageStore:
    """The corpus and index of ``union`` in the home of this test."""
    shutil.copytree(union.home, home)
    return open_store("made")


def analyzed(texts: Sequence[str]) -> list[list[str]]:
    """Return the terms of each text; the analyzer is Lucene's and not under test here."""

    def analyze() -> Iterator[list[str]]:
        analyzer = java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance("porter")
        for text in texts:
            terms = java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, text).toString()
            yield [term for term in terms[1:-1].split(", ") if term]

    return call_in_java(lambda: list(analyze()))


def float_like_code(n: int) -> int:
    """Lucene's SmallFloat.longToInt4: three bits after the leading one."""
    shift = n.bit_length() - 4
    return n if shift < 0 else (n >> shift) & 7 | (shift + 1) << 3


def remembered_length(n: int) -> int:
    """A length after a round trip through SmallFloat.intToByte4 and byte4ToInt: exact below 40, then four leading bits."""
    n_exact = 255 - float_like_code(2**31 - 1)
    if n < n_exact:
        return n
    code = float_like_code(n - n_exact)
    shift = (code >> 3) - 1
    return n_exact + (code & 7 if shift < 0 else (code & 7 | 8) << shift)


class SlowLucene:
    """Lucene's BM25Similarity over dictionaries: float32 for each term, summed in float64."""

    def __init__(self, passages: Sequence[Passage], k1: float = 0.9, b: float = 0.4) -> None:
        f = np.float32
        documents = [Counter(terms) for terms in analyzed([f"{passage.title}\n{passage.text}" for passage in passages])]
        lengths = [document.total() for document in documents]
        self.n = len(documents)
        self.n_searchable = sum(length > 0 for length in lengths)
        mean = f(sum(lengths) / self.n_searchable)
        kept = [f(remembered_length(length)) for length in lengths]
        self.inverse = np.array([f(1) / (f(k1) * ((f(1) - f(b)) + f(b) * length / mean)) for length in kept], dtype=f)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row, document in enumerate(documents):
            for term, tf in document.items():
                postings[term].append((row, tf))
        self.postings = {term: np.array(pairs).T for term, pairs in postings.items()}

    def search(self, query: str, k: int) -> tuple[list[int], list[float]]:
        f = np.float32
        sums = np.zeros(self.n)
        for term, count in Counter(analyzed([query])[0]).items():
            if term not in self.postings:
                continue
            rows, tf = self.postings[term]
            weight = f(count) * f(math.log(1 + (self.n_searchable - len(rows) + 0.5) / (len(rows) + 0.5)))
            sums[rows] += weight - weight / (f(1) + tf.astype(f) * self.inverse[rows])
        scores = sums.astype(f)
        best = sorted(np.flatnonzero(scores).tolist(), key=lambda row: (-scores[row], row))[:k]
        return best, scores[best].tolist()


def assert_equal_to_reference(index: LuceneIndex, reference: SlowLucene, queries: Sequence[str], k: int) -> None:
    hits = index.search(queries, k)
    assert hits.rows.dtype == np.int64
    assert hits.scores.dtype == np.float32
    assert hits.rows.shape == hits.scores.shape == (len(queries), k)
    for line, query in enumerate(queries):
        rows, scores = reference.search(query, k)
        assert hits.rows[line].tolist() == rows + [-1] * (k - len(rows))
        assert hits.scores[line].tolist() == scores + [-math.inf] * (k - len(rows))


@pytest.mark.parametrize("k", [1, 10, 100, 2500])
def test_rows_and_scores_are_the_formulas_to_the_last_bit(union: Built, questions: list[str], k: int) -> None:
    queries = [*questions[::60], "river river of the rivers", "the", "", "film", "born in"]
    assert_equal_to_reference(union.lucene, SlowLucene(union.passages), queries, k)


@pytest.mark.slow
def test_rows_and_scores_of_all_questions_over_all_passages(shared_data: Path, questions: list[str], build: Build) -> None:
    with gzip.open(shared_data / "dpr_union" / "passages.jsonl.gz", "rt", encoding="utf-8") as file:
        passages = [Passage(record["id"], record["title"], record["text"]) for record in map(json.loads, file)]
    assert_equal_to_reference(built(build(passages)), SlowLucene(passages), questions[::2], 100)


def test_results_do_not_depend_on_the_batch_or_on_other_threads(union: Built, questions: list[str]) -> None:
    queries = questions[:600:2]  # more than one call into Java takes
    batch = union.lucene.search(queries, 20)
    for line in range(0, len(queries), 10):
        alone = union.lucene.search([queries[line]], 20)
        assert (alone.rows[0] == batch.rows[line]).all()
        assert alone.scores[0].tobytes() == batch.scores[line].tobytes()
    differing: list[int] = []

    def search(first: int) -> None:
        for line in range(first, 280, 8):
            found = union.lucene.search(queries[line : line + 20], 20)
            differing.extend([line] * (found.scores.tobytes() != batch.scores[line : line + 20].tobytes()))

    threads = [threading.Thread(target=search, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing


@pytest.mark.parametrize("query", ["", " \n", "the of and", "\0", "!?", "\ud800", "unknownword"], ids=ascii)
def test_queries_without_a_known_term_find_nothing(union: Built, query: str) -> None:
    hits = union.lucene.search([query, "river"], 3)
    assert hits.rows[0].tolist() == [-1, -1, -1]
    assert (hits.scores[0] == -np.inf).all()
    assert (hits.rows[1] >= 0).all()


def test_no_queries_give_no_lines(union: Built) -> None:
    assert union.lucene.search([], 5).rows.shape == (0, 5)


def test_nul_and_halves_of_surrogate_pairs_end_a_word(union: Built) -> None:
    plain, *strange = union.lucene.search(["river bank", "river\0bank", "river\ud800bank", "river \udfff bank"], 10).rows.tolist()
    assert strange == [plain] * 3


def test_a_query_of_a_megabyte_with_thousands_of_terms(union: Built, questions: list[str]) -> None:
    long = " ".join(f"{question} unknown{n}" for n, question in enumerate(questions * 8))
    assert len(long) > 1_000_000
    (scores,) = union.lucene.search([long], 10).scores
    assert (np.diff(scores) <= 0).all()
    assert scores[9] > 1000  # more than 2,000 different terms of the corpus


def test_k_beyond_the_corpus_finds_all_that_match(union: Built) -> None:
    hits = union.lucene.search(["river"], 5000)
    n_found = int((hits.rows[0] >= 0).sum())
    assert 10 < n_found < 2000
    assert len(set(hits.rows[0, :n_found].tolist())) == n_found


def test_k_below_one_is_refused(union: Built) -> None:
    with pytest.raises(ValueError, match="k is 0"):
        union.lucene.search(["river"], 0)


def test_equal_passages_tie_and_come_by_ascending_row(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene_build, "PIECE_ROWS", 23)
    passages = [Passage(str(99 - n), "", "a red fox" if n % 3 else "a blue fox") for n in range(40)]
    index = built(build(passages))
    for k in (1, 5, 40):
        assert index.search(["red"], k).rows[0].tolist() == ([n for n in range(40) if n % 3] + [-1] * 40)[:k]


@pytest.mark.parametrize("file", ["index/_0_Lucene99_0.tim", "index/segments_1", "rows.i32"])
def test_a_truncated_file_is_refused(copied: PassageStore, file: str) -> None:
    path = index_ref("made", "lucene").path / file
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ArtifactCorrupt, match=r"has [\d,]+ bytes instead of"):
        opened(copied)


def test_flipped_bits_are_corruption_or_do_not_matter_here(copied: PassageStore, union: Built, questions: list[str]) -> None:
    folder = index_ref("made", "lucene").path / "index"
    expected = union.lucene.search(questions[:20], 10)
    rng = np.random.default_rng(11)
    n_refused = 0
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for place in (0, len(whole) // 2, int(rng.integers(len(whole)))):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            try:
                hits = opened(copied).search(questions[:20], 10)
            except ArtifactCorrupt as error:
                assert "idx check" in str(error)  # noqa: PT017 - which of the places are read is Lucene's affair
                n_refused += 1
            else:
                assert hits.rows.shape == expected.rows.shape
        file.write_bytes(whole)
    assert n_refused > 20
    assert opened(copied).search(questions[:20], 10).scores.tobytes() == expected.scores.tobytes()


def test_postings_that_turn_out_to_be_corrupt_in_a_search_are_named(copied: PassageStore, questions: list[str]) -> None:
    (file,) = (index_ref("made", "lucene").path / "index").glob("*.tim")
    whole = file.read_bytes()
    file.write_bytes(whole[:200] + b"\xff" * (len(whole) - 400) + whole[-200:])
    with pytest.raises(ArtifactCorrupt, match="Lucene cannot read .*'idx check' says which files are corrupt"):
        opened(copied).search(questions[:100], 10)


def test_memory_that_runs_out_is_not_called_corruption(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="Java heap space"), lucene_errors(tmp_path):
        call_in_java(lambda: java_class("java.util.ArrayList")(2_000_000_000))


def test_rows_outside_the_corpus_are_corruption(copied: PassageStore) -> None:
    path = index_ref("made", "lucene").path / "rows.i32"
    rows = np.fromfile(path, dtype="<i4")
    for wrong in (-2, 2000):
        rows[7] = wrong
        rows.tofile(path)
        with pytest.raises(ArtifactCorrupt, match="has rows outside the corpus"):
            opened(copied)


def test_counts_that_are_not_the_manifests_are_corruption(copied: PassageStore) -> None:
    path = index_ref("made", "lucene").path / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    assert manifest["counts"]["documents"] == 2000
    manifest["counts"]["documents"] = 1999
    path.write_text(with_checksum(manifest))
    with pytest.raises(ArtifactCorrupt, match="holds .*'documents': 2000.* its manifest says .*'documents': 1999"):
        opened(copied)


def test_an_index_of_other_passages_is_refused(build: Build, made_passages: list[Passage]) -> None:
    built(build(made_passages[:50]))
    other = build(made_passages[:49])
    with pytest.raises(ArtifactMismatch, match=r"was built over other passages .*run 'idx build made --lucene --force'"):
        opened(other)
    assert len(built(other, force=True)) == 49


def test_a_missing_index_says_what_to_run(build: Build, made_passages: list[Passage]) -> None:
    with pytest.raises(ArtifactMissing, match="run 'idx build made --lucene'"):
        opened(build(made_passages[:10]))


def test_an_index_that_is_no_longer_used_lets_go_of_its_files(union: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(union.home))

    def n_maps() -> int:
        return sum(str(union.home) in line for line in Path("/proc/self/maps").read_text().splitlines())

    store = open_store("made")
    kept, counts = union.lucene, list[int]()
    for _ in range(6):
        index = opened(store)
        assert index.search(["france"], 5).rows.tolist() == kept.search(["france"], 5).rows.tolist()
        del index
        gc.collect()
        counts.append(n_maps())
    assert counts[0] == counts[-1] > 0
