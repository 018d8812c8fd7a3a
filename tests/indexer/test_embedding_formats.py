from __future__ import annotations

import gzip
import io
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from wikidx.base.errors import InputError, StorageError
from wikidx.indexer.base import Vectors
from wikidx.indexer.published import arrays
from wikidx.indexer.published.formats import Embeddings, add_checksums, find_embeddings

IDS = [f"id {n}" for n in range(1, 1201)]
VECTORS: Vectors = np.random.default_rng(3).normal(size=(1200, 8)).astype(np.float32)
HALVES = (slice(0, 500), slice(500, 1200))


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def contriever_pickles() -> list[bytes]:
    """Two files, as generate_passage_embeddings.py writes them."""
    return [pickle.dumps((IDS[half], VECTORS[half].astype(np.float16)), protocol=4) for half in HALVES]


def dpr_pickles() -> list[bytes]:
    """Two files, as generate_dense_embeddings.py writes them."""
    return [pickle.dumps([(f"wiki:{id_}", vector) for id_, vector in zip(IDS[half], VECTORS[half], strict=True)]) for half in HALVES]


def faiss_index(path: Path, factory: str = "Flat") -> bytes:
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    index = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    index.add(VECTORS)
    faiss.write_index(index, str(path))
    return path.read_bytes()


def contriever_tar(folder: Path) -> Path:
    with tarfile.open(folder / "wikipedia_embeddings.tar", "w") as tar:
        member = tarfile.TarInfo("wikipedia_embeddings")
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
        for number, content in enumerate(contriever_pickles()):
            add(tar, f"wikipedia_embeddings/passages_{number:02}", content)
    return folder / "wikipedia_embeddings.tar"


def contriever_folder(folder: Path) -> Path:
    for number, content in enumerate(contriever_pickles()):
        (folder / f"passages_{number:02}").write_bytes(content)
    return folder


def tevatron_file(folder: Path) -> Path:
    """The array first, as Tevatron's encode.py writes it."""
    (folder / "corpus.pkl").write_bytes(pickle.dumps((VECTORS.astype(np.float16), list(IDS))))
    return folder / "corpus.pkl"


def dpr_folder(folder: Path) -> Path:
    for number, content in zip((9, 10), dpr_pickles(), strict=True):  # 10 comes behind 9
        (folder / f"wiki_passages_{number}").write_bytes(content)
    return folder


def array_file(folder: Path) -> Path:
    (folder / "gtr_wikipedia_index.pkl").write_bytes(pickle.dumps(VECTORS.astype(np.float16), protocol=4))
    return folder / "gtr_wikipedia_index.pkl"


def npy_file(folder: Path) -> Path:
    np.save(folder / "vectors.npy", np.tile(VECTORS, (20, 1)))
    return folder / "vectors.npy"


def pyserini_folder(folder: Path) -> Path:
    (folder / "docid").write_text("".join(f"{id_}\n" for id_ in IDS))
    faiss_index(folder / "index")
    return folder


def pyserini_tar(folder: Path, order: Sequence[str] = ("docid", "index")) -> Path:
    (folder / "files").mkdir()
    pyserini_folder(folder / "files")
    with tarfile.open(folder / "faiss.tar.gz", "w:gz") as tar:
        for name in order:
            tar.add(folder / "files" / name, f"faiss.wikipedia-dpr/{name}")
    return folder / "faiss.tar.gz"


def pyserini_tar_index_first(folder: Path) -> Path:
    return pyserini_tar(folder, ("index", "docid"))


def flat_file(folder: Path) -> Path:
    faiss_index(folder / "e5_Flat.index")
    return folder / "e5_Flat.index"


def flat_parts(folder: Path) -> Path:
    content = faiss_index(folder / "whole")
    (folder / "whole").unlink()
    (folder / "part_aa").write_bytes(content[:10_001])
    (folder / "part_ab").write_bytes(content[10_001:])
    return folder


