"""Every format of published embeddings: the ids and vectors that were written, and no others of files that are cut off or change."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.indexer.embedding_files import IDS, NUMBERS, VECTORS, N, flat, fvecs, npy, npz, parquet, safetensors, tar_of, torch_save, write
from wikidx.base.errors import InputError
from wikidx.indexer.published import arrays
from wikidx.indexer.published.formats import add_checksums, find_embeddings

HALVES = (slice(0, 500), slice(500, N))

Files = dict[str, bytes]


class Made(NamedTuple):
    """Embeddings as a program writes them.

    Attributes:
        format: name of the format.
        ids: the ids that they come with.
        dtype: precision of the vectors.
        write: writes them into a folder, and returns the file or folder that a user names.
    """

    format: str
    ids: Iterable[object] | None
    dtype: str
    write: Callable[[Path], Path]


def file_of(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    return lambda folder: write(folder, {name: content()}) / name


def folder_of(files: Callable[[], Files]) -> Callable[[Path], Path]:
    return lambda folder: write(folder, files())


def contriever_files() -> Files:
    """As generate_passage_embeddings.py writes them."""
    return {f"passages_{n:02}": pickle.dumps((IDS[half], VECTORS[half].astype(np.float16)), 4) for n, half in enumerate(HALVES)}


def dpr_files() -> Files:
    """As generate_dense_embeddings.py writes them: 10 comes behind 9."""
    pairs = [(f"wiki:{id_}", vector) for id_, vector in zip(IDS, VECTORS, strict=True)]
    return {f"wiki_passages_{n}": pickle.dumps(pairs[half]) for n, half in enumerate(HALVES, 9)}


def pyserini_files() -> Files:
    return {"docid": "".join(f"{id_}\n" for id_ in IDS).encode(), "index": flat()}


def flat_parts() -> Files:
    content = flat()
    return {"part_aa": content[:10_001], "part_ab": content[10_001:]}


def json_lines() -> bytes:
    """As Pyserini's encode writes them."""
    pairs = zip(IDS, VECTORS.tolist(), strict=True)
    return "".join(json.dumps({"id": id_, "contents": "a", "vector": vector}) + "\n" for id_, vector in pairs).encode()


def tensors() -> bytes:
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
    return safetensors({"embeddings": torch.tensor(VECTORS), "ids": torch.tensor(NUMBERS)})


HALF = VECTORS.astype(np.float16)
MADE = {
    "tar of Contriever's": Made(
        "contriever", IDS, "float16", file_of("embeddings.tar", lambda: tar_of(contriever_files(), folder="wikipedia_embeddings/"))
    ),
    "folder of Contriever's": Made("contriever", IDS, "float16", folder_of(contriever_files)),
    "Tevatron's, the array first": Made("contriever", IDS, "float16", file_of("corpus.pkl", lambda: pickle.dumps((HALF, IDS)))),
    "DPR's": Made("dpr", [f"wiki:{id_}" for id_ in IDS], "float32", folder_of(dpr_files)),
    "array of GTR's": Made("array", None, "float16", file_of("gtr_wikipedia_index.pkl", lambda: pickle.dumps(HALF, 4))),
    "folder of Pyserini's": Made("pyserini", IDS, "float32", folder_of(pyserini_files)),
    "tar of Pyserini's": Made("pyserini", IDS, "float32", file_of("faiss.tar.gz", lambda: tar_of(pyserini_files(), "gz"))),
    "tar of Pyserini's, the index first": Made(
        "pyserini", IDS, "float32", file_of("faiss.tar", lambda: tar_of(dict(reversed(pyserini_files().items()))))
    ),
    "flat index": Made("flat", None, "float32", file_of("e5_Flat.index", flat)),
    "flat index for distances": Made("flat", None, "float32", file_of("e5_Flat.index", lambda: flat(metric="METRIC_L2"))),
    "flat index in parts": Made("flat", None, "float32", folder_of(flat_parts)),
    "flat index with ids": Made("flat", NUMBERS, "float32", file_of("index", lambda: flat("IDMap,Flat"))),
    "flat index with ids, for distances": Made("flat", NUMBERS, "float32", file_of("index", lambda: flat("IDMap2,Flat", "METRIC_L2"))),
    "array of numpy's": Made("npy", None, "float32", file_of("vectors.npy", lambda: npy(VECTORS))),
    "arrays of numpy's": Made(
        "npy", None, "float16", folder_of(lambda: {f"v{n}.npy": npy(HALF[half]) for n, half in enumerate(HALVES, 9)})
    ),
    "graph of halves": Made("flat", None, "float16", file_of("index", lambda: flat("HNSW16_SQfp16"))),
    "graph of Pyserini's": Made("pyserini", IDS, "float32", folder_of(lambda: {**pyserini_files(), "index": flat("HNSW16")})),
    "arrays of numpy's archive": Made("npz", IDS, "float16", file_of("v.npz", lambda: npz({"ids": np.array(IDS), "v": HALF}))),
    "compressed archives of numpy's": Made(
        "npz",
        None,
        "float32",
        folder_of(lambda: {f"v{n}.npz": npz({"v": VECTORS[half]}, is_compressed=True) for n, half in enumerate(HALVES)}),
    ),
    "lines of JSON": Made("jsonl", IDS, "float32", file_of("v.jsonl", json_lines)),
    "fvecs": Made("fvecs", None, "float32", folder_of(lambda: {f"v{n}.fvecs": fvecs(VECTORS[half]) for n, half in enumerate(HALVES)})),
    "tensor with ids": Made(
        "pt",
        IDS,
        "float32",
        file_of("v.pt", lambda: torch_save(lambda torch: {"ids": IDS, "v": torch.tensor(np.tile(VECTORS, (2, 1)))[N:]})),
    ),
    "tensor and tensor of ids": Made(
        "pt", NUMBERS, "float32", file_of("v.pt", lambda: torch_save(lambda torch: (torch.tensor(VECTORS), torch.tensor(NUMBERS))))
    ),
    "safetensors": Made("safetensors", NUMBERS, "float32", file_of("v.safetensors", tensors)),
    "Parquet": Made("parquet", IDS, "float32", file_of("v.parquet", lambda: parquet({"id": IDS, "vector": list(VECTORS)}))),
}

