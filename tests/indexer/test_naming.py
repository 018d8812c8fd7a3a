from __future__ import annotations

import pytest

from wikidx.corpora.errors import UnknownNameError
from wikidx.indexer import ENCODERS, INDEXES, VECTOR_INDEXES
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.naming import encoder_spec, index_names, parse_index_name


def test_every_encoder_has_an_index_of_every_kind_under_one_name() -> None:
    for encoder in ENCODERS:
        for kind in VECTOR_INDEXES:
            assert parse_index_name(f"{encoder}-{kind}") == (encoder_spec(encoder).name, kind)
            assert f"{encoder}-{kind}" not in (*ENCODERS, *INDEXES)
    names = index_names()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "found"),
    [("contriever", ("contriever", "")), ("gtr-base", ("gtr", "")), ("bm25", ("", "bm25")), ("gtr-base-ivf", ("gtr", "ivf"))],
)
def test_names_resolve_to_encoder_and_kind(name: str, found: tuple[str, str]) -> None:
    assert parse_index_name(name) == found
    assert parse_index_name(str(parse_index_name(name))) == found


@pytest.mark.parametrize("name", ["flat-fp16", "ivf", "nothing-ivf", "contriever-ivf-ivf", "contriever-", "bm25-flat", ""])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(UnknownNameError):
        parse_index_name(name)


def test_two_names_of_an_encoder_have_the_same_index() -> None:
    assert index_ref("made", "gtr-base-flat-fp16").path == index_ref("made", "gtr-flat-fp16").path
    assert index_ref("made", "contriever-base-ivf").path != index_ref("made", "contriever-ivf").path


def test_near_names_are_given() -> None:
    with pytest.raises(UnknownNameError, match="unknown index 'contriever-base-ivfp': did you mean 'contriever-base-ivfpq'"):
        index_ref("made", "contriever-base-ivfp")
    with pytest.raises(UnknownNameError, match="known: minilm, minilm-flat, minilm-flat-fp16"):
        parse_index_name("minilm-hsnw", "retriever")
    with pytest.raises(UnknownNameError, match="unknown retriever .*did you mean 'contriever'"):
        parse_index_name("contreiver", "retriever")