MADE: dict[Callable[[Path], Path], tuple[str, bool]] = {  # what makes it -> its format, whether it has ids
    contriever_tar: ("contriever", True),
    contriever_folder: ("contriever", True),
    dpr_folder: ("dpr", True),
    tevatron_file: ("contriever", True),
    array_file: ("array", False),
    pyserini_folder: ("pyserini", True),
    pyserini_tar: ("pyserini", True),
    pyserini_tar_index_first: ("pyserini", True),
    flat_file: ("flat", False),
    flat_parts: ("flat", False),
}


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("is_named", [False, True], ids=["detected", "named"])
def test_ids_and_vectors_come_back(make: Callable[[Path], Path], is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 300)
    name, has_ids = MADE[make]
    blocks = list(find_embeddings(make(tmp_path), name if is_named else None).blocks())
    assert max(len(block.vectors) for block in blocks) <= 1000
    vectors = np.concatenate([block.vectors for block in blocks])
    assert vectors.dtype == (np.float16 if name in ("contriever", "array") else np.float32)
    np.testing.assert_array_equal(vectors, VECTORS.astype(vectors.dtype))
    if has_ids:
        assert [id_.removeprefix("wiki:") for block in blocks for id_ in block.ids or ()] == IDS
    else:
        assert [block.first for block in blocks] == [0, 300, 600, 900]
        assert {block.ids for block in blocks} == {None}


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_another_format_than_the_one_named_is_refused(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    found = MADE[make][0]
    for other in {"contriever", "dpr", "array", "pyserini", "flat"} - {found}:
        with pytest.raises(InputError, match=f"is not in the format '{other}': it looks like (pickles|{found})"):
            list(find_embeddings(path, other).blocks())


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_a_file_that_is_cut_off_is_refused(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    file = max(path.glob("*"), key=lambda file: file.stat().st_size) if path.is_dir() else path
    content = file.read_bytes()
    for n_bytes in (len(content) * 3 // 4, len(content) // 2, 700):
        file.write_bytes(content[:n_bytes])
        with pytest.raises(InputError, match=r"cut off|corrupt|no member"):
            list(find_embeddings(path).blocks())


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_compressed_tar_that_is_corrupt_is_refused(compression: str, tmp_path: Path) -> None:
    path = tmp_path / f"some.tar.{compression}"
    with tarfile.open(path, f"w:{compression}") as tar:  # type: ignore[call-overload]
        vectors = np.random.default_rng(5).normal(size=(40_000, 16)).astype(np.float16)  # bzip2 has several blocks of them
        add(tar, "passages_00", pickle.dumps(([str(n) for n in range(40_000)], vectors), protocol=4))
    sound = path.read_bytes()
    assert sum(len(block.vectors) for block in find_embeddings(path).blocks()) == 40_000
    for place in (20, len(sound) // 2, len(sound) - 100, len(sound) - 6):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x55]) + sound[place + 1 :])
        with pytest.raises(InputError, match=f"{path} .*(cut off|corrupt|no pickle of embeddings)"):
            list(find_embeddings(path).blocks())


def test_a_compressed_index_is_read_to_its_checksum(tmp_path: Path) -> None:
    path = pyserini_tar(tmp_path)
    sound = path.read_bytes()
    path.write_bytes(sound[:-8] + bytes([sound[-8] ^ 1]) + sound[-7:])
    with pytest.raises(InputError, match="is cut off or corrupt: CRC check failed"):
        list(find_embeddings(path).blocks())


def test_a_disk_that_cannot_be_read_is_named_and_not_taken_for_corruption(tmp_path: Path) -> None:
    unreadable = Path("/proc/self/mem")  # reading its first bytes is an error of input
    if not unreadable.exists():
        pytest.skip("needs /proc/self/mem")
    source = Embeddings("what is published", "pickles", (unreadable,), ("there",))
    with pytest.raises(StorageError, match="^what is published cannot be read: Input/output error$"):
        list(source.blocks())
    with pytest.raises(StorageError, match="^what is published cannot be read: Input/output error$"):
        add_checksums(source)
    with pytest.raises(StorageError, match="^/proc/self/mem cannot be read: Input/output error$"):
        find_embeddings(unreadable)


@pytest.mark.parametrize("name", ["../passages_00", "/tmp/passages_00", "a/../../passages_00"])
def test_a_member_that_climbs_out_is_refused(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "some.tar", "w") as tar:
        add(tar, "passages_00", contriever_pickles()[0])
        add(tar, name, contriever_pickles()[1])
    with pytest.raises(InputError, match=rf"has the member '{name}', which is not a plain file: it is refused"):
        list(find_embeddings(tmp_path / "some.tar").blocks())
    assert [path.name for path in tmp_path.iterdir()] == ["some.tar"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_no_plain_file_is_refused(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "some.tar", "w") as tar:
        add(tar, "passages_00", contriever_pickles()[0])
        member = tarfile.TarInfo("passages_01")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(InputError, match="has the member 'passages_01', which is not a plain file"):
        list(find_embeddings(tmp_path / "some.tar").blocks())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps((["1"], np.zeros((2, 8), dtype=np.float16))), r"has 1 ids for an array of shape \(2, 8\)"),
        (pickle.dumps((["1", "2"], np.zeros(2, dtype=np.float16))), r"holds float16 of shape \(2,\): vectors are floats of two dimensions"),
        (pickle.dumps(np.zeros(2, dtype=np.float16)), r"holds float16 of shape \(2,\): vectors are floats of two dimensions"),
        (pickle.dumps([("1", np.zeros(8, dtype=np.float16)), ("2", np.zeros(9, dtype=np.float16))]), "vectors of several shapes or types"),
        (pickle.dumps([("1", np.zeros((1, 8), dtype=np.float16))]), r"an item that is not \(id, vector\)"),
        (pickle.dumps([("1",)]), r"an item that is not \(id, vector\)"),
        (pickle.dumps([["1", 2], "a"]), r"an item that is not \(id, vector\)"),
        (pickle.dumps("text"), r"neither \(ids, array\), nor a list of \(id, array\), nor an array"),
        (pickle.dumps(["1", "2"]), r"an item that is not \(id, vector\)"),
    ],
)
def test_other_pickles_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "made.pkl").write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(find_embeddings(tmp_path / "made.pkl").blocks())


def test_what_is_no_embeddings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file or folder"):
        find_embeddings(tmp_path / "missing")
    with pytest.raises(InputError, match="is empty"):
        find_embeddings(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match=r"begins with b'hell', which is none of the formats contriever, dpr"):
        find_embeddings(tmp_path)
    with pytest.raises(InputError, match="--format csv: use one of contriever, dpr, array, pyserini, flat"):
        find_embeddings(tmp_path / "text", "csv")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(InputError, match="begins with b''"):
        find_embeddings(tmp_path / "empty")
    (tmp_path / "passages.gz").write_bytes(gzip.compress(contriever_pickles()[0]))
    with pytest.raises(InputError, match="which is none of the formats"):
        find_embeddings(tmp_path / "passages.gz")
    rows = np.zeros((4, 385), dtype="<f4")
    rows[:, 0] = np.full(4, 384, dtype="<i4").view("<f4")
    rows.tofile(tmp_path / "x.fvecs")  # begins as a pickle does
    with pytest.raises(
        InputError, match=r"x\.fvecs looks like fvecs: numpy\.fromfile\(FILE, 'f4'\)\.reshape\(-1, 385\)\[:, 1:\] reads them"
    ):
        find_embeddings(tmp_path / "x.fvecs")


def test_other_kinds_of_faiss_indexes_are_refused(tmp_path: Path) -> None:
    faiss_index(tmp_path / "index", "HNSW16")
    with pytest.raises(
        InputError, match=r"of type 'IHNf', and only flat ones are read: if it has .* as 'IHNf' and 'IwFl' do, .*reconstruct_n"
    ):
        find_embeddings(tmp_path / "index")
    (tmp_path / "docid").write_text("1\n")
    with pytest.raises(InputError, match="is no flat FAISS index, or cut off: it begins with b'IHNf'"):
        list(find_embeddings(tmp_path).blocks())


def test_counts_that_differ_are_refused(tmp_path: Path) -> None:
    pyserini_folder(tmp_path)
    with (tmp_path / "docid").open("a") as file:
        file.write("1201\n")
    with pytest.raises(InputError, match=r"has 1,201 ids for an array of shape \(1200, 8\)"):
        list(find_embeddings(tmp_path).blocks())
    content = bytearray((tmp_path / "index").read_bytes())
    content[8:16] = (1201).to_bytes(8, "little")
    (tmp_path / "index").write_bytes(content)
    with pytest.raises(InputError, match="is corrupt: it says 1,201 vectors of dimension 8 and 9,600 numbers"):
        list(find_embeddings(tmp_path).blocks())
    (tmp_path / "docid").write_text("x" * 100_000)
    with pytest.raises(InputError, match="docid: line 1 is no id"):
        list(find_embeddings(tmp_path).blocks())


def test_a_tar_without_one_of_the_two_files_is_refused(tmp_path: Path) -> None:
    path = pyserini_tar(tmp_path, ("docid",))
    shutil.rmtree(tmp_path / "files")
    with pytest.raises(InputError, match="has no member 'index'"):
        list(find_embeddings(path).blocks())


def test_a_name_with_digits_that_are_no_numbers_is_sorted(tmp_path: Path) -> None:
    for name in ("part 2²", "part 10²"):
        (tmp_path / name).write_bytes(pickle.dumps(VECTORS))
    assert [file.name for file in find_embeddings(tmp_path).files] == ["part 2²", "part 10²"]


@pytest.mark.parametrize("is_array", [True, False])
def test_vectors_without_numbers_are_refused(is_array: bool, tmp_path: Path) -> None:
    value = np.zeros((1 << 40, 0), dtype=np.float32) if is_array else [("1", np.zeros(0, dtype=np.float32))]
    (tmp_path / "made").write_bytes(pickle.dumps(value))
    with pytest.raises(InputError, match="vectors are floats of two dimensions|an item that is not \\(id, vector\\)"):
        list(find_embeddings(tmp_path / "made").blocks())


@pytest.mark.parametrize("make", [contriever_folder, contriever_tar, dpr_folder, array_file, pyserini_folder, flat_file, npy_file])
@pytest.mark.parametrize("is_cut", [True, False])
def test_embeddings_that_change_while_they_are_read_are_refused(make: Callable[[Path], Path], is_cut: bool, tmp_path: Path) -> None:
    """A map of a file that gets shorter would end the process."""
    source = add_checksums(find_embeddings(make(tmp_path)))
    blocks = source.blocks()
    next(blocks)
    last = source.files[-1]
    os.truncate(last, 0 if is_cut else last.stat().st_size + 1)
    with pytest.raises(InputError, match="has changed while it was read|is cut off"):
        list(blocks)
