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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ids_and_array_come_back(protocol: int) -> None:
    made = np.random.default_rng(1).normal(size=(2500, 8)).astype(np.float16)
    ids = [str(n) for n in range(2498)] + ["é", "\U0001f600" * 100]
    content = pickle.dumps((ids, made), protocol)
    found, array = read(content)
    assert found == ids
    np.testing.assert_array_equal(array_of(array), made)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("n", [1, 2, 2500])
def test_pairs_come_back(protocol: int, n: int) -> None:
    made = np.random.default_rng(1).normal(size=(n, 8)).astype(np.float32)
    pairs = [(f"wiki:{number}" if number % 2 else number, vector) for number, vector in enumerate(made)]
    content = pickle.dumps(pairs, protocol)
    found = read(content)
    assert [id_ for id_, _ in found] == [id_ for id_, _ in pairs]
    np.testing.assert_array_equal([array_of(vector) for _, vector in found], made)


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
STRING, TUPLE2, STOP = b"\x8c", b"\x86", b"."


def text(value: str) -> bytes:
    return STRING + bytes([len(value)]) + value.encode()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x80\x04" + text("os") + text("system") + b"\x93.", "'os.system'"),
        (b"cos\nsystem\n.", "'os.system'"),
        (b"cnumpy\nload\n.", "'numpy.load'"),
        (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nmatrix\n.", "'numpy.matrix'"),
        (b"cnumpy\nndarray\n(K\x01t\x85R.", "no pickle of embeddings"),
        (b"(ios\nsystem\n.", "holds an instruction"),
        (b"(cos\nsystem\nX\x02\x00\x00\x00lso.", "'os.system'"),
        (b"\x80\x02(K\x01o.", "holds an instruction"),
        (b"Pid\n.", "holds an instruction"),
        (b"K\x01Q.", "holds an instruction"),
        (b"\x82\x01.", "holds an instruction"),
        (b")\x81.", "holds an instruction"),
        (b"\x97.", "holds an instruction"),
        (b"\x80\x09N.", "no pickle of embeddings"),
        (pickle.dumps(np.array(["a"], dtype=object)), r"an array of '\|O8'"),
        (pickle.dumps(np.arange(3)), "an array of '<i8'"),
        (pickle.dumps(np.asfortranarray(np.zeros((3, 2), dtype=np.float32))), "stored column by column"),
        (pickle.dumps({"1": 2}), "holds an instruction"),
        (b"c" + b"x" * 1000, "holds 'x{199}, which embeddings do not need"),
        (b"}" + DEEP + b"K\x01s.", "holds an instruction"),  # the hash of a key takes a stack as deep
        (b"Nr\xff\xff\xff\x7fR.", "no pickle of embeddings"),  # memory for the places before it is not set aside
    ],
)
def test_what_embeddings_do_not_need_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read(content)


@pytest.mark.parametrize(
    "content",
    [b"\x80\x04.", b"e.", b"K\x01a.", b"K\x01\x86.", b"h\x07.", b"R.", b"K\x01K\x02R.", b"b.", b"\x93."]
    + [b"K\x01K\x01\x93.", b"\x8c\x01\xff.", b"cnumpy\ndtype\n)R.", b"cnumpy.core.multiarray\n_reconstruct\nNR."],
)
def test_nonsense_is_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="no pickle of embeddings, or corrupt|which embeddings do not need"):
        read(content)


def test_a_pickle_cut_off_anywhere_is_refused() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)
    for made in (vectors, ([str(n) for n in range(40)], vectors), [(str(n), vector) for n, vector in enumerate(vectors)]):
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


F4 = b"cnumpy\ndtype\n" + text("f4") + b"\x85R"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R"
HUGE = b"\x8a\xff" + b"\xff" * 254 + b"\x7f"


def array_pickle(shape: bytes = b"K\x01\x85", dtype: bytes = F4, data: bytes = b"C\x04aaaa") -> bytes:
    return ARRAY + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (array_pickle(dtype=F4 + b"(K\x03" + DEEP + b"tb"), "no pickle of embeddings"),
        (array_pickle(dtype=b"cnumpy\ndtype\n" + DEEP + b"\x85R"), "no pickle of embeddings"),
        (array_pickle(dtype=DEEP), "no pickle of embeddings"),
        (array_pickle(shape=DEEP + b"\x85"), "an array of a shape that no vectors have"),
        (array_pickle(shape=b"(" + HUGE * 100_000 + b"t"), "an array of a shape that no vectors have"),
        (array_pickle(shape=HUGE + b"\x85"), "an array of a shape that no vectors have"),
        (array_pickle(shape=b"J" + struct.pack("<i", -1) + b"J" + struct.pack("<i", -1) + b"\x86"), "a shape that no vectors have"),
        (array_pickle(shape=b"\x88\x85"), "an array of a shape that no vectors have"),
        (array_pickle(shape=b"K\x01K\x01K\x01\x87"), "an array of a shape that no vectors have"),
        (array_pickle(shape=b"N"), "an array of a shape that no vectors have"),
        (array_pickle(data=DEEP), "an array of something other than bytes"),
        (array_pickle(data=text("aaaa")), "an array of something other than bytes"),
        (DEEP + DEEP + b"\x93.", "no pickle of embeddings"),
        (text("numpy") + DEEP + b"\x93.", "no pickle of embeddings"),
        (DEEP + b"K\x01a.", "no pickle of embeddings"),
        (DEEP + DEEP + b"R.", "no pickle of embeddings"),
        (DEEP + DEEP + b"b.", "no pickle of embeddings"),
        (b"(" * 200_000 + b".", "no pickle of embeddings"),
    ],
    ids=range(18),
)
def test_what_is_nested_too_deeply_or_impossible_is_neither_hashed_nor_multiplied(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(content)


def test_a_deep_nesting_can_be_let_go() -> None:
    for content in (DEEP + b".", DEEP + b"q\x00h\x00\x86.", b"]" * 200_000 + b"a" * 199_999 + b"."):
        value = read(content)
        assert type(value) in (tuple, list)
        del value


def test_an_array_whose_shape_is_not_that_of_its_bytes_is_refused() -> None:
    content = pickle.dumps(np.zeros((3, 5), dtype=np.float32), 4)
    assert content.count(b"K\x03K\x05\x86") == 1
    with pytest.raises(InputError, match=r"60 bytes for an array of shape \(4, 5\) and type float32"):
        read(content.replace(b"K\x03K\x05\x86", b"K\x04K\x05\x86"))


def test_the_place_of_bytes_in_the_file_cannot_be_set() -> None:
    with pytest.raises(InputError, match="no pickle of embeddings, or corrupt"):
        read(b"B" + struct.pack("<I", 1 << 20) + bytes(1 << 20) + b"(" + text("file") * 2 + b"K\x01\x85NK\x00tb.")
