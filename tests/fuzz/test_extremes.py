"""Every parser of foreign files and answers, given nesting without an end and numbers that no computer's word holds."""

from __future__ import annotations

import contextlib
import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import urllib3

from tests.fuzz.mutating import check_refusal, in_memory_of
from wikidx.base.errors import IdxError
from wikidx.base.net.endpoint import parse_answer, read_error
from wikidx.base.net.retrying import retry_after_s
from wikidx.corpora.reading.compression import read_toml
from wikidx.corpora.reading.readers import detect_format, read
from wikidx.indexer.published.formats import find_embeddings
from wikidx.retrievers.pipelines.saved import read_pipeline
from wikidx.runtimes.evaluation.prediction_files import read_prediction_records
from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run
from wikidx.runtimes.evaluation.run_facts import read_run_json
from wikidx.runtimes.experiments.files import read_experiment
from wikidx.runtimes.llms.scripted import read_script
from wikidx.runtimes.questions.reading import read_questions
from wikidx.runtimes.questions.sets import published_sets

NUMBERS = ("1e400", "-1", "1" + "0" * 30, "9" * 400, "9" * 5_000, "NaN")
DEEP = ("[" * 100_000, '{"a":' * 100_000, "(" * 100_000, "-" * 100_000 + "1", "<a>" * 100_000, "a = " + "[" * 100_000)
RECORDS = ('{"id": %s, "question": %s, "golden_answers": ["a"], "text": "b"}', '{"id": "a", "text": "b", "title": "c", "x": %s}')
LINES = ("q 0 d %s", "q Q0 d %s %s s", "q\td\t%s", "<top><num>%s<title>&#%s;</top>", "a = %s", "%s", "question\tanswer\n%s\t%s")
TEXTS = (
    *DEEP,
    *(form.replace("%s", value) for form in (*RECORDS, *LINES) for value in (*NUMBERS, "[" * 100_000)),
)
READERS: dict[str, Callable[[Path], Any]] = {
    "toml": read_toml,
    "experiment": lambda file: read_experiment(str(file)),
    "pipeline": read_pipeline,
    "questions": read_questions,
    "groups": read_groups,
    "run": read_run,
    "qrels": read_qrels,
    "predictions": lambda file: list(read_prediction_records(file)),
    "script": read_script,
    "format": detect_format,
    "run.json": lambda file: read_run_json(file.parent),
    "tsv": lambda file: list(read(file, "tsv", lambda bad: None)),
    "jsonl": lambda file: list(read(file, "jsonl", lambda bad: None)),
    "wikiextractor": lambda file: list(read(file, "wikiextractor", lambda bad: None)),
}


@pytest.mark.parametrize("name", READERS)
def test_no_text_ends_a_reader_but_by_its_own_error(name: str, tmp_path: Path) -> None:
    for text in TEXTS:
        file = tmp_path / ("run.json" if name == "run.json" else f"made.{'toml' if name in ('experiment', 'pipeline') else 'txt'}")
        file.write_text(text)
        try:
            READERS[name](file)
        except IdxError as error:
            check_refusal(error)


@pytest.mark.parametrize("text", [*TEXTS, "<html><title>&#" + "9" * 5_000 + ";</title>", "<html>&#x" + "f" * 5_000 + ";</html>"])
def test_no_answer_ends_a_client(text: str) -> None:
    assert read_error(urllib3.HTTPResponse(status=500, reason="no"), text.encode(), "http://a") is not None
    with contextlib.suppress(ValueError):
        parse_answer(text.encode(), "http://a")


@pytest.mark.parametrize(
    "value", ["9" * 5_000, "1e400", "-1", "Mon, 1 Jan 99999999999999999999 00:00:00 GMT", f"Mon, {'1' * 5_000} Jan 2000"]
)
def test_a_pause_of_any_length_is_none_or_short(value: str) -> None:
    assert 0 <= (retry_after_s({"Retry-After": value}) or 0) <= 300


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x02\x00\x00\x00"[:8] + struct.pack("<I", len(header)) + header.encode()


def safetensors(header: str) -> bytes:
    return struct.pack("<Q", len(header)) + header.encode() + bytes(64)


def tar(kind: bytes, n_bytes: int, times: int = 1) -> bytes:
    member = tarfile.TarInfo("a")
    member.type, member.size = kind, n_bytes
    return gzip.compress(member.tobuf(tarfile.GNU_FORMAT) * times + bytes(min(n_bytes, 80 << 20)) + bytes(1024), 1)


