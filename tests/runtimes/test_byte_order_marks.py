"""Text files that begin with a byte order mark, as editors on Windows write it: the same values as without."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

import wikidx.runtimes.experiments
import wikidx.runtimes.methods
from wikidx.base.errors import InputError
from wikidx.indexer.published.arrays import read_lines
from wikidx.retrievers.pipelines.saved import read_pipeline
from wikidx.runtimes.evaluation.prediction_files import read_prediction_records
from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run
from wikidx.runtimes.experiments.files import read_experiment
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.scripted import read_script
from wikidx.runtimes.methods.prompt_sets import read_prompt_set
from wikidx.runtimes.questions import read_questions
from wikidx.runtimes.questions.queries import read_queries

_EXPERIMENT = (resources.files(wikidx.runtimes.experiments) / "refeed" / "table1.toml").read_text(encoding="utf-8")
_PROMPT = (resources.files(wikidx.runtimes.methods) / "prompts" / "rag" / "answer.txt").read_text(encoding="utf-8")

DOORS: list[tuple[Callable[[Path], object], str]] = [
    (read_queries, "ocean\nwater\n"),
    (read_queries, '\n{"question": "ocean"}\nwater\n'),
    (read_queries, '\n[\n{"question": "ocean"}]\n'),
    (read_queries, "<top>\n<num> Number: 1\n<title> ocean\n</top>\n"),
    (read_queries, "1\tocean\n"),
    (read_questions, '{"q1": "ocean"}'),
    (read_questions, '"what is ""x"""\t[\'a\']\n'),
    (read_qrels, "q 0 a 1\n"),
    (read_qrels, "#\nq 0 a 1\n"),
    (read_qrels, '{"q": {"a": 1}}'),
    (read_run, "q Q0 a 1 2.5 t\n"),
    (read_groups, '{"id": "q", "queries": ["a"]}\n'),
    (lambda path: list(read_prediction_records(path)), '{"id": "1", "answer": "a"}\n{"id": "2", "answer": "b"}\n'),
    (lambda path: list(read_lines(io.BytesIO(path.read_bytes()), "ids")), "a\nb\n"),
    (lambda path: read_script(path)(Generate(prompt="?")), '{"text": "a"}\n'),
    (read_pipeline, 'pipeline = "bm25"\n'),
    (lambda path: read_experiment(str(path)), _EXPERIMENT),
    (lambda path: read_prompt_set("rag", str(path.parent)), _PROMPT),
]


@pytest.mark.parametrize(("read", "content"), DOORS)
def test_a_byte_order_mark_changes_nothing(tmp_path: Path, read: Callable[[Path], object], content: str) -> None:
    file = tmp_path / "answer.txt"
    file.write_text(content, encoding="utf-8")
    expected = read(file)
    file.write_text("\ufeff" + content, encoding="utf-8")
    assert read(file) == expected


@pytest.mark.parametrize("read", [read_queries, read_questions, read_qrels, read_run, read_groups])
def test_utf_16_is_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    for encoded in ("ocean 0 a 1\n".encode("utf-16"), gzip.compress('{"id": "1", "query": "ocean"}\n'.encode("utf-16"))):
        (tmp_path / "file").write_bytes(encoded)
        with pytest.raises(InputError, match="line 1: .*UTF-8"):
            read(tmp_path / "file")
