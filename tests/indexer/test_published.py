"""Published embeddings become a corpus's vectors only if they are certain to match its passages."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from wikidx.base.artifacts.building import lock, staging_path
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import ArtifactMismatch, InputError, LockedError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Vectors
from wikidx.indexer.build import open_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.exact.index import ExactIndex
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published import formats as embedding_formats
from wikidx.indexer.published import importing as published
from wikidx.indexer.published.formats import find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors
from wikidx.indexer.vectors.file import VECTORS

DIM = 8


class FakeEncoder:
    """A passage's vector, of length 1, is made of its text's bytes."""

    name = "minilm"

    def __init__(self, *arguments: object) -> None:
        pass

    def encode(self, passages: Sequence[Passage]) -> Vectors:
        vectors = np.array([np.random.default_rng(list(passage.text.encode())).normal(size=DIM) for passage in passages], dtype=np.float32)
        unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_formats, "BLOCK_ROWS", 300)
    monkeypatch.setattr(published, "PassageEncoder", FakeEncoder)


@pytest.fixture
def store(build: Callable[..., PassageStore], made_passages: list[Passage]) -> PassageStore:
    return build(made_passages)


@pytest.fixture
def made(made_passages: list[Passage]) -> Vectors:
    return FakeEncoder().encode(made_passages)


def pickled(path: Path, content: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=4))
    return path


def run(path: Path, corpus: str = "made", **options: object) -> Manifest:
    spec = dataclasses.replace(encoder_spec("minilm"), dim=DIM)
    return import_vectors(corpus, spec, open_store(corpus), find_embeddings(path), ImportOptions(**options))  # type: ignore[arg-type]


def run_interrupted(path: Path) -> None:
    """Stop an import when two thirds are read."""

    def interrupt(done: int, total: int | None) -> None:
        if done >= 2000:
            raise KeyboardInterrupt

    spec = dataclasses.replace(encoder_spec("minilm"), dim=DIM)
    with pytest.raises(KeyboardInterrupt):
        import_vectors("made", spec, open_store("made"), find_embeddings(path), ImportOptions(), interrupt)


def opened(corpus: str = "made") -> ExactIndex:
    index = open_index(corpus, "minilm", open_store(corpus))
    assert isinstance(index, ExactIndex)
    return index


def stored(corpus: str = "made", n_rows: int = 3000) -> Vectors:
    found: Vectors = np.load(index_ref(corpus, "minilm").path / VECTORS)[:n_rows].astype(np.float32)
    return found


def test_each_vector_goes_to_the_row_of_its_id(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(len(store))
    passages = store.get_many(order)
    for number, part in enumerate(np.split(np.arange(len(store)), [700, 1900])):
        ids = [passages[n].id for n in part.tolist()]
        pickled(tmp_path / "files" / f"passages_{number:02}", (ids, made[order[part]].astype(np.float16)))
    manifest = run(tmp_path / "files")
    assert dict(manifest.counts) == {"rows": 3000, "dim": DIM, "missing": 0}
    assert manifest.recipe.parameters["origin"] == "imported"
    assert manifest.recipe.parameters["dtype"] == "float16"
    assert [Path(manifest.sources[f"file {number}"]).name for number in range(3)] == ["passages_00", "passages_01", "passages_02"]
    found = np.load(index_ref("made", "minilm").path / VECTORS)
    np.testing.assert_array_equal(found, made.astype(np.float16))
    assert len(opened()) == 3000


def test_vectors_without_ids_go_row_by_row(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    run(pickled(tmp_path / "array.pkl", made))
    np.testing.assert_array_equal(stored(), made)


@pytest.mark.parametrize("n", [2999, 3001])
def test_vectors_without_ids_must_be_as_many_as_the_passages(store: PassageStore, made: Vectors, tmp_path: Path, n: int) -> None:
    path = pickled(tmp_path / "array.pkl", np.resize(made, (n, DIM)))
    message = {
        2999: "has 2,999 embeddings without ids for 3,000 passages, so that nothing says whose they are",
        3001: "has 1 embeddings that are not of this corpus, such as vector 3,000",
    }[n]
    with pytest.raises(InputError, match=message):
        run(path, allow_missing=True)
    assert not index_ref("made", "minilm").path.parent.exists()
    assert not staging_path(index_ref("made", "minilm").path).exists()


def test_ids_with_the_prefix_of_dprs_code_are_known(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    pairs = [(f"wiki:{row + 1}" if row % 3 else row + 1, vector) for row, vector in enumerate(made)]
    manifest = run(pickled(tmp_path / "wiki_passages_0", pairs))
    assert manifest.recipe.parameters["dtype"] == "float32"
    np.testing.assert_array_equal(stored(), made)


def embeddings(store: PassageStore, made: Vectors, rows: Sequence[int], ids: Sequence[str] = ()) -> object:
    """Return the embeddings of some rows, followed by some with ids of their own."""
    found = [passage.id for passage in store.get_many(rows)]
    return [*found, *ids], np.concatenate([made[list(rows)], np.ones((len(ids), DIM), dtype=np.float32)])


FOREIGN = "has 4 embeddings that are not of this corpus, such as '0', 'a', 'b'$"
DOUBLED = "has 3 embeddings of passages that have one already, such as '7', '7', 'wiki:9'$"


@pytest.mark.parametrize(
    ("rows", "ids", "message"),
    [
        (range(3000), ["0", "a", "b", "c"], FOREIGN),
        (range(3000), ["7", "7", "wiki:9"], DOUBLED),
        (range(2998), [], "lacks 2 of the corpus's 3,000 passages, such as '2999', '3000': --allow-missing imports the others$"),
        ([*range(1000, 3000), 5], ["6"], "has 1 embeddings of .* already, such as '6'; it lacks 999 of .* such as '1', '2', '3'$"),
        ([], ["x"], "begins with embeddings that are not of this corpus, such as 'x'$"),
    ],
)
def test_other_coverage_is_refused_with_numbers_and_names(
    store: PassageStore, made: Vectors, tmp_path: Path, rows: Sequence[int], ids: Sequence[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(pickled(tmp_path / "some.pkl", embeddings(store, made, rows, ids)))
    assert not index_ref("made", "minilm").path.parent.exists()


@pytest.mark.parametrize(("ids", "message"), [(["0", "a", "b", "c"], FOREIGN), (["7", "7", "wiki:9"], DOUBLED)])
def test_only_missing_ones_can_be_allowed(store: PassageStore, made: Vectors, tmp_path: Path, ids: Sequence[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(pickled(tmp_path / "some.pkl", embeddings(store, made, range(2990), ids)), allow_missing=True)


def test_a_partial_import_shifts_nothing_and_is_never_found(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    missing = np.array([0, 999, 1000, 1500, 2999])
    rows = np.delete(np.arange(3000), missing)[::-1]
    path = pickled(tmp_path / "some.pkl", embeddings(store, made, rows.tolist()))
    manifest = run(path, allow_missing=True)
    assert dict(manifest.counts) == {"rows": 3000, "dim": DIM, "missing": 5}
    hits = opened().search(made[:20], 3000)
    products = made[:20] @ made.T
    products[:, missing] = -np.inf
    np.testing.assert_array_equal(hits.rows[:, :1], np.argmax(products, axis=1)[:, np.newaxis])
    assert not np.isin(hits.rows, missing).any()
    assert (hits.rows[:, -5:] == -1).all()
    assert run(path).counts == manifest.counts  # it is there


def test_a_subset_takes_its_rows_from_the_whole(
    build: Callable[..., PassageStore], store: PassageStore, made: Vectors, tmp_path: Path
) -> None:
    build(store.get_many(range(500)), "made@500")
    for name, content in (("ids.pkl", embeddings(store, made, range(2999, -1, -1))), ("array.pkl", made)):
        run(pickled(tmp_path / name, content), "made@500", force=True)
        np.testing.assert_array_equal(stored("made@500", 500), made[:500])
    with pytest.raises(InputError, match="lacks 100 of the corpus's 500 passages, such as '1', '2', '3'"):
        run(pickled(tmp_path / "tail.pkl", embeddings(store, made, range(100, 3000))), "made@500", force=True)


def test_vectors_without_ids_for_a_subset_must_be_as_many_as_the_whole_has_passages(
    build: Callable[..., PassageStore], store: PassageStore, made: Vectors, tmp_path: Path
) -> None:
    build(store.get_many(range(500)), "made@500")
    build(store.get_many(range(500)), "alone@500")
    with pytest.raises(InputError, match="has 2,990 embeddings without ids for 3,000 passages"):
        run(pickled(tmp_path / "fewer.pkl", made[:2990].copy()), "made@500")
    with pytest.raises(InputError, match=r"has 3,000 embeddings without ids for an unknown number of passages \('alone' is not built\)"):
        run(pickled(tmp_path / "array.pkl", made), "alone@500")


def test_embeddings_of_none_of_a_subsets_passages_are_refused(
    build: Callable[..., PassageStore], store: PassageStore, made: Vectors, tmp_path: Path
) -> None:
    build(store.get_many(range(500)), "made@500")
    path = pickled(tmp_path / "tail.pkl", embeddings(store, made, range(600, 3000)))
    with pytest.raises(InputError, match="has no embedding of any of the 500 passages"):
        run(path, "made@500", allow_missing=True, verify=5)


def test_a_file_called_passages_is_not_taken_for_the_passages(
    build: Callable[..., PassageStore], store: PassageStore, made: Vectors, tmp_path: Path
) -> None:
    path = pickled(tmp_path / "passages", embeddings(store, made, range(3000)))
    run_interrupted(path)
    turned = store.get_many(range(2999, -1, -1))
    build(turned)
    run(path)
    np.testing.assert_array_equal(stored(), made[::-1])
    assert open_store("made").get_many([0]) == turned[:1]


def test_the_same_file_under_another_name_is_the_same(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    created = run(pickled(tmp_path / "one.pkl", made))
    assert run(pickled(tmp_path / "other.pkl", made)) == created


def test_an_encoder_that_gives_no_numbers_verifies_nothing(
    store: PassageStore, made: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeEncoder, "encode", lambda self, passages: np.full((len(passages), DIM), np.nan, dtype=np.float32))
    with pytest.raises(InputError, match="of 10 passages that were encoded again 10 have another vector"):
        run(pickled(tmp_path / "array.pkl", made), verify=10)


def test_embeddings_of_another_dimension_are_refused(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"some\.pkl holds vectors of dimension 7, 'minilm' has 8"):
        run(pickled(tmp_path / "some.pkl", made[:, :7].copy()))
    with pytest.raises(InputError, match="holds no embeddings"):
        run(pickled(tmp_path / "none.pkl", np.zeros((0, DIM), dtype=np.float32)))


def test_a_component_that_is_not_finite_is_named(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    made[1234, 3] = np.nan
    with pytest.raises(InputError, match="the vector of row 1234 is not finite"):
        run(pickled(tmp_path / "array.pkl", made))
    made[1234, 3] = 1e5
    with pytest.raises(InputError, match="the vector of row 1234 has a component too large for float16"):
        run(pickled(tmp_path / "array.pkl", made), dtype="float16")
    assert not index_ref("made", "minilm").path.parent.exists()


def test_a_length_that_an_encoder_does_not_give_is_refused_or_scaled(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    path = pickled(tmp_path / "array.pkl", made * np.where(np.arange(3000) == 1234, 50, 1)[:, None].astype(np.float32))
    with pytest.raises(InputError, match=r"row 1234 has length 50, the encoder's have length 1: correct it, or scale all with --normalize"):
        run(path)
    run(path, normalize=True, verify=3000)
    np.testing.assert_allclose(stored(), made, rtol=1e-6)
    with pytest.raises(ArtifactMismatch, match="holds other vectors"):
        run(path)


@pytest.mark.parametrize(
    ("index", "longest", "encoder", "is_refused"),
    [
        ("IndexFlatL2", 1.5, "none", True),
        ("IndexFlatL2", 1.0, "none", False),
        ("IndexFlatL2", 1.5, "contriever", False),
        ("IndexFlatIP", 1.5, "none", False),
    ],
)
@pytest.mark.usefixtures("store")
def test_an_index_for_distances_has_vectors_of_one_length(
    index: str, longest: float, encoder: str, is_refused: bool, made: Vectors, tmp_path: Path
) -> None:
    """Otherwise it ranks as no inner product does; the vectors of an encoder that idx knows are for that, whatever index holds them."""
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    flat = getattr(faiss, index)(DIM)
    flat.add(np.concatenate([made[:-1], np.float32(longest) * made[-1:]]))
    faiss.write_index(flat, str(tmp_path / "index"))
    arguments = "made", dataclasses.replace(encoder_spec(encoder), dim=DIM), open_store("made"), find_embeddings(tmp_path / "index")
    if is_refused:
        with pytest.raises(InputError, match=r"Euclidean distance \(FAISS's METRIC_L2\) vectors of lengths from 1 to 1.5: .*--normalize"):
            import_vectors(*arguments, ImportOptions())
    import_vectors(*arguments, ImportOptions(normalize=is_refused))


@pytest.mark.parametrize("has_ids", [False, True])
def test_vectors_of_zeros_are_missing_ones(store: PassageStore, made: Vectors, tmp_path: Path, has_ids: bool) -> None:
    made[[5, 2000]] = 0
    path = pickled(tmp_path / "some.pkl", embeddings(store, made, range(3000)) if has_ids else made)
    with pytest.raises(InputError, match=r"lacks 2 of .* such as '6', '2001' \(those of 2 are zeros\): --allow-missing imports the others"):
        run(path)
    assert run(path, allow_missing=True).counts["missing"] == 2
    assert not np.isin(opened().search(made[:1], 3000).rows, [5, 2000]).any()


@pytest.mark.parametrize("n_other", [0, 1])
def test_verification_encodes_again(store: PassageStore, made: Vectors, tmp_path: Path, n_other: int) -> None:
    made += np.random.default_rng(1).normal(scale=0.002, size=made.shape).astype(np.float32)  # as half precision would
    made[:n_other] = made[1700]
    path = pickled(tmp_path / "array.pkl", made)
    run(path, verify=20)  # does not happen to meet row 0
    if n_other:
        with pytest.raises(
            InputError, match=r"of 3000 passages that were encoded again 1 have another vector, the worst that of row 0, by \d"
        ):
            run(path, verify=3000)  # it is there, and is verified all the same
        with pytest.raises(InputError, match="the embeddings are of another encoder than 'minilm', or of other texts"):
            run(path, verify=3000, force=True)
    else:
        run(path, verify=3000)


def test_shifted_vectors_do_not_pass_verification(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="of 10 passages that were encoded again 10 have another vector"):
        run(pickled(tmp_path / "array.pkl", np.roll(made, 1, axis=0)), verify=10)
    assert not index_ref("made", "minilm").path.parent.exists()


def test_what_is_there_is_replaced_by_force_only(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    path = pickled(tmp_path / "array.pkl", made)
    created = run(path)
    assert run(path) == created
    other = pickled(tmp_path / "other.pkl", -made)
    with pytest.raises(ArtifactMismatch, match=r"holds other vectors \(imported 20.*\): --force replaces them"):
        run(other)
    with pytest.raises(ArtifactMismatch, match="holds other vectors"):
        run(path, dtype="float16")
    run(other, force=True)
    np.testing.assert_array_equal(stored(), -made)
    with lock(index_ref("made", "minilm").path), pytest.raises(LockedError):
        run(path, force=True)


def test_an_interrupted_import_resumes(store: PassageStore, made: Vectors, tmp_path: Path) -> None:
    path = pickled(tmp_path / "array.pkl", made)
    run_interrupted(path)
    assert (staging_path(index_ref("made", "minilm").path) / VECTORS).exists()
    run(path)
    np.testing.assert_array_equal(stored(), made)
    assert sorted(file.name for file in index_ref("made", "minilm").path.iterdir()) == ["manifest.json", "sums", VECTORS]


def test_types_that_are_not_stored_are_refused() -> None:
    with pytest.raises(InputError, match="--dtype bfloat16: imported vectors are stored as one of float32, float16"):
        ImportOptions(dtype="bfloat16")
