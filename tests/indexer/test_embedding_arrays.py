"""Vectors of users in numpy's arrays, safetensors and Parquet, with ids in a column or a file; contracts/test_embedding_file has more."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.indexer.embedding_files import (
    DIM,
    IDS,
    NUMBERS,
    VECTORS,
    N,
    check_refused,
    flat,
    npy,
    npz,
    parquet,
    read,
    safetensors,
    torch_save,
    write,
)
from wikidx.base.errors import InputError
from wikidx.indexer.published import arrays
from wikidx.indexer.published.formats import find_embeddings

Files = dict[str, bytes]
LINES = "".join(f"{id_}\n" for id_ in IDS).encode()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 300)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_an_array_of_numpy_takes_its_ids_from_a_file(dtype: str, tmp_path: Path) -> None:
    write(tmp_path, {"v.npy": npy(VECTORS.astype(dtype)), "ids.txt": LINES, "ids.txt.gz": gzip.compress(LINES)})
    ids, vectors = read(tmp_path / "v.npy", tmp_path / "ids.txt")
    assert ids == read(tmp_path / "v.npy", tmp_path / "ids.txt.gz")[0] == IDS
    assert vectors.dtype == ("float16" if dtype == "float16" else "float32")
    np.testing.assert_array_equal(vectors, VECTORS.astype(dtype))


@pytest.mark.parametrize("ids", [NUMBERS, np.array(IDS), np.array(IDS, dtype=object).astype(str)])
def test_ids_are_an_array_of_numpy_too(ids: NDArray[Any], tmp_path: Path) -> None:
    write(tmp_path, {"v.npy": npy(VECTORS), "ids.npy": npy(ids)})
    assert read(tmp_path / "v.npy", tmp_path / "ids.npy")[0] == [*map(str, ids)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_a_tensor_is_read_as_safetensors_reads_it(dtype: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
    tensor = torch.tensor(VECTORS).to(getattr(torch, dtype))
    write(tmp_path, {"v.safetensors": safetensors({"embeddings": tensor}), "ids.txt": LINES})
    assert read(tmp_path / "v.safetensors")[0] is None
    ids, vectors = read(tmp_path / "v.safetensors", tmp_path / "ids.txt")
    assert ids == IDS
    np.testing.assert_array_equal(vectors, tensor.float().numpy())


@pytest.mark.parametrize("form", ["lists", "fixed", "tensor"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_parquet_has_a_column_of_ids_and_one_of_lists(dtype: str, form: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    values = pa.array(VECTORS.astype(dtype).ravel())
    lists = pa.FixedSizeListArray.from_arrays(values, DIM)
    tensor = pa.fixed_shape_tensor(values.type, [2, DIM // 2])
    column = {"lists": lists.cast(pa.list_(values.type)), "fixed": lists, "tensor": pa.ExtensionArray.from_storage(tensor, lists)}[form]
    path = write(tmp_path, {"v": parquet({"text": ["some"] * N, "_id": IDS, "number": NUMBERS, "vector": column})}) / "v"
    ids, vectors = read(path)
    assert ids == IDS
    np.testing.assert_array_equal(vectors, VECTORS.astype(dtype))
    assert read(path, "number")[0] == [*map(str, NUMBERS)]


@pytest.mark.parametrize("folders", [(".", "."), ("year=2020", "year=2021"), ("year=2020/month=9", "year=2020/month=10")])
def test_folders_of_spark_and_hive_are_read(folders: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "_temporary").mkdir()
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-0.parquet.crc", "_temporary/part-0.parquet"):
        (tmp_path / name).write_bytes(b"crc\0" * (name != "_SUCCESS"))
    for number, (folder, rows) in enumerate(zip(folders, (slice(0, 400), slice(400, N)), strict=True)):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        write(tmp_path / folder, {f"part-{number}.snappy.parquet": parquet({"id": IDS[rows], "vector": list(VECTORS[rows])})})
    ids, vectors = read(tmp_path)
    assert ids == IDS
    np.testing.assert_array_equal(vectors, VECTORS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data/x.lance", b"x", "holds no file to read: names that begin with _ or ., and folders but NAME=VALUE, are left out"),
        ("v", b"SQLite format 3\0" + bytes(99), "v is a SQLite database, which is none of the formats"),
        ("v", b"\4\x22M\x18" + bytes(99), "v is an lz4 file .*, which is none of the formats"),
    ],
)
def test_folders_and_files_of_other_programs_are_told(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("name", ["doc_id", "docno", "passage_id"])
def test_usual_names_of_ids_are_known(name: str, tmp_path: Path) -> None:
    assert read(write(tmp_path, {"v.parquet": parquet({name: IDS, "vector": list(VECTORS)})}) / "v.parquet")[0] == IDS


def test_parquet_needs_a_column_of_ids(tmp_path: Path) -> None:
    columns = {"text": ["some"] * N, "_id": IDS, "vector": list(VECTORS)}
    message = "has the columns text, _id, vector: needed are one of ids, other "
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, {"v.parquet": parquet(columns)}) / "v.parquet", "other")


def test_ids_have_a_name_or_a_file_in_archives_too(tmp_path: Path) -> None:
    arrays = {"ids": NUMBERS, "names": np.array(IDS), "v": VECTORS}
    write(tmp_path, {"v.npz": npz(arrays), "w.npz": npz({"v": VECTORS}), "ids.txt": LINES})
    assert read(tmp_path / "v.npz")[0] == [*map(str, NUMBERS)]
    assert read(tmp_path / "v.npz", "names")[0] == read(tmp_path / "w.npz", tmp_path / "ids.txt")[0] == IDS
    with pytest.raises(InputError, match="v.npz has ids, names, v: needed is one array of two dimensions, and ids 'other'"):
        read(tmp_path / "v.npz", "other")


def test_ids_of_an_index_are_rows_passages_or_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"index": flat(), "ids.txt": LINES})
    assert read(tmp_path / "index", tmp_path / "ids.txt")[0] == IDS
    with pytest.raises(InputError, match="--ids row: there is no such file"):
        read(tmp_path / "index", "row")


def test_files_are_read_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"b.npy": npz({"v": VECTORS[:500]}), "a.npy": npz({"v": VECTORS[500:]})})
    blocks = find_embeddings(tmp_path / "b.npy", further=[tmp_path / "a.npy"]).blocks()
    np.testing.assert_array_equal(np.concatenate([block.vectors for block in blocks]), VECTORS)
    with pytest.raises(InputError, match="there is no file .*missing"):
        find_embeddings(tmp_path / "b.npy", further=[tmp_path / "missing"])


class Payload:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, ("payload has run",)


def test_a_payload_in_a_file_of_torch_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_refused(tmp_path, {"v.pt": torch_save(lambda torch: {"v": torch.tensor(VECTORS), "a": Payload()})}, "nothing of it was run")
    assert not Path("payload has run").exists()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({"ids.txt": LINES[:-1].rpartition(b"\n")[0]}, "has more vectors than .*ids.txt has ids, 1,199"),
        ({"ids.txt": LINES + b"another\n"}, "ids.txt has more ids than .* has vectors, 1,200: is the first, '.*', a header"),
        ({"ids.npy": npy(np.array(IDS, dtype=object))}, r"ids.npy holds Python objects: save ids by ids.astype\(str\)"),
        ({"ids.npy": npz({"ids": np.array(IDS)})}, "ids.npy is cut off, or no array of numbers: the magic string is not"),
        ({"ids.npy": npy(VECTORS)}, r"ids.npy holds float32 of shape \(1200, 8\): ids are one dimension of integers or"),
        ({"ids.txt.gz": gzip.compress(LINES)[:-9]}, r"ids.txt.gz is corrupt: .*: fetch or compress it again"),
        ({"ids.txt": LINES.decode().encode("utf-16")}, "line 1 is no id in UTF-8, but perhaps in UTF-16: convert it"),
    ],
)
def test_ids_that_do_not_fit_are_refused(ids: Files, message: str, tmp_path: Path) -> None:
    check_refused(tmp_path, {"vectors": npy(VECTORS), **ids}, message, *ids)


def test_an_index_with_ids_takes_no_others(tmp_path: Path) -> None:
    check_refused(tmp_path, {"vectors": flat("IDMap,Flat"), "ids.txt": LINES}, "has ids of its own: leave out --ids", "ids.txt")


def tensors(header: object, content: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def tensor(**about: object) -> dict[str, object]:
    return {"v": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24], **about}}


def two_tensors() -> bytes:
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
    return safetensors({"a": torch.tensor(VECTORS), "b": torch.tensor(VECTORS)})


NO_ARRAY, NO_TENSORS = "is cut off, or no array of numbers: ", "is cut off, or no file of safetensors: "
NO_TABLE = "rows without an id, or with vectors of several lengths"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: npy(VECTORS)[:-1], NO_ARRAY),
        (lambda: b"\x93NUMPY\x01\x00\x10\x00{'descr':'<f4',,", NO_ARRAY),
        (lambda: npy(np.array([{}], dtype=object)), "holds Python objects: save ids by .*, vectors by numpy.stack"),
        (lambda: npy(np.arange(3.0)), r"holds float64 of shape \(3,\): vectors are floats of two dimensions"),
        (lambda: npy(np.ones((3, 2), dtype="V2")), r"holds \|V2 of shape \(3, 2\): .*; of bfloat16, save array.astype\('float32'\)"),
        (lambda: npy(np.ones((3, 2), dtype=np.int32)), r"holds int32 of shape \(3, 2\): vectors are floats"),
        (two_tensors, "has a, b: needed is one array of two dimensions"),
        (lambda: tensors(tensor(), bytes(20)), NO_TENSORS),
        (lambda: tensors(tensor(shape=[2**70, 2])), NO_TENSORS),
        (lambda: tensors(tensor(data_offsets=[-500, 24])), NO_TENSORS),
        (lambda: tensors(tensor(data_offsets=None)), NO_TENSORS),
        (lambda: tensors({"v": 1}), NO_TENSORS),
        (lambda: (200_000).to_bytes(8, "little") + b'{"v":' + b"[" * 199_995, "safetensors: it is nested too deeply"),
        (lambda: parquet({"id": [1, 2], "vector": [[1.0, 2.0], [3.0]]}), NO_TABLE),
        (lambda: parquet({"id": [1, 2], "vector": [[1.0], None]}), NO_TABLE),
        (lambda: parquet({"id": [1, None], "vector": [[1.0], [2.0]]}), NO_TABLE),
        (lambda: torch_save(lambda torch: torch.tensor(VECTORS).T), "has a tensor that is stored with gaps or by columns: save"),
        (lambda: torch_save(lambda torch: torch.zeros(2, 8, dtype=torch.complex64)), r"holds .* of shape \(2, 8\): vectors are floats"),
        (lambda: torch_save(lambda torch: torch.tensor(NUMBERS)), "has 0: needed is one array of two dimensions"),
        (lambda: torch_save(lambda torch: (torch.ones(2), torch.ones(2, 3))), "other ids than one dimension of integers or texts"),
        (lambda: npz({"v": VECTORS.T}), "vectors, v is stored column by column: save numpy.ascontiguousarray"),
        (lambda: npz({"ids": np.array([{}] * N), "v": VECTORS}), "other ids than one dimension of integers or texts"),
        (lambda: npz({"ids": NUMBERS, "v": VECTORS[:9]}), r"has 1,200 ids for an array of shape \(9, 8\)"),
        (lambda: npz({"a": NUMBERS}).replace(b"a.npy", b"a.doc"), "is a zip archive, which is none of the formats"),
        (
            lambda: b'{"id": "1", "v": [1.0, 2]}\n{"id": "2", "v": [1.0]}\n',
            "has lines without a vector, or with vectors of several lengths",
        ),
        (lambda: b'{"v": [1.0, 2], "id": "1"}\n{"v": [1.0, 2]}\n', "other ids than one dimension of integers or texts"),
        (lambda: b'{"id": "1", "text": "a"}\n', "has id, text: needed is one array of two dimensions"),
        (lambda: b'{"id": "1", "v": [1.0\n', "is cut off or corrupt at its line 1: not JSON"),
        (lambda: b"PAR1" + bytes(40), "is cut off or corrupt: "),
    ],
)
def test_other_content_is_refused_in_one_line(content: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    check_refused(tmp_path, {"vectors": content()}, message)
