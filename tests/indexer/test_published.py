"""Published embeddings become a corpus's vectors only if they are certain to match its passages."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.retrievers.retrieving import at_home, build_corpus
from wikidx.base.artifacts.building import lock
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import ArtifactMismatch, InputError, LockedError
from wikidx.base.progress import Progress, silent
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published import formats, importing
from wikidx.indexer.published.formats import find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors
from wikidx.indexer.vectors.file import MISSING, VECTORS

N, DIM = 3000, 8

Content = Callable[[Vectors], object]  # what is pickled of the vectors of all passages


@functools.cache
def vector_of(text: str) -> Vectors:
    """Return a vector of length 1 that is made of a text's bytes."""
    vector = np.random.default_rng(list(text.encode())).normal(size=DIM).astype(np.float32)
    unit: Vectors = vector / np.linalg.norm(vector)
    return unit


class FakeEncoder:
    spec = encoder_spec("minilm")

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        return np.array([vector_of(passage.text) for passage in passages])


class Published(NamedTuple):
    """A corpus, the vectors of its passages, and the file in which some of them are published."""

    store: PassageStore
    vectors: Vectors
    path: Path

    def write(self, content: Content) -> Path:
        self.path.write_bytes(pickle.dumps(content(self.vectors), protocol=4))
        return self.path

    def run(self, content: Content, corpus: str = "made", **options: object) -> Manifest:
        return run(self.write(content), corpus, **options)  # type: ignore[arg-type]


def run(
    path: Path, corpus: str = "made", encoder: str = "minilm", progress: Progress = silent, ids: str | None = None, **options: object
) -> Manifest:
    spec, source = dataclasses.replace(encoder_spec(encoder), dim=DIM), find_embeddings(path, ids=ids)
    return import_vectors(corpus, spec, open_store(corpus), source, ImportOptions(**options), progress)  # type: ignore[arg-type]


