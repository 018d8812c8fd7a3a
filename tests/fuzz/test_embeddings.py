"""Corrupt published embeddings: the ids and vectors of a plain reading, or a refusal; bounded memory."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutating import examples, mutations, read_or_refuse
from tests.indexer.embedding_files import fvecs, npz, tar_of, torch_save
from wikidx.indexer.published.formats import find_embeddings

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS = ["1", "2", "wiki:3", "é"]
HEADER = struct.Struct("<4siqqq?iQ")
FLAT = HEADER.pack(b"IxFI", 3, 4, 1 << 20, 1 << 20, True, 0, 12) + VECTORS.tobytes()
DOCID = "\n".join(IDS).encode() + b"\n"
PICKLES = (
    *(pickle.dumps((IDS, VECTORS.astype(np.float16)), protocol) for protocol in (3, 4, 5)),
    pickle.dumps(list(zip(IDS, VECTORS, strict=True)), 4),
    pickle.dumps(VECTORS, 4),
)

Embeddings = tuple[list[str] | None, list[list[float]]]


TARS = tar_of({"passages_00": PICKLES[0], "passages_01": PICKLES[1]}), tar_of({"docid": DOCID, "index": FLAT})


def read(path: Path) -> Embeddings | None:
    """Return ids and vectors; None if they are refused."""

    def everything() -> Embeddings:
        blocks = list(find_embeddings(path).blocks())
        ids = None if any(block.ids is None for block in blocks) else [id_ for block in blocks for id_ in block.ids or ()]
        return ids, [list(map(float, vector)) for block in blocks for vector in block.vectors]

    return read_or_refuse(everything, path.parent)


class _Arrays(pickle._Unpickler):  # Python's own, which allocates no memory for a size that is only announced
    """Reads what numpy's arrays are made of and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if module.startswith("numpy") and name in ("_reconstruct", "ndarray", "dtype", "_frombuffer"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(name)


def unpickled(content: bytes) -> Embeddings | None:
    """Return what Python itself reads of a pickle of embeddings; None if it cannot, or if it is something else."""
    try:
        value = _Arrays(io.BytesIO(content)).load()
        if isinstance(value, np.ndarray) and value.size:
            return None, [list(map(float, row)) for row in value]
        ids, vectors = value if isinstance(value, tuple) else zip(*value, strict=True)
        return list(map(str, ids)), [list(map(float, row)) for row in vectors]
    except Exception:  # noqa: BLE001 - a corrupt pickle raises anything
        return None


@examples()
@given(content=mutations(*PICKLES))
@example(content=b"\x80\x04" + b"(" * 100_000 + b".")
@example(content=b"\x80\x04" + b"]" + b"\x85" * 100_000 + b".")
@example(content=b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.")
@example(content=pickle.dumps([("1", np.zeros(0, dtype=np.float32))]))
@example(content=pickle.dumps(np.zeros((1 << 40, 0), dtype=np.float32)))
@example(content=b"\x80\x04r\xff\xff\xff\x7f.")
def test_pickles(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    found, expected = read(file), unpickled(content)
    if content in PICKLES:
        assert found == expected
    if found is not None and expected is not None and found[1] != []:
        assert repr(found) == repr(expected)  # NaN is not equal to itself


def flat(content: bytes) -> list[list[float]] | None:
    """Return the vectors of a flat index, by the bytes of its header."""
    if len(content) < HEADER.size:
        return None
    kind, dim, n, _, _, _, metric, n_numbers = HEADER.unpack_from(content)
    is_flat = kind in (b"IxFI", b"IxF2") and metric in (0, 1) and 1 <= dim <= 1 << 16 and n >= 0  # larger dimensions are refused
    if not is_flat or n_numbers != n * dim or len(content) < HEADER.size + 4 * n_numbers:
        return None
    return np.frombuffer(content, "<f4", n_numbers, HEADER.size).astype(float).reshape(n, dim).tolist()


@examples()
@given(content=mutations(FLAT), ids=mutations(DOCID))
def test_flat_indexes(file: Path, content: bytes, ids: bytes) -> None:
    file.write_bytes(content)
    found, expected = read(file), flat(content)
    if content.startswith((b"IxFI", b"IxF2")):
        assert repr(found and found[1]) == repr(expected)
    folder = file.with_name("pyserini")
    folder.mkdir(exist_ok=True)
    (folder / "index").write_bytes(content)
    (folder / "docid").write_bytes(ids)
    named = read(folder)
    if named is not None and named[0] is not None:
        assert repr(named[1]) == repr(expected)
        assert len(named[0]) == len(named[1])


ARCHIVES = (
    npz({"ids": np.array(IDS), "v": VECTORS}),
    npz({"v": VECTORS.astype(np.float16)}, is_compressed=True),
    torch_save(lambda torch: {"ids": IDS, "v": torch.tensor(VECTORS)}),
    torch_save(lambda torch: (torch.tensor(VECTORS), torch.tensor([4, 3, 2, 1]))),
    fvecs(VECTORS),
)


@examples()
@given(content=mutations(*ARCHIVES))
def test_archives(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    found = read(file)
    if content in ARCHIVES:
        assert found is not None
        assert found[1] == VECTORS.tolist()


@examples()
@given(content=mutations(*TARS, *map(gzip.compress, TARS)), cut=st.booleans())
def test_tars(file: Path, content: bytes, cut: bool) -> None:
    """A member corrupted inside may still hold valid vectors; a truncated tar is not read as a complete one."""
    file.write_bytes(content)
    read(file)
    whole = TARS[cut].rstrip(b"\x00")
    file.write_bytes(whole[: len(content) % len(whole)] or b"\x00")
    assert read(file) is None
