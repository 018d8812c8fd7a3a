from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run, trec_order, write_qrels, write_run

RUN = {"q1": {"b": 2.5, "a": 2.5, "infobox:7": 0.032522473484277725}, "q 2".replace(" ", "\u0301"): {"é": -1e-9}}
QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"x": -1}}


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_run(tmp_path / "run", RUN, "idx")
    assert read_run(tmp_path / "run") == RUN
    assert (tmp_path / "run").read_text(encoding="utf-8").splitlines()[1] == "q1 Q0 a 2 2.5 idx"


def test_qrels_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_qrels(tmp_path / "qrels", QRELS)
    assert read_qrels(tmp_path / "qrels") == QRELS


def test_qrels_of_beir_are_read(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\nq1\tc\t2\nq2\tx\t-1\n")
    assert read_qrels(tmp_path / "test.tsv") == QRELS


def test_others_read_ours(tmp_path: Path) -> None:
    write_run(tmp_path / "run", RUN, "idx")
    write_qrels(tmp_path / "qrels", QRELS)
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
    ranx.Run.from_dict(RUN, name="theirs").save(str(tmp_path / "theirs.trec"))
    assert read_run(tmp_path / "theirs.trec") == RUN
    ranx.Run.from_dict(RUN, name="theirs").save(str(tmp_path / "run.json"))
    ranx.Qrels.from_dict(QRELS).save(str(tmp_path / "qrels.json"))
    assert read_run(tmp_path / "run.json") == RUN
    assert read_qrels(tmp_path / "qrels.json") == QRELS


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# a comment\nq 0 a 1\n# of four words\n#\n#q 0 #a -2\n", {"q": {"a": 1}, "#q": {"#a": -2}}),
        ("q 0 a 1.0\nq 0 b +2.\nq 0 c -1.00\n", {"q": {"a": 1, "b": 2, "c": -1}}),
        ("q 1\td 2\t1\nq\ta\t0.0\n", {"q 1": {"d 2": 1}, "q": {"a": 0}}),  # BEIR's without a header
        ("query-id\tcorpus-id\tscore\r\nq\td 2\t1\r\nquery-id\tcorpus-id\tscore\nq\t0\t2\n", {"q": {"d 2": 1, "0": 2}}),
        ("q\t0\td 2\t1\n", {"q": {"d 2": 1}}),
        ("qid\tdocno\tlabel\nq\td 2\t1\n", {"q": {"d 2": 1}}),  # PyTerrier's
        ("query_id doc_id relevance\nq d 1\n", {"q": {"d": 1}}),
        (
            '{"query-id": "q", "corpus-id": "d", "score": 1}\n{"query-id": 7, "corpus-id": "e", "score": 0}\n',
            {"q": {"d": 1}, "7": {"e": 0}},
        ),
        ("q 0\ta\t1\nq\t0\tb 1\n", {"q": {"a": 1, "b": 1}}),  # TREC's, with both separators
        ('{"q": {"a": 1, "b b": 2.0}, "\\ud800": {"c": -2}}', {"q": {"a": 1, "b b": 2}, "\ufffd": {"c": -2}}),
        ('\ufeff{\n  "q": {\n    "a": 1\n  }\n}', {"q": {"a": 1}}),
    ],
)
def test_qrels_of_others_are_read(
    tmp_path: Path, compress: Callable[[bytes], bytes], content: str, expected: dict[str, dict[str, int]]
) -> None:
    (tmp_path / "qrels").write_bytes(compress(content.encode()))
    assert read_qrels(tmp_path / "qrels") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# of my own, with many words\nq Q0 a 1 3.5 my long tag\nq Q0 b 2 1 t\n", {"q": {"a": 3.5, "b": 1.0}}),
        ("q 1\tQ0\td 2\t1\t3.5\tmy tag\n", {"q 1": {"d 2": 3.5}}),
        ("q\td 2\t1\nq\tb\t2\nr\tb\t1\n", {"q": {"d 2": -1.0, "b": -2.0}, "r": {"b": -1.0}}),  # MS MARCO's
        (json.dumps({"q": {"a": 1, "b b": -0.5}, "r": {}}), {"q": {"a": 1.0, "b b": -0.5}}),
        (json.dumps({"mteb_model_meta": {"model_name": "m"}, "default": {"test": {"q": {"a": 0.5}, "r": {}}}}), {"q": {"a": 0.5}}),
        (
            json.dumps({"0": {"question": "x", "contexts": [{"docid": "a", "score": "2"}, {"docid": 7, "score": 1}]}}),
            {"0": {"a": 2.0, "7": 1.0}},
        ),
        ('{"query": {"text": "x", "qid": 1}, "candidates": [{"docid": "a", "score": 9.5}]}\n', {"1": {"a": 9.5}}),
        (
            '[{"id": "q", "question": "longer than what tells the form of a file: 64 bytes", "ctxs": [{"id": "a", "score": "2"}]}]',
            {"q": {"a": 2.0}},
        ),
        ('{"question": "x", "qid": "q", "ctxs": [{"id": "a", "score": 2}]}\n', {"q": {"a": 2.0}}),
    ],
)
def test_runs_of_others_are_read(tmp_path: Path, content: str, expected: dict[str, dict[str, float]]) -> None:
    (tmp_path / "run").write_text(content)
    assert read_run(tmp_path / "run") == expected
    assert [trec_order(scores) for scores in read_run(tmp_path / "run").values()] == [list(scores) for scores in expected.values()]


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


