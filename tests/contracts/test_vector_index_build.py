"""The contract of the builds of vector indexes: from which vectors they are, how they resume, and what they need besides their files."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.indexer.made_vectors import ENCODER, clustered, numbered_passages, put_vectors
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.base.machine.fit import Placement
from wikidx.corpora.store import PassageStore
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.base import SearchParams
from wikidx.indexer.build import build_index, open_vector_index
from wikidx.indexer.catalog import index_ref

pytest.importorskip("faiss", reason="needs the extra 'dense'")
pytest.importorskip("torch", reason="needs the extra 'dense'")

pytestmark = pytest.mark.usefixtures("one_thread")

BUILT = [f"{ENCODER}-{kind}" for kind in VECTOR_INDEXES]
QUANTIZED = ["minilm-int8", "minilm-binary"]


@pytest.fixture
def small(build: Callable[..., PassageStore], name: str) -> PassageStore:
    """A corpus of 600 passages with an index over its vectors."""
    store = build(numbered_passages(600))
    put_vectors(store, clustered(600, 8, 0))
    build_index("made", name, store)
    return store


@pytest.mark.parametrize("name", BUILT)
def test_an_index_of_other_vectors_is_refused(small: PassageStore, name: str) -> None:
    put_vectors(small, clustered(600, 8, 7))
    command = f"run 'idx build made --encoder minilm --index {name.removeprefix('minilm-')} --force'"
    with pytest.raises(ArtifactMismatch, match=rf"from other vectors of 'minilm' .*{command}"):
        open_vector_index("made", name, small)
    with pytest.raises(ArtifactMismatch, match="from other vectors"):
        build_index("made", name, small)
    build_index("made", name, small, force=True)
    open_vector_index("made", name, small)


class Killed(BaseException):
    """A build is stopped here."""


# The files that a build has left after 1,024 of 2,000 rows, how many after 1,792, and the rows that it then reports
LEFT = {
    **dict.fromkeys(("minilm-ivf", "minilm-ivfpq"), ([*(f"shard-0000{n}.bin" for n in range(3)), "trained.faiss"], 7, None)),
    **dict.fromkeys(QUANTIZED, (["finished"], 1, [1280, 1536, 1792])),
    "minilm-hnsw": ([], 0, None),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_build_that_was_stopped_resumes(build: Callable[..., PassageStore], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("vectors.corpus_vectors", "indexes.faiss.ivf", "indexes.quantized"):
        monkeypatch.setattr(f"wikidx.indexer.{module}.BATCH_ROWS", 256)
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.ivf._SHARD_BATCHES", 1)
    store = build(numbered_passages(2000))
    put_vectors(store, clustered(2000, 8, 0))

    def stopped_at(row: int) -> tuple[dict[str, int], list[int]]:
        """Stop the build once this many rows are done; return the files left, with their times, and the progress reports."""
        reports = list[int]()

        def stop(done: int, total: int | None) -> None:
            reports.append(done)
            if done >= row:
                raise Killed

        with pytest.raises(Killed):
            build_index("made", name, store, progress=stop)
        pieces = sorted(index_ref("made", name).path.parent.rglob("intermediate/*"))
        return {file.name: file.stat().st_mtime_ns for file in pieces}, reports

    (first, _), (second, reports) = stopped_at(1024), stopped_at(1792)
    files, n_files, expected_reports = LEFT[name]
    assert (list(first), len(second)) == (files, n_files)
    assert expected_reports in (None, reports)
    assert {file: second[file] for file in first} == first or name not in ("minilm-ivf", "minilm-ivfpq")  # not made again
    assert reports[0] == 256 or name != "minilm-hnsw"


@pytest.mark.parametrize("name", BUILT)
def test_without_its_vectors_an_index_is_searched_but_rescores_nothing(small: PassageStore, name: str) -> None:
    shutil.rmtree(index_ref("made", ENCODER).path)
    index = open_vector_index("made", name, small)
    queries = clustered(2, 8, 1)
    if "refine" in index.parameters:
        with pytest.raises(InputError, match="rescores candidates from the vectors"):
            index.search(queries, 3)
    assert (index.search(queries, 3, SearchParams(refine=0)).rows >= 0).all()


@pytest.mark.parametrize("name", QUANTIZED)
def test_where_a_gpu_is_asked_the_placement_says_that_the_cpu_searches(small: PassageStore, name: str) -> None:
    placement = open_vector_index("made", name, small, device="cuda").placement
    assert placement == Placement(("cpu",), "quantized vectors on the CPU, which alone has this kind")
