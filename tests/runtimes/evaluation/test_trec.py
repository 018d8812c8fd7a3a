"""Runs and relevance judgements in TREC's and others' forms, from ``tests/data/rankings``, and the order of trec_eval."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run, trec_order, write_qrels, write_run

FILES = json.loads((ROOT / "tests" / "data" / "rankings" / "files.json").read_text(encoding="utf-8"))
READERS = {"run": read_run, "qrels": read_qrels, "groups": read_groups}
RUN = {"q1": {"b": 2.5, "a": 2.5, "infobox:7": 0.032522473484277725}, "q 2".replace(" ", "\u0301"): {"é": -1e-9}}
QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"x": -1}}


def test_we_and_others_read_ours(tmp_path: Path) -> None:
    write_run(tmp_path / "run", RUN, "idx")
    write_qrels(tmp_path / "qrels", QRELS)
    assert (read_run(tmp_path / "run"), read_qrels(tmp_path / "qrels")) == (RUN, QRELS)
    assert (tmp_path / "run").read_text(encoding="utf-8").splitlines()[1] == "q1 Q0 a 2 2.5 idx"
    run = [(line.query_id, line.doc_id, line.score) for line in ir_measures.read_trec_run(str(tmp_path / "run"))]  # type: ignore[no-untyped-call]
    assert run == [(question, passage, score) for question, scores in RUN.items() for passage, score in scores.items()]
    qrels = [(line.query_id, line.doc_id, line.relevance) for line in ir_measures.read_trec_qrels(str(tmp_path / "qrels"))]  # type: ignore[no-untyped-call]
    assert qrels == [(question, passage, relevance) for question, known in QRELS.items() for passage, relevance in known.items()]


@pytest.mark.exhaustive
@pytest.mark.slow  # ranx compiles for a minute
def test_ranx_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    import ranx

    write_run(tmp_path / "ours.trec", RUN, "idx")
    write_qrels(tmp_path / "qrels.trec", QRELS)
    assert ranx.Run.from_file(str(tmp_path / "ours.trec")).to_dict() == RUN
    assert ranx.Qrels.from_file(str(tmp_path / "qrels.trec")).to_dict() == QRELS
    for name in ("theirs.trec", "run.json"):
        ranx.Run.from_dict(RUN, name="theirs").save(str(tmp_path / name))
        assert read_run(tmp_path / name) == RUN
    ranx.Qrels.from_dict(QRELS).save(str(tmp_path / "qrels.json"))
    assert read_qrels(tmp_path / "qrels.json") == QRELS


def test_qrels_and_runs_in_tables_are_read(tmp_path: Path) -> None:
    """BEIR's qrels, as the hub has them, and a frame of PyTerrier's, whose docid is a number of its own."""
    pa, parquet, feather = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet", "pyarrow.feather"))
    judged = [(question, passage, relevance) for question, known in QRELS.items() for passage, relevance in known.items()]
    parquet.write_table(pa.table(dict(zip(("query-id", "corpus-id", "score"), zip(*judged, strict=True), strict=True))), tmp_path / "qrels")
    assert read_qrels(tmp_path / "qrels") == QRELS
    found = [(question, 7, passage, score) for question, scores in RUN.items() for passage, score in scores.items()]
    feather.write_feather(pa.table(dict(zip(("qid", "docid", "docno", "score"), zip(*found, strict=True), strict=True))), tmp_path / "run")
    assert read_run(tmp_path / "run") == RUN
    parquet.write_table(pa.table({"query-id": ["1"], "corpus-id": ["2"]}), tmp_path / "qrels")
    with pytest.raises(InputError, match=r"qrels, row 1: of a run in JSON, each record needs .*; it has query-id, corpus-id"):
        read_qrels(tmp_path / "qrels")


@pytest.mark.parametrize(("content", "expected"), FILES["qrels"])
def test_qrels_of_others_are_read(tmp_path: Path, content: str, expected: dict[str, dict[str, int]]) -> None:
    for compress in (bytes, gzip.compress, zstandard.compress):
        (tmp_path / "qrels").write_bytes(compress(content.encode()))
        assert read_qrels(tmp_path / "qrels") == expected


@pytest.mark.parametrize(("content", "expected"), FILES["runs"])
def test_runs_of_others_are_read(tmp_path: Path, content: str, expected: dict[str, dict[str, float]]) -> None:
    (tmp_path / "run").write_text(content)
    assert read_run(tmp_path / "run") == expected
    assert [trec_order(scores) for scores in read_run(tmp_path / "run").values()] == [list(scores) for scores in expected.values()]


def test_groups_of_queries_are_read(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text('{"id": 7, "queries": ["a", "b"]}\n\n{"id": "x", "queries": [], "more": 1}\n')
    assert read_groups(tmp_path / "groups") == {"7": ["a", "b"], "x": []}


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        *((kind, *row) for kind in READERS for row in FILES[f"refused {kind}"]),
        ("run", b"q Q0 \xff 1 1.0 t\n", "line 1: not UTF-8"),
        ("run", gzip.compress(b"q Q0 a 1 1.0 t\n")[:-9], "is corrupt"),
    ],
)
def test_what_is_bad_is_refused_where_it_is_bad(tmp_path: Path, kind: str, content: str | bytes, message: str) -> None:
    (tmp_path / "bad").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        READERS[kind](tmp_path / "bad")


NAMES = st.text("aQ0# \u00a0\u2028\x85\x0b", min_size=1, max_size=4).filter(lambda name: name == name.strip())


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers(-9, 9), min_size=1, max_size=3), min_size=1, max_size=3), NAMES)
def test_names_with_blanks_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, qrels: dict[str, dict[str, int]], tag: str
) -> None:
    file = tmp_path_factory.mktemp("made") / "file"
    write_qrels(file, qrels)
    assert read_qrels(file) == qrels
    write_run(file, qrels, tag)
    assert read_run(file) == qrels


@pytest.mark.parametrize("name", ["", " a", "a\u00a0", "a\tb", "a\nb", "a\rb"])
def test_names_that_columns_cannot_hold_are_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be written to a TREC file"):
        write_run(tmp_path / "run", {"q": {name: 1.0}}, "idx")
    with pytest.raises(InputError, match="cannot be written to a TREC file"):
        write_qrels(tmp_path / "qrels", {name: {"a": 1}})
    assert list(tmp_path.glob("*run")) == []


SCORES = st.sampled_from([0.0, -0.0, 1.0, 1 + 1e-9, 1 - 1e-9, 1 + 1e-6, -3.5, 1e-40, 2e-40, 1e30])


@given(st.dictionaries(st.text("abzZ9é東𝔸", min_size=1, max_size=3), SCORES, min_size=1))
def test_the_order_is_that_of_trec_eval(scores: dict[str, float]) -> None:
    """RR of a single relevant passage tells its rank."""
    order = trec_order(scores)
    for rank, passage in enumerate(order, 1):
        (figure,) = ir_measures.pytrec_eval.iter_calc([ir_measures.RR], {"q": {passage: 1}}, {"q": scores})
        assert np.isclose(figure.value, 1 / rank), order
    assert trec_order({"a": 1e300, "b": 1e200, "c": 1.0}) == ["b", "a", "c"]  # equal beyond float32
