from __future__ import annotations

import pytest

from corpora.errors import UnknownNameError
from indexer import ENCODERS, INDEXES, VECTOR_INDEXES
from indexer.catalog import index_path
from indexer.naming import encoder_spec, index_names, is_index_name, unknown_name, vector_index_name


def test_every_encoder_has_an_index_of_every_kind_under_one_name() -> None:
    for encoder in ENCODERS:
        for kind in VECTOR_INDEXES:
            found = vector_index_name(f"{encoder}-{kind}")
            assert found is not None
            assert (found.encoder, found.kind) == (encoder_spec(encoder).name, kind)
            assert is_index_name(f"{encoder}-{kind}")
            assert f"{encoder}-{kind}" not in (*ENCODERS, *INDEXES)
    names = index_names()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "name", ["contriever", "contriever-base", "bm25", "flat-fp16", "ivf", "nothing-ivf", "contriever-ivf-ivf", "contriever-"]
)
def test_other_names_are_none(name: str) -> None:
    assert vector_index_name(name) is None


def test_two_names_of_an_encoder_have_the_same_index() -> None:
    assert index_path("made", "gtr-base-flat-fp16") == index_path("made", "gtr-flat-fp16")
    assert index_path("made", "contriever-base-ivf") != index_path("made", "contriever-ivf")


def test_near_names_are_given() -> None:
    with pytest.raises(UnknownNameError, match="unknown index 'contriever-base-ivfp': did you mean 'contriever-base-ivfpq'"):
        index_path("made", "contriever-base-ivfp")
    assert "known: minilm, minilm-flat, minilm-flat-fp16" in str(unknown_name("retriever", "minilm-hsnw"))
    assert "did you mean 'contriever'" in str(unknown_name("retriever", "contreiver"))
