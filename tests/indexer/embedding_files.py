"""Files of embeddings as the programs of others write them, in bytes; and what is read of them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from wikidx.base.errors import InputError
from wikidx.indexer.base import Vectors
from wikidx.indexer.published.formats import find_embeddings

N, DIM = 1200, 8
IDS = [f"id {n}" for n in range(1, N + 1)]
NUMBERS = np.random.default_rng(0).permutation(10 * N)[:N]  # ids of an index that has numbers only
VECTORS: Vectors = np.random.default_rng(3).normal(size=(N, DIM)).astype(np.float32)


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files by their names into a folder, and return the folder."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def tar_of(files: Mapping[str, bytes], compression: str = "", folder: str = "made/") -> bytes:
    """Return a tar of a folder with these files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=f"w:{compression}") as tar:  # type: ignore[call-overload]
        about = tarfile.TarInfo(folder or ".")
        about.type = tarfile.DIRTYPE
        tar.addfile(about)
        for name, content in files.items():
            about = tarfile.TarInfo(folder + name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return made.getvalue()


def npy(array: NDArray[Any]) -> bytes:
    """Return what ``numpy.save`` writes."""
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def npz(arrays: Mapping[str, NDArray[Any]], *, is_compressed: bool = False) -> bytes:
    """Return what ``numpy.savez`` writes."""
    made = io.BytesIO()
    (np.savez_compressed if is_compressed else np.savez)(made, **arrays)  # type: ignore[arg-type]
    return made.getvalue()


def fvecs(vectors: Vectors) -> bytes:
    """Return vectors with their dimension before each."""
    dims = np.full((len(vectors), 1), vectors.shape[1], dtype="<i4").view("<f4")
    return np.concatenate([dims, vectors], axis=1).tobytes()


def torch_save(make: Callable[[Any], object]) -> bytes:
    """Return what torch saves of an object that is made of it."""
    torch, made = pytest.importorskip("torch", reason="needs the extra 'dense'"), io.BytesIO()
    torch.save(make(torch), made)
    return made.getvalue()


def safetensors(tensors: Mapping[str, object]) -> bytes:
    """Return what safetensors writes of torch's tensors."""
    made: bytes = pytest.importorskip("safetensors.torch", reason="needs the extra 'dense'").save(dict(tensors), {"made": "by a test"})
    return made


def parquet(columns: Mapping[str, object]) -> bytes:
    """Return what pyarrow writes of a table."""
    pyarrow, made = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'"), io.BytesIO()
    pyarrow.write_table(pytest.importorskip("pyarrow").table(columns), made, row_group_size=411)
    return made.getvalue()


def flat(factory: str = "Flat", metric: str = "METRIC_INNER_PRODUCT") -> bytes:
    """Return what FAISS writes of an index over the vectors, with ``NUMBERS`` as ids if it takes any."""
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    index = faiss.index_factory(DIM, factory, getattr(faiss, metric))
    index.train(VECTORS)
    if factory.startswith("IDMap"):
        index.add_with_ids(VECTORS, NUMBERS)
    else:
        index.add(VECTORS)
    made: bytes = faiss.serialize_index(index).tobytes()
    return made


def read(path: Path, ids: Path | str | None = None, format_: str | None = None) -> tuple[list[str] | None, NDArray[np.floating[Any]]]:
    """Return the ids, if there are any, and the vectors of a file or folder."""
    blocks = list(find_embeddings(path, format_, None if ids is None else str(ids)).blocks())
    found = None if any(block.ids is None for block in blocks) else [id_ for block in blocks for id_ in block.ids or ()]
    return found, np.concatenate([block.vectors for block in blocks])


def check_refused(folder: Path, files: Mapping[str, bytes], message: str, ids: str | None = None) -> None:
    """Check that a file, or a folder of several or none, is refused in one line; ``ids`` names the file of ids among them."""
    write(folder, files)
    names = [name for name in files if name != ids]
    with pytest.raises(InputError, match=message) as raised:
        read(folder / names[0] if len(names) == 1 else folder, None if ids is None else folder / ids)
    assert "\n" not in str(raised.value)