def interrupt(done: int, total: int | None) -> None:
    if done >= N * 2 / 3:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def built(made_home: Path, made_passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the corpus, a subset of it, and one of a corpus that is not built."""
    with at_home(shutil.copytree(made_home, tmp_path_factory.mktemp("published") / "home")) as home:
        for name in ("made@500", "alone@500"):
            build_corpus(name, made_passages[:500])
    return home


@pytest.fixture
def published(built: Path, home: Path, made_passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    monkeypatch.setattr(formats, "BLOCK_ROWS", 300)
    monkeypatch.setattr(importing, "open_encoder", lambda spec, device: FakeEncoder())
    shutil.copytree(built, home)
    return Published(open_store("made"), FakeEncoder().encode_passages(made_passages), tmp_path / "some.pkl")


def stored(corpus: str = "made", n_rows: int = N) -> Vectors:
    found: Vectors = np.load(index_ref(corpus, "minilm").path / VECTORS)[:n_rows].astype(np.float32)
    return found


def array(vectors: Vectors) -> object:
    return vectors


def pairs(vectors: Vectors) -> object:
    """Some ids have the prefix of DPR's code."""
    return [(f"wiki:{row + 1}" if row % 3 else row + 1, vector) for row, vector in enumerate(vectors)]


def of_rows(rows: Sequence[int], others: Sequence[str] = ()) -> Content:
    """Vectors of some rows by their ids, followed by others with ids of their own."""
    ids = [*(str(row + 1) for row in rows), *others]
    return lambda vectors: (ids, np.concatenate([vectors[list(rows)], np.ones((len(others), DIM), dtype=np.float32)]))


def times(factors: Mapping[int, float], content: Content = array) -> Content:
    """Vectors of which some rows are multiplied."""
    return lambda vectors: content(vectors * np.array([factors.get(row, 1) for row in range(N)], dtype=np.float32)[:, None])


ALL, BACKWARDS = of_rows(range(N)), of_rows(range(N - 1, -1, -1))


def test_vectors_of_several_files_in_another_precision(published: Published) -> None:
    published.path.mkdir()
    for number, rows in enumerate(np.split(np.random.default_rng(1).permutation(N), [700, 1900])):
        content = of_rows(rows.tolist())(published.vectors.astype(np.float16))
        (published.path / f"passages_{number:02}").write_bytes(pickle.dumps(content))
    manifest = run(published.path, dtype="float16")
    assert dict(manifest.counts) == {"rows": N, "dim": DIM, "missing": 0}
    assert manifest.recipe.parameters["origin"] == "imported"
    assert [Path(manifest.sources[f"file {number}"]).name for number in range(3)] == ["passages_00", "passages_01", "passages_02"]
    found = np.load(index_ref("made", "minilm").path / VECTORS)
    assert found.dtype == manifest.recipe.parameters["dtype"] == "float16"
    np.testing.assert_array_equal(found, published.vectors.astype(np.float16))


@pytest.mark.parametrize(("corpus", "n_rows"), [("made", N), ("made@500", 500)])
@pytest.mark.parametrize("content", [array, pairs, BACKWARDS])
def test_a_corpus_takes_its_rows_by_order_or_id(published: Published, content: Content, corpus: str, n_rows: int) -> None:
    manifest = published.run(content, corpus)
    assert manifest.recipe.parameters["dtype"] == "float32"
    np.testing.assert_array_equal(stored(corpus, n_rows), published.vectors[:n_rows])


ALLOWED, SUBSET = {"allow_missing": True}, {"corpus": "made@500"}
FOREIGN = "has 4 embeddings that are not of this corpus, such as '0', 'a', 'b'$"
DOUBLED = "has 3 embeddings of passages that have one already, such as '7', '7', 'wiki:9'$"
LACKING = "lacks 2 of the corpus's 3,000 passages, such as '2999', '3000': --allow-missing imports the others$"
ZEROS = r"lacks 2 of .* such as '6', '2001' \(those of 2 are zeros\): --allow-missing imports the others"
TWICE = "has 1 embeddings of .* already, such as '6'; it lacks 999 of .* such as '1', '2', '3'$"
NO_IDS = "has 2,999 embeddings without ids for 3,000 passages, so that nothing says whose they are"
NO_NUMBER = r"has 3,000 embeddings without ids for an unknown number of passages \('alone' is not built\)"
LENGTH = "row 1234 has length 50, the encoder's have length 1: correct it, or scale all with --normalize"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (of_rows(range(N), ["0", "a", "b", "c"]), {}, FOREIGN),
        (of_rows(range(N - 10), ["0", "a", "b", "c"]), ALLOWED, FOREIGN),
        (of_rows(range(N), ["7", "7", "wiki:9"]), {}, DOUBLED),
        (of_rows(range(N - 10), ["7", "7", "wiki:9"]), ALLOWED, DOUBLED),
        (of_rows([*range(1000, N), 5], ["6"]), {}, TWICE),
        (of_rows([], ["x"]), {}, "begins with embeddings that are not of this corpus, such as 'x'$"),
        (of_rows(range(N - 2)), {}, LACKING),
        (of_rows(range(100, N)), SUBSET, "lacks 100 of the corpus's 500 passages, such as '1', '2', '3'"),
        (of_rows(range(600, N)), {**SUBSET, **ALLOWED, "verify": 5}, "has no embedding of any of the 500 passages"),
        (lambda vectors: vectors[1:], ALLOWED, NO_IDS),
        (lambda vectors: vectors[1:], SUBSET, NO_IDS),
        (lambda vectors: np.tile(vectors, (2, 1))[: N + 1], ALLOWED, "has 1 embeddings that are not .* such as vector 3,000"),
        (array, {"corpus": "alone@500"}, NO_NUMBER),
        (times({5: 0, 2000: 0}), {}, ZEROS),
        (times({5: 0, 2000: 0}, ALL), {}, ZEROS),
        (lambda vectors: vectors[:, :7].copy(), {}, r"some\.pkl holds vectors of dimension 7, 'minilm' has 8"),
        (lambda vectors: vectors[:0], {}, "holds no embeddings"),
        (times({1234: np.nan}), {}, "the vector of row 1234 is not finite"),
        (times({1234: 1e6}), {"dtype": "float16"}, "the vector of row 1234 has a component too large for float16"),
        (times({1234: 50}), {}, LENGTH),
        (lambda vectors: np.roll(vectors, 1, axis=0), {"verify": 10}, "of 10 passages that were encoded again 10 have another vector"),
        (array, {"dtype": "bfloat16"}, "--dtype bfloat16: imported vectors are stored as one of float32, float16"),
    ],
)
def test_what_may_not_be_the_vectors_is_refused(
    published: Published, home: Path, content: Content, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        published.run(content, **options)  # type: ignore[arg-type]
    assert not list(home.glob("*/vectors"))


@pytest.mark.parametrize("content", [array, ALL])
def test_vectors_of_zeros_are_missing_ones(published: Published, content: Content) -> None:
    manifest = published.run(times({5: 0, 2000: 0}, content), allow_missing=True)
    assert manifest.counts["missing"] == 2
    assert np.load(index_ref("made", "minilm").path / MISSING).tolist() == [5, 2000]
    assert run(published.path).counts == manifest.counts  # it is there


def test_a_file_called_passages_is_not_the_passages(build: Callable[..., PassageStore], published: Published) -> None:
    path = published.write(ALL).rename(published.path.with_name("passages"))
    with pytest.raises(KeyboardInterrupt):
        run(path, progress=interrupt)
    turned = published.store.get_many(range(N - 1, -1, -1))
    build(turned)
    run(path)
    np.testing.assert_array_equal(stored(), published.vectors[::-1])
    assert open_store("made").get_many([0]) == turned[:1]


def test_a_length_that_an_encoder_does_not_give_can_be_scaled(published: Published) -> None:
    published.run(times({1234: 50}), normalize=True, verify=N)
    np.testing.assert_allclose(stored(), published.vectors, rtol=1e-6)
    with pytest.raises(ArtifactMismatch, match="holds other vectors"):
        run(published.path)


@pytest.mark.parametrize(
    ("index", "longest", "encoder", "is_refused"),
    [
        ("IndexFlatL2", 1.5, "none", True),
        ("IndexFlatL2", 1.0, "none", False),
        ("IndexFlatL2", 1.5, "contriever", False),
        ("IndexFlatIP", 1.5, "none", False),
    ],
)
def test_an_index_for_distances_has_one_length(index: str, longest: float, encoder: str, is_refused: bool, published: Published) -> None:
    """Otherwise it ranks as no inner product does; the vectors of an encoder that idx knows are for that, whatever index holds them."""
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    flat = getattr(faiss, index)(DIM)
    flat.add(published.vectors * np.where(np.arange(N) == N - 1, longest, 1).astype(np.float32)[:, None])
    faiss.write_index(flat, str(published.path))
    if is_refused:
        with pytest.raises(InputError, match=r"Euclidean distance \(FAISS's METRIC_L2\) vectors of lengths from 1 to 1.5: .*--normalize"):
            run(published.path, encoder=encoder)
    run(published.path, encoder=encoder, normalize=is_refused)


ROWS = np.random.default_rng(2).permutation(N)  # of which the ids are one more


@pytest.mark.parametrize("factory", ["IDMap,HNSW16", "IVF16,Flat"])
@pytest.mark.parametrize(
    ("numbers", "ids", "message"),
    [
        (ROWS, None, ""),
        (ROWS, "rows", ""),
        (ROWS + 1, None, ""),
        (ROWS, "passages", "has 1 embeddings that are not of this corpus, such as '0'; it lacks 1 of .* such as '3000'"),
        (ROWS + 1, "rows", "has 1 embeddings that are not of this corpus, such as '3000'; it lacks 1 of .* such as '1'$"),
        (np.maximum(ROWS, 1), "rows", "has 1 embeddings of passages that have one already, such as '1'; it lacks 1 of"),
    ],
)
def test_ids_of_an_index_are_rows_or_those_of_passages(
    factory: str, numbers: NDArray[np.int64], ids: str | None, message: str, published: Published, caplog: pytest.LogCaptureFixture
) -> None:
    write_index(published, factory, numbers)
    with pytest.raises(InputError, match=message) if message else contextlib.nullcontext():
        run(published.path, ids=ids)
    assert message or np.array_equal(stored(), published.vectors)
    assert ("its ids are taken as rows" in caplog.text) == (ids is None and 0 in numbers)


def write_index(published: Published, factory: str, numbers: NDArray[np.int64]) -> None:
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    index = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(published.vectors)
    index.add_with_ids(published.vectors[ROWS], numbers)
    faiss.write_index(index, str(published.path))


def test_ids_that_are_both_are_asked_for(build: Callable[..., PassageStore], published: Published) -> None:
    """Passages with the ids from 0, in another order: ids may be these or rows."""
    write_index(published, "IVF16,Flat", ROWS)
    passages = zip(ROWS.tolist(), published.store.get_many(range(N)), strict=True)
    build([passage._replace(id=str(row)) for row, passage in passages])
    with pytest.raises(InputError, match="has ids that are those of passages, or rows: say which by --ids passages or --ids rows"):
        run(published.path)
    for ids, expected in {"rows": published.vectors, "passages": published.vectors[ROWS]}.items():
        run(published.path, ids=ids, force=True)
        np.testing.assert_array_equal(stored(), expected)
    with pytest.raises(ArtifactMismatch, match="holds other vectors"):
        run(published.path, ids="rows")


def test_verification_encodes_again(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(1).normal(scale=0.002, size=(N, DIM)).astype(np.float32)  # as half precision would
    published.run(lambda vectors: vectors + noise, verify=N)
    wrong = published.write(lambda vectors: np.concatenate([vectors[1700:1701], vectors[1:]]) + noise)
    run(wrong, verify=20, force=True)  # does not happen to meet row 0
    with pytest.raises(InputError, match=r"of 3000 passages that were encoded again 1 have another vector, the worst that of row 0, by \d"):
        run(wrong, verify=N)  # it is there, and is verified all the same
    with pytest.raises(InputError, match="the embeddings are of another encoder than 'minilm', or of other texts"):
        run(wrong, verify=N, force=True)
    monkeypatch.setattr(FakeEncoder, "encode_passages", lambda self, passages: np.full((len(passages), DIM), np.nan, dtype=np.float32))
    with pytest.raises(InputError, match="of 10 passages that were encoded again 10 have another vector"):
        published.run(array, verify=10, force=True)


def test_what_is_there_is_replaced_by_force_only(published: Published) -> None:
    created = published.run(array)
    path = published.path.rename(published.path.with_name("renamed.pkl"))
    assert run(path) == created
    with pytest.raises(ArtifactMismatch, match=r"holds other vectors \(imported 20.*\): --force replaces them"):
        published.run(np.negative)
    with pytest.raises(ArtifactMismatch, match="holds other vectors"):
        run(path, dtype="float16")
    published.run(np.negative, force=True)
    np.testing.assert_array_equal(stored(), -published.vectors)
    with lock(index_ref("made", "minilm").path), pytest.raises(LockedError):
        run(path, force=True)
