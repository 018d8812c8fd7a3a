from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wikidx.base.errors import InputError
from wikidx.indexer.published.arrays import FileArray
from wikidx.indexer.published.pickles import Array, read_pickle

PROTOCOLS = (3, 4, 5)  # those in which bytes are bytes


def read(content: bytes) -> Any:  # noqa: ANN401 - whatever the pickle holds
    return read_pickle(io.BytesIO(content), "made.pkl")


def array_of(found: Array) -> np.typing.NDArray[np.floating[Any]]:
    return found.rows[0 : found.rows.shape[0]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4"])
@pytest.mark.parametrize("n", [0, 1, 3, 9000])
def test_an_array_comes_back(protocol: int, dtype: str, n: int) -> None:
    made = np.random.default_rng(1).normal(size=(n, 32)).astype(dtype)
    content = pickle.dumps(made, protocol)
    found = read(content)
    assert isinstance(found.rows, FileArray) == (made.nbytes >= 1 << 20)  # large ones stay in the file
    np.testing.assert_array_equal(array_of(found), made)


class Payload:
    """Pickles to a call of the function with the arguments."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.made_of = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.made_of


@pytest.mark.parametrize("protocol", range(6))
def test_a_payload_is_refused_and_not_run(protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "payload has run"
    for payload in (Payload(os.mkdir, str(target)), [("1", Payload(os.mkdir, str(target)))], (["1"], Payload(eval, "1"))):
        with pytest.raises(InputError, match="which embeddings do not need: it is refused, nothing of it was run"):
            read(pickle.dumps(payload, protocol))
    assert not target.exists()
    pickle.loads(pickle.dumps(Payload(os.mkdir, str(target)), protocol))
    assert target.exists()  # it would have run


DEEP = b")" + b"\x85" * 200_000  # a tuple in a tuple in a tuple: to hash, compare or show it takes a stack as deep
F4 = b"cnumpy\ndtype\n\x8c\x02f4\x85R"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R"
HUGE = b"\x8a\xff" + b"\xff" * 254 + b"\x7f"


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def array_pickle(shape: bytes = b"K\x01\x85", dtype: bytes = F4, data: bytes = b"C\x04aaaa") -> bytes:
    return ARRAY + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb."


NO_PICKLE, NOT_NEEDED = "no pickle of embeddings, or corrupt", "which embeddings do not need"
NO_SHAPE, NO_BYTES = "an array of a shape that no vectors have", "an array of something other than bytes"
REFUSED = [
    (b"\x80\x04" + text("os") + text("system") + b"\x93.", "'os.system'"),
    (b"cos\nsystem\n.", "'os.system'"),
    (b"(cos\nsystem\nX\x02\x00\x00\x00lso.", "'os.system'"),
    (b"cnumpy\nload\n.", "'numpy.load'"),
    (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nmatrix\n.", "'numpy.matrix'"),
    (b"c" + b"x" * 1000, "holds 'x{199}, which embeddings do not need"),
    *(
        (b, "holds the instruction")
        for b in (b"(ios\nsystem\n.", b"\x80\x02(K\x01o.", b"Pid\n.", b"K\x01Q.", b"\x82\x01.", b")\x81.", b"\x97.")
    ),
    (pickle.dumps({"1": 2}), r"holds the instruction EMPTY_DICT, .*; numpy\.save writes"),
    (b"}" + DEEP + b"K\x01s.", "holds the instruction EMPTY_DICT"),  # the hash of a key takes a stack as deep
    (pickle.dumps(np.array(["a"], dtype=object)), r"an array of '\|O8'"),
    (pickle.dumps(np.arange(3)), "an array of '<i8'"),
    (pickle.dumps(np.asfortranarray(np.zeros((3, 2), dtype=np.float32))), "stored column by column"),
    (b"cnumpy\nndarray\n(K\x01t\x85R.", NO_PICKLE),
    (b"\x80\x09N.", NO_PICKLE),
    (b"Nr\xff\xff\xff\x7fR.", NO_PICKLE),  # memory for the places before it is not set aside
    *[
        (b, NO_PICKLE)
        for b in (b"e.", b"K\x01a.", b"K\x01\x86.", b"R.", b"K\x01K\x02R.", b"b.", b"\x93.", b"\x8c\x01\xff.", b"cnumpy\ndtype\n)R.")
    ],
    *[
        (b, f"{NO_PICKLE}|{NOT_NEEDED}")
        for b in (b"\x80\x04.", b"h\x07.", b"K\x01K\x01\x93.", b"cnumpy.core.multiarray\n_reconstruct\nNR.")
    ],
    (array_pickle(dtype=F4 + b"(K\x03" + DEEP + b"tb"), NO_PICKLE),
    (array_pickle(dtype=b"cnumpy\ndtype\n" + DEEP + b"\x85R"), NO_PICKLE),
    (array_pickle(dtype=DEEP), NO_PICKLE),
    (array_pickle(shape=DEEP + b"\x85"), NO_SHAPE),
    (array_pickle(shape=b"(" + HUGE * 100_000 + b"t"), NO_SHAPE),
    (array_pickle(shape=HUGE + b"\x85"), NO_SHAPE),
    (array_pickle(shape=b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86"), NO_SHAPE),
    (array_pickle(shape=b"\x88\x85"), NO_SHAPE),
    (array_pickle(shape=b"K\x01K\x01K\x01\x87"), NO_SHAPE),
    (array_pickle(shape=b"N"), NO_SHAPE),
    (array_pickle(shape=b"K\x02\x85"), r"4 bytes for an array of shape \(2,\) and type float32"),
    (array_pickle(data=DEEP), NO_BYTES),
    (array_pickle(data=text("aaaa")), NO_BYTES),
    *[(DEEP + b, NO_PICKLE) for b in (DEEP + b"\x93.", b"K\x01a.", DEEP + b"R.", DEEP + b"b.")],
    (text("numpy") + DEEP + b"\x93.", NO_PICKLE),
    (b"(" * 200_000 + b".", NO_PICKLE),
    (b"B" + struct.pack("<I", 1 << 20) + bytes(1 << 20) + b"(" + text("file") * 2 + b"K\x01\x85NK\x00tb.", NO_PICKLE),  # sets a place
]


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_embeddings_do_not_need_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(content)


def test_a_frame_is_refused_with_what_to_do() -> None:
    pandas = pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    content = pickle.dumps(pandas.DataFrame({"a": [1.0]}))
    with pytest.raises(InputError, match=r"'pandas\.(core\.frame\.)?DataFrame', .*; numpy.save writes an array as .npy"):
        read(content)


def test_a_pickle_cut_off_anywhere_is_refused() -> None:
    vectors = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    for made in (vectors, ([str(n) for n in range(6)], vectors), [(str(n), vector) for n, vector in enumerate(vectors)]):
        content = pickle.dumps(made)
        for end in range(len(content)):
            with pytest.raises(InputError, match="is cut off"):
                read(content[:end])
    large = pickle.dumps(np.zeros((1 << 20, 1), dtype=np.float16))
    with pytest.raises(InputError, match="is cut off: 2,097,152 bytes should follow, it ends at 2,000,000"):
        read(large[:2_000_000])


@pytest.mark.parametrize("begin", [b"\x8d", b"\x8e", b"\x96"])
def test_a_length_that_is_not_there_takes_no_memory(begin: bytes, tmp_path: Path) -> None:
    (tmp_path / "made.pkl").write_bytes(begin + struct.pack("<Q", 1 << 60) + b"x.")
    with (tmp_path / "made.pkl").open("rb") as file, pytest.raises(InputError, match="is cut off"):  # a real file makes room at once
        read_pickle(file, "made.pkl")


def test_a_deep_nesting_can_be_let_go() -> None:
    for content in (DEEP + b".", DEEP + b"q\x00h\x00\x86.", b"]" * 200_000 + b"a" * 199_999 + b"."):
        value = read(content)
        assert type(value) in (tuple, list)
        del value