of_each_format = pytest.mark.parametrize("made", MADE.values(), ids=list(MADE))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 300)


@of_each_format
@pytest.mark.parametrize("is_named", [False, True], ids=["detected", "named"])
def test_ids_and_vectors_come_back(made: Made, is_named: bool, tmp_path: Path) -> None:
    blocks = list(find_embeddings(made.write(tmp_path), made.format if is_named else None).blocks())
    sizes = [len(block.vectors) for block in blocks]
    assert max(sizes) <= 300
    assert [block.first for block in blocks] == np.cumsum([0, *sizes[:-1]]).tolist()
    vectors = np.concatenate([block.vectors for block in blocks])
    assert vectors.dtype == made.dtype
    np.testing.assert_array_equal(vectors, VECTORS.astype(made.dtype))
    if made.ids is None:
        assert {block.ids for block in blocks} == {None}
    else:
        assert [id_ for block in blocks for id_ in block.ids or ()] == [*map(str, made.ids)]


@of_each_format
def test_another_format_than_the_one_named_is_refused(made: Made, tmp_path: Path) -> None:
    path = made.write(tmp_path)
    for other in {"contriever", "dpr", "array", "pyserini", "flat"} - {made.format}:
        with pytest.raises(InputError, match=f"is not in the format '{other}': it looks like (pickles|{made.format})"):
            list(find_embeddings(path, other).blocks())


@pytest.mark.parametrize("name", sorted(MADE.keys() - {"fvecs"}))  # whose parts are files of fewer vectors
def test_a_file_that_is_cut_off_is_refused(name: str, tmp_path: Path) -> None:
    made = MADE[name]
    path = made.write(tmp_path)
    file = max(path.glob("*"), key=lambda file: file.stat().st_size) if path.is_dir() else path
    content = file.read_bytes()
    for n_bytes in (len(content) * 3 // 4, len(content) // 2, 700):
        file.write_bytes(content[:n_bytes])
        with pytest.raises(InputError, match=r"cut off|corrupt|no member"):
            list(find_embeddings(path).blocks())


@of_each_format
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_file_that_changes_while_it_is_read_is_refused(made: Made, is_cut: bool, tmp_path: Path) -> None:
    """A map of a file that gets shorter would end the process."""
    source = add_checksums(find_embeddings(made.write(tmp_path)))
    blocks = source.blocks()
    next(blocks)
    last = source.files[-1]
    os.truncate(last, 0 if is_cut else last.stat().st_size + 1)
    with pytest.raises(InputError, match="has changed while it was read|is cut off"):
        list(blocks)
