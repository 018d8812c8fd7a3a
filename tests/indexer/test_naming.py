from __future__ import annotations

import pickle

import pytest

from tests.conftest import read_rows
from wikidx.base.errors import UnknownNameError
from wikidx.indexer import INDEXES, VECTOR_INDEXES
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.naming import encoder_spec, index_names, parse_index_name


def parts_of(name: str) -> tuple[str, str, tuple[str, ...]]:
    parsed = parse_index_name(name)
    return parsed.encoder, parsed.kind, parsed.numbers


def test_every_encoder_has_an_index_of_every_kind_under_one_name() -> None:
    for encoder in ENCODERS:
        for kind in VECTOR_INDEXES:
            assert parts_of(f"{encoder}-{kind}") == (encoder_spec(encoder).name, kind, ())
            assert f"{encoder}-{kind}" not in (*ENCODERS, *INDEXES)
    names = index_names()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "encoder", "kind", "numbers"), read_rows("indexer/names.jsonl"))
def test_names_resolve_to_encoder_kind_and_numbers(name: str, encoder: str, kind: str, numbers: list[str]) -> None:
    parsed, found = parse_index_name(name), (encoder, kind, tuple(numbers))
    assert parts_of(name) == parts_of(str(parsed)) == found
    assert parse_index_name(parsed) is parsed
    assert parts_of(pickle.loads(pickle.dumps(parsed))) == found


@pytest.mark.parametrize("name", ["int8", "ivf", "nothing-ivf", "contriever-ivf-ivf", "contriever-", "bm25-int8", ""])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(UnknownNameError):
        parse_index_name(name)


@pytest.mark.parametrize(("name", "canonical"), read_rows("indexer/spellings.jsonl"))
def test_another_spelling_is_refused_with_the_canonical_name(name: str, canonical: str) -> None:
    with pytest.raises(UnknownNameError, match=f": it is named '{canonical}'$"):
        parse_index_name(name)
    assert str(parse_index_name(canonical)) == canonical


@pytest.mark.parametrize(
    "numbers", ["", "1.2", "1.2-", "1.2-0.75-1", "-1-0.5", "1001-0.5", "1.2-1.01", "nan-0.5", "inf-0.5", "b-k1", "9" * 9999]
)
def test_numbers_that_cannot_be_are_refused(numbers: str) -> None:
    with pytest.raises(
        UnknownNameError, match="known: bm25, bm25-k1-b with k1 from 0 to 1000 and b from 0 to 1(; an analyzer|$)"
    ) as caught:
        parse_index_name(f"bm25-{numbers}")
    assert len(str(caught.value)) < 300
    with pytest.raises(UnknownNameError, match="known: lucene$"):
        parse_index_name(f"lucene-{numbers}")


def test_two_names_of_an_encoder_have_the_same_index() -> None:
    assert index_ref("made", "gtr-base-int8").path == index_ref("made", "gtr-int8").path
    assert index_ref("made", "contriever-base-ivf").path != index_ref("made", "contriever-ivf").path


def test_near_names_are_given() -> None:
    with pytest.raises(UnknownNameError, match="unknown index 'contriever-base-ivfp': did you mean 'contriever-base-ivfpq'"):
        index_ref("made", "contriever-base-ivfp")
    with pytest.raises(UnknownNameError, match="known: minilm, minilm-binary, minilm-hnsw"):
        parse_index_name("minilm-hsnw", "retriever")
    with pytest.raises(UnknownNameError, match="unknown retriever .*did you mean 'contriever'"):
        parse_index_name("contreiver", "retriever")
