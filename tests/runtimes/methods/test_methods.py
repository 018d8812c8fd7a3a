"""Properties of every method in the table."""

from __future__ import annotations

import dataclasses

import pytest

from wikidx.corpora import CORPORA
from wikidx.corpora.errors import UnknownNameError
from wikidx.indexer.naming import parse_index_name
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.templates import prompt_hashes


@pytest.mark.parametrize("name", METHODS)
def test_a_method_describes_itself(name: str) -> None:
    method = find_method(name)
    assert method.name == name
    assert method.roles
    assert len(set(method.roles)) == len(method.roles)
    assert method.summary
    assert method.source
    assert prompt_hashes([name])
    for preset in method.presets.values():
        assert preset.corpus in CORPORA
        assert str(parse_index_name(preset.retriever)) == preset.retriever
        SearchOptions(**preset.search)  # raises of what is none


@pytest.mark.parametrize("name", METHODS)
def test_every_option_says_where_its_default_comes_from(name: str) -> None:
    options = find_method(name).options()
    for option in list_options(options):
        assert option.origin in ("paper", "proposed")
        assert option.description
        assert option.value == option.default
        assert not option.choices or option.default in option.choices
    assert len(list_options(options)) == len(dataclasses.fields(options))


def test_an_unknown_method_has_near_names() -> None:
    with pytest.raises(UnknownNameError, match="unknown method 'ragg': did you mean 'rag'"):
        find_method("ragg")
