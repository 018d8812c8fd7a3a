from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import corpus_of
from wikidx.base.errors import InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store, store_manifest, store_path
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, Passage, Span
from wikidx.corpora.store import PassageStore
from wikidx.corpora.store.layout import COLUMNS

SPANS = st.builds(
    Span, st.sampled_from(["a", "b", "a#0", "é"]), st.integers(0, 9), st.integers(10, 2**40), st.integers(0, 3), st.text(max_size=3)
)


def store_of(spans: Sequence[Span | None], name: str = "made") -> PassageStore:
    located = [LocatedPassage(Passage(f"p{n}", "", f"text {n}"), "f", n + 1, span) for n, span in enumerate(spans)]
    corpus = Corpus(name=name, summary="", read=lambda files, on_bad: iter(located), n_passages=None)
    build_store(corpus, StoreOptions(rebuild=True, replace=True))
    return open_store(name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)  # each build replaces the one before
@given(
    spans=st.lists(
        st.none() | SPANS.map(lambda span: span._replace(heading=span.heading.encode(errors="replace").decode())), min_size=1, max_size=30
    )
)
def test_spans_are_read_as_they_were_written(home: Path, spans: list[Span | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wikidx.corpora.store.columns.BATCH_ROWS", 4)
        patch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 7)
        store = store_of(spans)
    rows = [*range(len(spans)), *reversed(range(len(spans)))]
    assert store.spans(rows) == [spans[row] for row in rows]
    assert store.has_spans == any(spans)
    if store.has_spans:
        runs = [0]
        for before, after in zip(spans, spans[1:], strict=False):
            runs.append(runs[-1] if before and after and before.document == after.document else len(runs))
        assert store.first_rows.tolist() == runs
        assert [store.document_rows(row) for row in range(len(runs))] == [
            range(first, len(runs) - runs[::-1].index(first)) for first in runs
        ]
        for name in ("a", "b", "a#0", "é", "p0"):
            first = next((row for row, span in enumerate(spans) if span and span.document == name), None)
            assert store.find_document(name) == (None if first is None else store.document_rows(first))


def test_columns_are_a_file_of_arrow_and_do_not_change_the_fingerprint(home: Path) -> None:
    spans = [Span("a", 0, 6, 1, "A > B"), Span("a", 7, 13, 2, "")]
    fingerprint = store_of(spans).fingerprint
    content = (store_path("made") / COLUMNS).read_bytes()
    table = pa.ipc.open_file(store_path("made") / COLUMNS).read_all()
    assert table.to_pylist() == [span._asdict() for span in spans]
    assert COLUMNS in store_manifest("made").files
    assert store_of([None, None]).fingerprint == fingerprint
    assert (store_of(spans).fingerprint, (store_path("made") / COLUMNS).read_bytes()) == (fingerprint, content)


def test_store_without_spans_has_no_columns(home: Path) -> None:
    build_store(corpus_of([Passage("1", "", "a")]), StoreOptions())
    store = open_store("made")
    assert not {"columns.arrow", "columns.i64", "documents.u32"} & store_manifest("made").files.keys()
    assert (store.has_spans, store.span(0)) == (False, None)
    with pytest.raises(
        InputError, match="the passages of 'made' do not say which document they are of: build it from documents with --split"
    ):
        store.document_rows(0)


def test_heading_with_half_of_a_surrogate_pair_is_a_bad_record(home: Path) -> None:
    with pytest.raises(InputError, match="f, line 2: half of a surrogate pair"):
        store_of([Span("a", 0, 1, 0, ""), Span("a", 0, 1, 0, "\ud800")])


def test_repeated_ids_are_left_out_with_their_spans(home: Path) -> None:
    located = [LocatedPassage(Passage(name, "", "t"), "f", 1, Span(f"d{n}", n, n + 1, 0, "")) for n, name in enumerate("abac")]
    corpus = Corpus(name="made", summary="", read=lambda files, on_bad: iter(located), n_passages=None)
    build_store(corpus, StoreOptions(skip_bad=True))
    assert [span and span.start for span in open_store("made").spans(np.arange(3))] == [0, 1, 3]