def test_scores_beyond_float32_are_equal() -> None:
    assert trec_order({"a": 1e300, "b": 1e200, "c": 1.0}) == ["b", "a", "c"]


def test_compressed_files_tabs_and_empty_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "run.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfq\tQ0\ta\t1\t1e1\tx\r\n\n q Q0 b 7 -2 x\n"))
    assert read_run(tmp_path / "run.gz") == {"q": {"a": 10.0, "b": -2.0}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q Q0 a 1 2.0\n", "line 1: 5 columns, 6 are needed, or 3 with tabs: q Q0 a 1 2.0"),
        ("q Q0 a 1 2.0 t\nq Q0 d 2 1 3.5 t\n", "line 2: 7 columns, 6 are needed"),  # an id with a blank, not a tag
        ("q Q0 d x 1 3.5 t\n", "line 1: 7 columns, 6 are needed"),
        ("q\ta\t1\nq\tb\t2.5\n", "line 2: the rank is '2.5', not a whole number"),
        ("q\ta\tfirst\n", "line 1: the rank is 'first', not a whole number"),
        ("q a 1\n", "line 1: 3 columns, 6 are needed, or 3 with tabs"),
        ('{"q": {"a": "high"}}', "line 1: the score is 'high', not a number"),
        ('{"q": {"a": true}}', "line 1: the score is 'True', not a number"),
        ('{\n"q": ["a"]}', r"line 2: \['a'\] for 'q': an object of a number for each passage is needed"),
        ('[{"question": "x", "ctxs": []}]', "record 1 .*: of a run in JSON, each record needs the question's 'id', which DPR's"),
        ('[{"id": 1, "question": "x"}]', "a list in ctxs, contexts, candidates, hits; it has id, question"),
        ('[{"id": 1, "ctxs": []}, 2]', "record 2 .*: of a run in JSON, each record needs"),
        ('{"q": {"contexts": [{"score": 1}]}}', "line 1: the id is None"),
        ('{"q": {"contexts": [{"docid": "a"}]}}', "line 1: the score is 'None', not a number"),
        ('{"q": {"a": 1}} x', "line 1: 'x' after the end of the JSON"),
        ("{}", "has no lines"),
        ("q Q0 a 1 high t\n", "line 1: the score is 'high', not a number"),
        ("q Q0 a 1 nan t\n", "line 1: the score is nan, which cannot be ordered"),
        ("q Q0 a 1 -inf t\n", "line 1: the score is -inf, which cannot be ordered"),
        ("q Q0 a 1 1.0 t\n\nq Q0 a 2 0.5 t\n", "line 3: the passage 'a' is listed before for the question 'q'"),
        (f"{'q' * 999} Q0 a 1 1.0 t\n" * 2, f"line 2: the passage 'a' is listed before for the question '{'q' * 80}'"),
        ("\n \n", "has no lines"),
        ("", "is empty"),
        (b"q Q0 \xff 1 1.0 t\n", "line 1: not UTF-8"),
        (gzip.compress(b"q Q0 a 1 1.0 t\n")[:-9], "is corrupt"),
    ],
)
def test_a_bad_run_is_refused_where_it_is_bad(tmp_path: Path, lines: str | bytes, message: str) -> None:
    (tmp_path / "bad").write_bytes(lines if isinstance(lines, bytes) else lines.encode())
    with pytest.raises(InputError, match=message):
        read_run(tmp_path / "bad")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q a 1\n", "line 1: 3 columns, 4 are needed, or 3 with tabs: q a 1"),
        ("q 0 a 10000\n", "line 1: the relevance is '10000', not a whole number up to 9,999"),
        ("#q 0 a 0.5\n", "line 1: the relevance is '0.5', not a whole number"),
        ('{"q": {"a": 0.5}}', "line 1: the relevance is '0.5', not a whole number"),
        ("q 0 d 2 1\n", "line 1: 5 columns, 4 are needed, or 3 with tabs"),
        ("query-id\tcorpus-id\tscore\nq 0 a 1\n", "line 2: 4 columns, the header has 3: q 0 a 1"),
        ("query-id\tcorpus-id\tscore\n", "has no lines"),
        ("q 0 a yes\n", "line 1: the relevance is 'yes', not a whole number"),
        ("q 0 a 1\nq 0 b 0.5\n", "line 2: the relevance is '0.5', not a whole number"),
        ("q 0 a 1\nq 0 a 0\n", "line 2: the passage 'a' is listed before for the question 'q'"),
    ],
)
def test_bad_qrels_are_refused_where_they_are_bad(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "bad").write_text(lines)
    with pytest.raises(InputError, match=message):
        read_qrels(tmp_path / "bad")


@pytest.mark.parametrize("name", ["", " ", " a", "a\u00a0", "a\tb", "a\nb", "a\rb"])
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


def test_three_columns_are_ranks_or_scores(tmp_path: Path) -> None:
    """MS MARCO's runs have whole ranks, Tevatron's scores; what the first line has, all have."""
    for content, expected in (("q\ta\t1\nq\tb\t2.0\n", {"a": -1, "b": -2}), ("q\ta\t78.25\nq\tb\t77\n", {"a": 78.25, "b": 77})):
        (tmp_path / "run").write_text(content)
        assert read_run(tmp_path / "run") == {"q": expected}
