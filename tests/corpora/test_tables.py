"""Tables and JSON of any form are read as the libraries that wrote them read them; fields are found by name, or asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from wikidx.base.errors import InputError
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.passage import BadRecord
from wikidx.corpora.reading.fields import FieldNames
from wikidx.corpora.reading.readers import detect_format, fail
from wikidx.corpora.size_estimate import estimate_corpus

N = 2500
ROWS = [{"docid": n, "headline": f"T {n}", "passage": f'a "b", c; d | {n}\nnext é', "url": f"u{n}"} for n in range(N)]
FRAME = pd.DataFrame(ROWS)
EXPECTED = [(str(row["docid"]), row["headline"], row["passage"]) for row in ROWS]


def write_stream(path: Path) -> None:
    table = pa.Table.from_pandas(FRAME)
    with pa.ipc.new_stream(path, table.schema) as file:
        file.write_table(table, 100)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "csv": lambda path: FRAME.to_csv(path, index=False),
    "csv, quoted": lambda path: FRAME.to_csv(path, index=False, sep=";", quoting=1),
    "csv, tabs": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "csv, bars": lambda path: FRAME.to_csv(path, index=False, sep="|", lineterminator="\r\n"),
    "csv, gzip": lambda path: FRAME.to_csv(path, index=False, compression="gzip"),
    "parquet": lambda path: FRAME.to_parquet(path, row_group_size=300),
    "parquet, zstd": lambda path: FRAME.to_parquet(path, compression="zstd"),
    "arrow": lambda path: pa.feather.write_feather(FRAME, path, compression="lz4"),
    "arrow, plain": lambda path: pa.feather.write_feather(FRAME, path, compression="uncompressed", chunksize=70),
    "arrow, stream": write_stream,
    "json": lambda path: FRAME.to_json(path, orient="records"),
    "json, indented": lambda path: path.write_text(json.dumps(ROWS, indent=2)),
    "json, data": lambda path: path.write_text(json.dumps({"version": 1, "data": ROWS})),
    "json, by id": lambda path: path.write_text(
        json.dumps({row["docid"]: {"headline": row["headline"], "passage": row["passage"], "url": "u"} for row in ROWS})
    ),
    "json, objects": lambda path: path.write_text("\n".join(json.dumps(row, indent=1) for row in ROWS)),
    "records": lambda path: FRAME.to_json(path, orient="records", lines=True),
}


def passages(path: Path, file_format: str | None = None, fields: FieldNames = FieldNames()) -> list[tuple[str, str, str]]:  # noqa: B008
    corpus = custom_corpus(path, "mine", ReadOptions(file_format=file_format, fields=fields))
    return [found.passage for found in corpus.read([path], fail)]


@pytest.mark.parametrize("writer", WRITERS)
def test_tables_hold_what_was_written(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "made"
    WRITERS[writer](path)
    corpus = custom_corpus(path, "mine", ReadOptions())
    file_format = writer.partition(",")[0]
    of_id = "" if writer == "json, by id" else "id from 'docid', "
    assert corpus.summary == f"made ({file_format}, {of_id}title from 'headline', text from 'passage')"
    assert corpus.reading == {"format": file_format, "split": "none"}
    assert passages(path) == EXPECTED
    estimate = estimate_corpus(corpus, StoreOptions())
    assert list(estimate.unkept_fields) == ["url"]
    assert 0.8 * N < estimate.n_passages
    assert file_format != "csv" or estimate.n_passages < 1.2 * N


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"a": "one", "b": "two"}', None),  # could be a record whose text has another name
        ('{\n"a": "one",\n"b": "two"}', [("a", "", "one"), ("b", "", "two")]),
        ('{\n"id": 7, "meta": {"x": 1}, "text": "one"}\n{"id": 8,\n"text": "two"}', [("7", "", "one"), ("8", "", "two")]),
        ('{"1": {"title": "T", "text": "one"}, "2": {"text": "two"}}', [("1", "T", "one"), ("2", "", "two")]),
        ('[{"body": "one"}, {"body": "two"}]', [("made:1", "", "one"), ("made:2", "", "two")]),
        ('{"text": "one"}\n\n{"text": "two"}\n', [("made:1", "", "one"), ("made:3", "", "two")]),
        ("name,content\nA,one\n\nB,two\n", [("made:2", "A", "one"), ("made:4", "B", "two")]),
        ('[\n{"_id": "1", "contents": "\\"T\\"\\none"}]', [("1", "T", "one")]),
    ],
)
def test_objects_and_missing_ids(tmp_path: Path, content: str, expected: list[tuple[str, str, str]] | None) -> None:
    path = tmp_path / "made"
    path.write_text(content)
    if expected is None:
        with pytest.raises(InputError, match="has the fields a, b; needed are"):
            passages(path)
    else:
        assert passages(path) == expected


@pytest.mark.parametrize("suffix", ["csv", "parquet", "records"])
def test_given_fields_are_taken(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "made"
    WRITERS[suffix](path)
    names = FieldNames(id="url", title="docid" if suffix == "csv" else "headline", text="headline")
    found = passages(path, fields=names)
    assert found == [(row["url"], str(row["docid"]) if suffix == "csv" else row["headline"], row["headline"]) for row in ROWS]
    assert custom_corpus(path, "mine", ReadOptions(fields=names)).reading["text_field"] == "headline"
    with pytest.raises(InputError, match="there is no field 'headlin': did you mean 'headline'"):
        passages(path, file_format=suffix, fields=FieldNames(text="headlin"))


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"id": 1, "body": "a", "abstract": "b"}, r"made: the fields 'body' and 'abstract' may hold the text: name one with --text-field"),
        ({"docid": 1, "passage_id": 2, "content": "b"}, "the fields 'docid' and 'passage_id' may hold the id: name one with --id-field"),
        ({"id": 1, "lead": "a"}, "has the fields id, lead; needed are"),
    ],
)
def test_fields_that_are_in_doubt_are_asked_for(tmp_path: Path, record: dict[str, object], complaint: str) -> None:
    path = tmp_path / "made"
    for write in (lambda: path.write_text(json.dumps([record])), lambda: pd.DataFrame([record]).to_parquet(path)):
        write()
        with pytest.raises(InputError, match=complaint):
            custom_corpus(path, "mine", ReadOptions())
    text = next(name for name in record if name not in ("id", "docid", "passage_id"))
    assert passages(path, fields=FieldNames(id=next(iter(record)), text=text)) == [("1", "", record[text])]


def test_bad_rows_are_reported_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "made"
    pd.DataFrame({"id": ["1", None, "3"], "text": ["a", "b", None]}).to_parquet(path)
    bad: list[BadRecord] = []
    corpus = custom_corpus(path, "mine", ReadOptions())
    assert [found.passage.id for found in corpus.read([path], bad.append)] == ["1"]
    assert [(one.line, one.reason) for one in bad] == [
        (2, "the field 'id' is null, not a string"),
        (3, "the field 'text' is null, not a string"),
    ]
    path.write_text('[{"id": 1, "text": "a"}, 7, {"id": 2}]')
    bad.clear()
    assert [found.passage.id for found in custom_corpus(path, "mine", ReadOptions()).read([path], bad.append)] == ["1"]
    assert [(one.line, one.reason) for one in bad] == [
        (2, "record 2 is a number, not an object"),
        (3, "the field 'text' is missing"),
    ]


@pytest.mark.parametrize("writer", ["parquet", "arrow", "arrow, stream", "json, indented"])
def test_a_table_that_is_cut_off_is_refused(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "made"
    WRITERS[writer](path)
    path.write_bytes(path.read_bytes()[: -len(path.read_bytes()) // 3])
    with pytest.raises(InputError, match=r"made(, line \d+| is no (Parquet|Arrow or Feather) file that can be read):? "):
        passages(path)


def test_only_the_needed_columns_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "made", pa.parquet.ParquetFile.iter_batches
    WRITERS["parquet"](path)
    asked = list[dict[str, object]]()

    def recorded(file: pa.parquet.ParquetFile, size: int, **options: object) -> object:
        asked.append(options)
        return read(file, size, **options)

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", recorded)
    assert passages(path) == EXPECTED
    assert asked == [{"columns": ["docid", "headline", "passage"]}]


def test_a_format_is_detected_on_a_line_of_any_length(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_text('{"passages": [{"id": 1, "text": "' + "word " * 4_000_000 + '"}]}')
    assert detect_format(path) == "json"
    assert len(passages(path)[0][2]) == 20_000_000
