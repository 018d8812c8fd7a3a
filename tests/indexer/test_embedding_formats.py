"""Published embeddings in pickles, tars and flat FAISS indexes: what is refused. contracts/test_embedding_file reads every format."""

from __future__ import annotations

import gzip
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.embedding_files import DIM, IDS, VECTORS, check_refused, flat, fvecs, read, tar_of, write
from wikidx.base.errors import InputError, StorageError
from wikidx.indexer.published.formats import Embeddings, add_checksums, find_embeddings

Files = dict[str, bytes]


def pyserini(ids: bytes = b"1\n" * 1200, factory: str = "Flat", n: int = 1200) -> Files:
    index = flat(factory)
    return {"docid": ids, "index": index[:8] + n.to_bytes(8, "little") + index[16:]}


def pickled(value: object) -> Callable[[], Files]:
    return lambda: {"made.pkl": pickle.dumps(value)}


def indexed(factory: str) -> Callable[[], Files]:
    return lambda: {"index": flat(factory)}


CODES = {"SQ8": "IxSQ", "PCA4,Flat": "IxPT", "IVF4,SQfp16": "IwSq", "PQ4x4": "IxPq"}
ZEROS = np.zeros((2, 8), dtype=np.float16)
NO_PAIR = r"an item that is not \(id, vector\)"
NO_VECTORS = "holds float(16|32) of shape .*: vectors are floats of two dimensions"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (pickled((["1"], ZEROS)), r"has 1 ids for an array of shape \(2, 8\)"),
        (pickled((["1", "2"], ZEROS[:, 0])), NO_VECTORS),
        (pickled(ZEROS[:, 0]), NO_VECTORS),
        (pickled(np.zeros((1 << 40, 0), dtype=np.float32)), NO_VECTORS),
        (pickled([("1", ZEROS[0]), ("2", np.zeros(9, dtype=np.float16))]), "of several shapes or types: float16 .8,., float16 .9"),
        (pickled([("1", ZEROS)]), NO_PAIR),
        (pickled([("1", ZEROS[0, :0])]), NO_PAIR),
        (pickled([("1",)]), NO_PAIR),
        (pickled([["1", 2], "a"]), NO_PAIR),
        (pickled(["1", "2"]), NO_PAIR),
        (pickled("text"), r"neither \(ids, array\), nor a list of \(id, array\), nor an array"),
        (lambda: {}, "holds no file to read"),
        (lambda: {"text": b"hello"}, "text begins with b'hell', which is none of the formats contriever, dpr"),
        (lambda: {"empty": b""}, "empty begins with b''"),
        (lambda: {"passages.gz": gzip.compress(pickle.dumps(ZEROS))}, "is compressed, but no tar: .* none of the formats"),
        (lambda: {"x.fvecs": fvecs(VECTORS)[:-4]}, "x.fvecs is cut off, or no fvecs: it ends within its vector 1,199"),
        (lambda: {"x.fvecs": fvecs(VECTORS[:4]) + bytes(36)}, "x.fvecs is corrupt, or no fvecs: .* other dimensions than 8, that of"),
        *[(indexed(factory), f"type '{kind}', which does not hold the vectors: read are .*numpy.save") for factory, kind in CODES.items()],
        (lambda: {"index": flat(metric="METRIC_L1")}, "compares by FAISS's metric 2 .*an index for inner products is needed"),
        (lambda: {"index": flat(metric="METRIC_Lp")}, "compares by FAISS's metric 4 .*an index for inner products is needed"),
        (lambda: {"index": flat("IDMap,Flat")[:-8]}, r"is cut off or corrupt: an array of \(1200,\) follows its byte 38,490"),
        (lambda: {"index": flat("IDMap,IVF4,Flat")}, "has 1,200 ids for 1,200 vectors, or ids of ids: ids of each vector are needed"),
        (lambda: pyserini(factory="SQ8"), "index is a FAISS index of type 'IxSQ', which does not hold the vectors"),
        (lambda: pyserini(b"1\n" * 1201), r"has 1,201 ids for an array of shape \(1200, 8\)"),
        (lambda: pyserini(n=1201), "is corrupt: it says 1,201 vectors of dimension 8 and 9,600 numbers"),
        (lambda: pyserini(b"x" * 100_000), "docid: line 1 is no id"),
        (lambda: {"faiss.tar": tar_of({"docid": b"1\n"})}, "has no member 'index'"),
    ],
)
def test_what_is_no_embeddings_is_refused(files: Callable[[], Files], message: str, tmp_path: Path) -> None:
    check_refused(tmp_path, files(), message)


def test_a_missing_file_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file or folder .*missing"):
        find_embeddings(tmp_path / "missing")
    with pytest.raises(InputError, match="--format csv: use one of contriever, dpr, array, pyserini, flat"):
        find_embeddings(write(tmp_path, {"text": b"hello"}) / "text", "csv")


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_compressed_tar_that_is_corrupt_is_refused(compression: str, tmp_path: Path) -> None:
    vectors = np.random.default_rng(5).normal(size=(40_000, 16)).astype(np.float16)  # bzip2 has several blocks of them
    sound, path = tar_of({"passages_00": pickle.dumps(([*map(str, range(40_000))], vectors), 4)}, compression), tmp_path / "some.tar"
    path.write_bytes(sound)
    np.testing.assert_array_equal(read(path)[1], vectors)
    for place in (20, len(sound) // 2, len(sound) - 100, len(sound) - 6):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x55]) + sound[place + 1 :])
        with pytest.raises(InputError, match=f"{path} .*(cut off|corrupt|no pickle of embeddings)"):
            read(path)


def test_a_compressed_index_is_read_to_its_checksum(tmp_path: Path) -> None:
    sound = tar_of(pyserini(), "gz")
    check_refused(tmp_path, {"faiss.tar.gz": sound[:-8] + bytes([sound[-8] ^ 1]) + sound[-7:]}, "is cut off or corrupt: CRC check failed")


def test_a_disk_that_cannot_be_read_is_no_corruption() -> None:
    unreadable = Path("/proc/self/mem")  # reading its first bytes is an error of input
    if not unreadable.exists():
        pytest.skip("needs /proc/self/mem")
    source = Embeddings("what is published", "pickles", (unreadable,), ("there",))
    for reading in (lambda: list(source.blocks()), lambda: add_checksums(source)):
        with pytest.raises(StorageError, match="^what is published cannot be read: Input/output error$"):
            reading()
    with pytest.raises(StorageError, match="^/proc/self/mem cannot be read: Input/output error$"):
        find_embeddings(unreadable)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[(name, tarfile.REGTYPE) for name in ("../passages_00", "/tmp/passages_00", "a/../../passages_00")],
        *[("passages_01", kind) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)],
    ],
)
def test_a_member_that_is_no_plain_file_is_refused(name: str, kind: bytes, tmp_path: Path) -> None:
    (tmp_path / "some.tar").write_bytes(tar_of({"passages_00": pickle.dumps((IDS, VECTORS))}))
    with tarfile.open(tmp_path / "some.tar", "a") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(InputError, match=rf"has the member '{name}', which is not a plain file: it is refused"):
        read(tmp_path / "some.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["some.tar"]


def test_a_name_with_digits_that_are_no_numbers_is_sorted(tmp_path: Path) -> None:
    names = ["part 2²", "part 10²"]
    write(tmp_path, dict.fromkeys(reversed(names), pickle.dumps(VECTORS)))
    assert [file.name for file in find_embeddings(tmp_path).files] == names
    assert read(tmp_path)[1].shape == (2 * len(VECTORS), DIM)
