"""Rankings, judgements, groups, predictions and scripts: the result of a plain reading of the lines, or a refusal that names the place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutating import COMPRESSIONS, compressed_mutations, examples, in_memory_of, mutations, read_or_refuse
from wikidx.corpora.reading import compression
from wikidx.runtimes.evaluation import predictions
from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run
from wikidx.runtimes.execution.runs import PREDICTIONS, RUN
from wikidx.runtimes.llms.scripted import read_script

RUN_LINES = b"q1 Q0 b 1 2.5 tag\nq1\tQ0\ta 2 2.5 tag\n\nq2 Q0 x 1 -1e-9 tag\n"
QRELS = b"q1 0 a 1\nq1 0 b 0\nq2 0 \xc3\xa9 -1\n"
GROUPS = b'{"id": "1", "queries": ["a", "b"]}\n\n{"id": 2, "queries": []}\n'
LINES = b'{"id": "1", "answer": "a"}\n{"id": "2", "answer": "b"}\n'
ANSWERS = (
    LINES,
    b'{"1": "a", "2": 3, "3": null}',
    b'{"answer": {"1": "a"}, "sp": {"1": []}}',
    b'[{"id": "1", "output": {"pred": "a"}, "golden_answers": ["b"], "question": "q"}]',
    b'{"id": "1", "output": [{"answer": "a"}]}\n{"id": "2", "output": [{"answer": "b"}]}\n',
    b'{"data": [{"sample_id": "1", "output": "a", "docs": [{"id": "d", "title": "t", "text": "x"}]}]}',
)
OWN_LINES = b'{"id": "1", "answer": "a", "error": null, "cost": {"calls": 1}}\n{"id": "2", "answer": "", "error": "E: x"}\n'
ABOUT = (
    b'{"format": 1, "settings": {"questions": {"sha256": "00", "n": 2, "protocol": "p", "sample": {"n": 1, "seed": 0}}, "models":'
    b' {"answer": {"name": "m"}}, "options": {}, "search": {}}, "sessions": [{"source": {"file": "q", "format": null}, "questions": 2}]}'
)
SCRIPT = b'{"text": "Paris"}\n{"texts": ["a", "b"]}\n{"role": "know", "match": "Who", "yes": 0.9}\n{"nll": 1.5}\n'


def tables(content: bytes, n_columns: int, value: Callable[[str], float]) -> dict[str, dict[str, float]] | None:
    """Return the content of a TREC file; None if it is invalid."""
    found: dict[str, dict[str, float]] = {}
    try:
        for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            if columns := [column.decode() for column in line.split()]:
                if len(columns) != n_columns or columns[2] in found.setdefault(columns[0], {}):
                    return None
                found[columns[0]][columns[2]] = value(columns[4 if n_columns == 6 else 3])
    except ValueError:
        return None
    return found or None


def finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def whole(text: str) -> int:
    if re.fullmatch("[-+]?[0-9]{1,9}", text) is None:
        raise ValueError(text)
    return int(text)


OF_THREE = re.compile(rb"(?m)^[^\t\n]+\t[^\t\n]+\t\s*[-+]?\.?\d\S*\s*$")  # MS MARCO's run or BEIR's qrels, whose names may have blanks


@examples()
@given(content=mutations(RUN_LINES, QRELS), compression=st.sampled_from(list(COMPRESSIONS)))
@example(content=b'q1\tQ0"\ta 2 2.5 tag\n', compression="none")
@example(content=b'"q1 Q0\tb\t1 2.5 tag\n', compression="gzip")
@example(content=b'q1\t0"\ta 1\n', compression="none")
def test_trec_files(file: Path, content: bytes, compression: str) -> None:
    if content.startswith((b"\x1f\x8b", b"BZh", b"PK", b"\xfd7z")) or OF_THREE.search(content):
        return
    file.write_bytes(COMPRESSIONS[compression](content))
    assert read_or_refuse(lambda: read_run(file), file) == tables(content, 6, finite)
    assert read_or_refuse(lambda: read_qrels(file), file) == tables(content, 4, whole)


def groups(content: bytes) -> dict[str, list[str]] | None:
    found: dict[str, list[str]] = {}
    try:
        for line in content.split(b"\n"):
            if not line.strip():
                continue
            record = json.loads(line.decode("utf-8-sig"))
            known = type(record["id"]) in (str, int) and isinstance(record["queries"], list)
            if not known or str(record["id"]) in found or any(not isinstance(query, str) for query in record["queries"]):
                return None
            found[str(record["id"])] = [re.sub("[\ud800-\udfff]", "\ufffd", query) for query in record["queries"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found or None


@examples()
@given(content=mutations(GROUPS))
def test_groups(file: Path, content: bytes) -> None:
    if not content.startswith((b"\x1f\x8b", b"BZh", b"PK", b"\xfd7z")):
        file.write_bytes(content)
        assert read_or_refuse(lambda: read_groups(file), file) == groups(content)


def check_predictions(path: Path, named: Path | str) -> predictions.Predictions | None:
    """Read predictions and check that they can be written as JSON."""
    found = read_or_refuse(lambda: predictions.load_predictions(path), named)
    if found is not None:
        assert found.rows
        for row in found.rows.values():
            json.dumps([row.id, row.answer], ensure_ascii=False).encode()
    return found


@examples()
@given(content=compressed_mutations(*ANSWERS))
@example(content=b'{"a\\nb": [1]}')
def test_predictions_of_other_programs(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    check_predictions(file, file)


@examples()
@given(answers=st.dictionaries(st.text(min_size=1, max_size=4), st.text(max_size=4), min_size=2, max_size=4), content=mutations(LINES))
def test_lines_of_predictions(file: Path, answers: dict[str, str], content: bytes) -> None:
    """A file of valid lines yields all of them as predictions; an invalid line is refused."""
    lines = [json.dumps({"id": name, "answer": answer}) for name, answer in answers.items()]
    file.write_text("\n".join(lines))
    found = check_predictions(file, file)
    assert found is not None
    assert {name: row.answer for name, row in found.rows.items()} == answers
    file.write_bytes("\n".join(lines).encode() + b"\n{" + content)
    found = check_predictions(file, file)
    try:
        json.loads(b"{" + content)
    except (ValueError, RecursionError):
        assert found is None or b"\n" in content


@examples()
@given(lines=mutations(OWN_LINES), about=mutations(ABOUT))
def test_a_folder_of_a_run(file: Path, lines: bytes, about: bytes) -> None:
    folder = file.with_name("run")
    folder.mkdir(exist_ok=True)
    (folder / PREDICTIONS).write_bytes(lines)
    (folder / RUN).write_bytes(about)
    check_predictions(folder, folder)


@examples()
@given(content=mutations(SCRIPT))
def test_scripts(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    read_or_refuse(lambda: read_script(file), file)


@pytest.mark.parametrize("read", [read_run, read_groups, predictions.load_predictions])
@pytest.mark.parametrize("pack", ["gzip", "bzip2", "zstd"])
def test_a_small_file_that_is_large_unpacked(file: Path, read: Callable[[Path], Any], pack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of nothing are refused in less than they would fill; the limits are smaller here."""
    monkeypatch.setattr(compression, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(compression, "_MAX_WHOLE_BYTES", 1 << 20)
    monkeypatch.setattr(compression, "_MAX_WHOLE_TIMES", 10)
    file.write_bytes(COMPRESSIONS[pack](b"[" + bytes(60 << 20)))
    with in_memory_of(50 << 20):
        assert read_or_refuse(lambda: read(file), file) is None