def npz(*arrays: tuple[str, str], version: bytes = b"\1") -> bytes:
    """Return a compressed archive of the beginnings of arrays "v" and "ids", each by its type and shape."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (dtype, shape) in zip(("v", "ids"), arrays, strict=False):
            header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
            archive.writestr(f"{name}.npy", b"\x93NUMPY" + version + b"\0" + struct.pack("<H", len(header)) + header + bytes(24))
    return made.getvalue()


EMBEDDINGS: dict[str, bytes] = {
    **{
        f"npy {shape:.9}": npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}")
        for shape in (
            "(-3, 384)",
            "(3, -384)",
            f"({10**30}, 2)",
            f"({2**62}, {2**62})",
            "(1e400, 2)",
            "(" * 9_000,
            "-" * 9_000 + "1",
            "9" * 5_000,
        )
    },
    **{f"npz {shape:.9}": npz(("<f4", shape)) for shape in ("(-3, 384)", f"({10**30}, 2)", f"(3, {1 << 40})", "(" * 9_000)},
    "npz of a long header": npz(("<f4", "(3, 2)"), version=b"\2"),
    **{f"npz of ids {ids}": npz(("<f4", "(3, 2)"), ids) for ids in (("<i8", "(-3,)"), ("<U0", "(3,)"), ("<U500000000", "(3,)"))},
    "graph of many levels": struct.pack("<4siqqq?iq", b"IHNf", 8, 4, 0, 0, True, 0, 1 << 40) + bytes(64),
    "maps of maps": struct.pack("<4siqqq?i", b"IxMp", 4, 4, 0, 0, True, 0) * 10_000,
    "npy of a long header": b"\x93NUMPY\x02\x00" + b"\xff" * 4,
    "npy of nested types": npy(f"{{'descr': {'[' * 3_000}, 'fortran_order': False, 'shape': (3, 3)}}"),
    **{
        f"safetensors {shape:.9}": safetensors(f'{{"a": {{"dtype": "F32", "shape": {shape}, "data_offsets": [0, 8]}}}}')
        for shape in ("[-3, 2]", f"[{10**30}, 2]", f"[{2**62}, {2**62}]", "[1e400, 2]", "[" * 100_000, f"[{'9' * 5_000}, 2]", "-1")
    },
    "safetensors of a long header": b"\xff" * 4 + bytes(4) + b"{",
    "pickle of tuples": b"\x80\x04" + b")" + b"\x85" * 100_000 + b".",
    "pickle of a long text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b".",
    "pickle of a long number": b"\x80\x04\x8b" + struct.pack("<i", 1 << 30) + b".",
    "pickle of a negative shape": pickle.dumps(np.zeros((2, 2), np.float32)).replace(b"K\x02K\x02", b"K\x02J\xff\xff\xff\xff", 1),
    **{
        f"flat {n} {dim}": struct.pack("<4siqqq?iQ", b"IxFI", dim, n, 0, 0, True, 0, n * dim % (1 << 64)) + bytes(64)
        for n, dim in ((-3, 384), (8_192, 1 << 30), (1 << 40, 1 << 12), (1 << 10, 1 << 20), (1 << 62, 1))
    },
    "flat with ids": struct.pack("<4siqqq?i", b"IxMp", 4, 1 << 40, 0, 0, True, 0) + bytes(64),
    "tar of a long name": tar(tarfile.GNUTYPE_LONGNAME, 3 << 30),
    "tar of attributes": tar(tarfile.XHDTYPE, 3 << 30),
    "tar of global attributes": tar(tarfile.XGLTYPE, 3 << 30),
    "tar of attributes of attributes": tar(tarfile.XHDTYPE, 0, 5_000),
    "tar of many members": tar(tarfile.REGTYPE, 0, 120_000),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_no_header_of_embeddings_takes_memory_or_ends_in_a_crash(name: str, tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(EMBEDDINGS[name])
    with in_memory_of((70 if "many" in name or "flat" in name else 20) << 20), pytest.raises(IdxError) as refusal:
        list(find_embeddings(tmp_path / "made").blocks())
    check_refusal(refusal.value, tmp_path / "made")


def test_blank_lines_are_counted_and_not_kept(tmp_path: Path) -> None:
    for record in ('{"id": "a"}', '[{"id": "a"}]'):
        (tmp_path / "made").write_bytes(gzip.compress(b"\n" * 300_000 + record.encode()))
        with in_memory_of(5 << 20), pytest.raises(IdxError, match="line 300001"):
            read_questions(tmp_path / "made")


def test_only_verified_archives_are_opened() -> None:
    assert all(entry.file.sha256 for entry in published_sets() if entry.members)
