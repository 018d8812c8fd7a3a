"""Vectors of users in numpy's arrays, safetensors, Parquet and flat FAISS indexes, with ids in a column or a file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wikidx.base.errors import InputError
from wikidx.indexer.base import Vectors
from wikidx.indexer.published import arrays
from wikidx.indexer.published.formats import find_embeddings

N, DIM = 1000, 6
IDS = [f"passage {n}" for n in np.random.default_rng(0).permutation(N)]
VECTORS: Vectors = np.random.default_rng(3).normal(size=(N, DIM)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 300)


def read(path: Path, ids: Path | str | None = None) -> tuple[list[str] | None, Vectors]:
    """Read a file; check that the blocks are in order and of the size that they should have."""
    blocks = list(find_embeddings(path, ids=None if ids is None else str(ids)).blocks())
    assert [block.first for block in blocks] == list(np.cumsum([0, *(len(block.vectors) for block in blocks)])[:-1])
    found = [block.ids for block in blocks]
    assert {block.vectors.dtype.name for block in blocks} <= {"float16", "float32"}
    whole = np.concatenate([block.vectors for block in blocks])
    return None if found[0] is None else [id_ for part in found for id_ in part or []], whole


def id_file(folder: Path, ids: list[str] = IDS) -> Path:
    (folder / "ids.txt").write_text("".join(f"{id_}\n" for id_ in ids))
    return folder / "ids.txt"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_an_array_of_numpy_takes_its_ids_from_a_file(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS.astype(dtype))
    ids, vectors = read(tmp_path / "v.npy", id_file(tmp_path))
    assert ids == IDS
    assert vectors.dtype == ("float16" if dtype == "float16" else "float32")
    np.testing.assert_array_equal(vectors, VECTORS.astype(dtype))
    assert read(tmp_path / "v.npy")[0] is None


@pytest.mark.parametrize("numbers", [np.arange(N)[::-1].copy(), np.array(IDS)])
def test_ids_are_an_array_of_numpy_too(numbers: Any, tmp_path: Path) -> None:  # noqa: ANN401
    np.save(tmp_path / "v.npy", VECTORS)
    np.save(tmp_path / "ids.npy", numbers)
    assert read(tmp_path / "v.npy", tmp_path / "ids.npy")[0] == list(map(str, numbers))


def test_several_arrays_of_a_folder_are_one(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name, rows in (("v9.npy", slice(0, 350)), ("v10.npy", slice(350, N))):
        np.save(tmp_path / "parts" / name, VECTORS[rows])
    ids, vectors = read(tmp_path / "parts", id_file(tmp_path))
    assert ids == IDS
    np.testing.assert_array_equal(vectors, VECTORS)


@pytest.mark.parametrize(("n_ids", "message"), [(N - 1, "has more vectors than .*ids.txt has ids, 999"), (N + 1, "has more ids than")])
def test_ids_are_as_many_as_vectors(n_ids: int, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "v.npy", id_file(tmp_path, [str(n) for n in range(n_ids)]))


def test_ids_as_python_objects_are_refused_and_their_texts_read(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    ids = np.array(IDS, dtype=object)
    np.save(tmp_path / "ids.npy", ids)
    with pytest.raises(InputError, match=r"ids.npy holds Python objects: save ids by ids.astype\(str\)"):
        read(tmp_path / "v.npy", tmp_path / "ids.npy")
    np.savez(tmp_path / "ids.npz", ids)
    (tmp_path / "ids.npz").rename(tmp_path / "ids.npy")
    with pytest.raises(InputError, match=r"ids.npy is cut off, or no array of numbers: the magic string is not correct"):
        read(tmp_path / "v.npy", tmp_path / "ids.npy")
    np.save(tmp_path / "ids.npy", ids.astype(str))
    assert read(tmp_path / "v.npy", tmp_path / "ids.npy")[0] == IDS


@pytest.mark.parametrize("dtype", ["F16", "F32", "F64", "BF16"])
def test_a_tensor_is_read_as_safetensors_reads_it(dtype: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
    save_file = pytest.importorskip("safetensors.torch").save_file
    kinds = {"F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16}
    tensor = torch.tensor(VECTORS).to(kinds[dtype])
    save_file({"embeddings": tensor, "ids": torch.arange(N).flip(0)}, tmp_path / "v.safetensors", {"made": "by a test"})
    ids, vectors = read(tmp_path / "v.safetensors")
    assert ids == list(map(str, range(N - 1, -1, -1)))
    np.testing.assert_array_equal(vectors, tensor.float().numpy())
    save_file({"embeddings": tensor}, tmp_path / "v.safetensors")
    assert read(tmp_path / "v.safetensors", id_file(tmp_path))[0] == IDS
    save_file({"a": tensor, "b": tensor.clone()}, tmp_path / "v.safetensors")
    with pytest.raises(InputError, match=r"has 2 tensors of two dimensions \(a, b\): one is imported"):
        read(tmp_path / "v.safetensors")


@pytest.mark.parametrize("form", ["lists", "fixed", "tensor"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_parquet_has_a_column_of_ids_and_one_of_lists(dtype: str, form: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    values = pa.array(VECTORS.astype(dtype).ravel())
    lists = pa.FixedSizeListArray.from_arrays(values, DIM)
    tensor = pa.fixed_shape_tensor(values.type, [2, DIM // 2])
    column = {"lists": lists.cast(pa.list_(values.type)), "fixed": lists, "tensor": pa.ExtensionArray.from_storage(tensor, lists)}[form]
    table = pa.table({"text": ["some"] * N, "_id": IDS, "number": np.arange(N), "vector": column})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "v.parquet", row_group_size=411)
    ids, vectors = read(tmp_path / "v.parquet")
    assert ids == IDS
    np.testing.assert_array_equal(vectors, VECTORS.astype(dtype))
    assert read(tmp_path / "v.parquet", "number")[0] == list(map(str, range(N)))
    with pytest.raises(InputError, match="has the columns text, _id, number, vector: needed are one of ids, other "):
        read(tmp_path / "v.parquet", "other")


@pytest.mark.parametrize("lists", [[[1.0, 2.0], [3.0]], [[1.0], None]])
def test_parquet_with_vectors_of_several_lengths_is_refused(lists: list[Any], tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"id": [1, 2], "vector": lists}), tmp_path / "v.parquet")
    with pytest.raises(InputError, match="rows without an id, or with vectors of several lengths"):
        read(tmp_path / "v.parquet")


@pytest.mark.parametrize("folders", [(".", "."), ("year=2020", "year=2021"), ("year=2020/month=9", "year=2020/month=10")])
def test_folders_of_spark_and_hive_are_read(folders: tuple[str, str], tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "_temporary").mkdir()
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-0.parquet.crc", "_temporary/part-0.parquet"):
        (tmp_path / name).write_bytes(b"crc\0" * (name != "_SUCCESS"))
    for number, (folder, rows) in enumerate(zip(folders, (slice(0, 400), slice(400, N)), strict=True)):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": IDS[rows], "vector": list(VECTORS[rows])})
        parquet.write_table(table, tmp_path / folder / f"part-{number}.snappy.parquet")
    ids, vectors = read(tmp_path)
    assert ids == IDS
    np.testing.assert_array_equal(vectors, VECTORS)


def test_ids_are_compressed_or_told_to_be_of_another_encoding(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    packed = tmp_path / "ids.txt.gz"
    packed.write_bytes(gzip.compress(id_file(tmp_path).read_bytes()))
    assert read(tmp_path / "v.npy", packed)[0] == IDS
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"ids.txt.gz is corrupt: .*: fetch or compress it again"):
        read(tmp_path / "v.npy", packed)
    (tmp_path / "ids.txt").write_text("\n".join(IDS), encoding="utf-16")
    with pytest.raises(InputError, match=r"ids.txt: line 1 is no id in UTF-8, but perhaps in UTF-16: convert it"):
        read(tmp_path / "v.npy", tmp_path / "ids.txt")


@pytest.mark.parametrize("metric", ["METRIC_INNER_PRODUCT", "METRIC_L2"])
@pytest.mark.parametrize("factory", ["IDMap,Flat", "IDMap2,Flat"])
def test_a_flat_index_may_have_ids(factory: str, metric: str, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    index = faiss.index_factory(DIM, factory, getattr(faiss, metric))
    numbers = np.random.default_rng(0).permutation(10 * N)[:N]
    index.add_with_ids(VECTORS, numbers)
    faiss.write_index(index, str(tmp_path / "index"))
    ids, vectors = read(tmp_path / "index")
    assert ids == list(map(str, numbers))
    np.testing.assert_array_equal(vectors, VECTORS)
    with pytest.raises(InputError, match="has ids of its own: leave out --ids"):
        read(tmp_path / "index", id_file(tmp_path))
    content = (tmp_path / "index").read_bytes()
    (tmp_path / "index").write_bytes(content[:-8])
    with pytest.raises(InputError, match="is cut off: it does not end with 1,000 ids"):
        read(tmp_path / "index")


@pytest.mark.parametrize("metric", ["METRIC_L1", "METRIC_Lp"])
def test_an_index_of_another_metric_is_refused(metric: str, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    faiss.write_index(faiss.IndexFlat(DIM, getattr(faiss, metric)), str(tmp_path / "index"))
    with pytest.raises(InputError, match=f"compares by FAISS's metric {getattr(faiss, metric)} .*an index for inner products is needed"):
        read(tmp_path / "index")


def cut_npy(path: Path) -> None:
    np.save(path, VECTORS)
    path.write_bytes(path.read_bytes()[:-1])


def objects_npy(path: Path) -> None:
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


def tensors(header: object, content: bytes = b"") -> Callable[[Path], None]:
    text = json.dumps(header).encode()
    return lambda path: [path.write_bytes(len(text).to_bytes(8, "little") + text + content)].clear()


def tensor(shape: list[int]) -> dict[str, object]:
    return {"v": {"dtype": "F32", "shape": shape, "data_offsets": [0, 24]}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cut_npy, "is cut off, or no array of numbers: "),
        (objects_npy, "holds Python objects: save ids by .*, vectors by numpy.stack"),
        (lambda path: np.save(path, np.arange(3.0)), r"holds float64 of shape \(3,\): vectors are floats of two dimensions"),
        (lambda path: np.save(path, np.ones((3, 2), dtype=np.int32)), r"holds int32 of shape \(3, 2\): vectors are floats"),
        (tensors(tensor([3, 2]), bytes(20)), "is cut off, or no file of safetensors: "),
        (tensors(tensor([2**70, 2])), "is cut off, or no file of safetensors: "),
        (tensors({"v": {"dtype": "F32", "shape": [3, 2], "data_offsets": [-500, 24]}}), "is cut off, or no file of safetensors: "),
        (
            lambda path: path.write_bytes((200_000).to_bytes(8, "little") + b'{"v":' + b"[" * 199_995),
            "safetensors: it is nested too deeply",
        ),
        (lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr':'<f4',,"), "is cut off, or no array of numbers: "),
        (tensors({"v": 1}), "is cut off, or no file of safetensors: "),
        (tensors({"v": {"dtype": "F32", "shape": [3, 2]}}), "is cut off, or no file of safetensors: "),
        (lambda path: path.write_bytes(b"PAR1" + bytes(40)), "is cut off or corrupt: "),
    ],
)
def test_other_content_is_refused_in_one_line(make: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "made.npy", VECTORS)
    path = tmp_path / "vectors.npy"
    make(path)
    with pytest.raises(InputError, match=message) as raised:
        read(path)
    assert "\n" not in str(raised.value)
