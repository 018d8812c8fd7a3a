"""Properties of every method in the table."""

from __future__ import annotations

import dataclasses

import pytest

from wikidx.base.errors import InputError, UnknownNameError
from wikidx.corpora import CORPORA
from wikidx.indexer.naming import parse_index_name
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.rerankers import RERANKERS
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.prompt_sets import list_prompts, prompt_sets, read_prompt_set, with_prompts
from wikidx.runtimes.methods.templates import ORIGINS, prompt_hashes


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
        assert option.origin in ORIGINS
        assert option.description
        assert option.value == option.default
        assert not option.choices or option.default in option.choices
    assert len(list_options(options)) == len(dataclasses.fields(options))


@pytest.mark.parametrize("name", METHODS)
def test_every_prompt_file_says_where_it_comes_from(name: str) -> None:
    method = find_method(name)
    own = list(list_prompts(method))
    assert {prompt.origin.partition(":")[0] for prompt in own} == {"ours"}
    for prompt_set in prompt_sets(name):
        replaced = {prompt for prompt in list_prompts(with_prompts(method, read_prompt_set(name, prompt_set)))} - set(own)
        assert replaced
        assert {prompt.origin.partition(":")[0] for prompt in replaced} <= set(ORIGINS)


PAPERS = {
    "ra_isf": {
        **{"know": True, "decompose": True, "k": 5, "max_depth": 3, "remove_question": True, "verdicts": "words"},
        **{"synthesis": "answers", "refer_back": False},
    },
    "refeed": {
        **{"diverse": True, "ensemble": True, "form": "short", "output": "answer", "shots": 0},
        **{"merge": "max", "dedup": "row", "search_question": False},
    },
    "retrorag": {
        **{"k": 5, "n_source": 5, "n_inferred": 5, "max_rounds": 5, "threshold": 0.7, "gate": 0.5},
        **{"temperature": 0.01, "monitor_temperature": 1.0, "answer_evaluation": True, "ellery": True, "source_evidence": True},
        **{"inferential_evidence": True, "update_evidence": True, "evaluate_evidence": True, "repeated_query": "search"},
    },
    "self_reasoning": {
        **{"k": 5, "form": "short", "max_tokens": 2048, "irrelevant": "rule"},
        **{"rap": True, "eap": True, "tap": True, "reader": False},
    },
}


@pytest.mark.parametrize(
    ("name", "presets"),
    [
        ("ra_isf", {"default": ("wiki2018", "contriever")}),
        ("refeed", {"default": ("wiki2018", "bm25")}),
        ("retrorag", {"default": ("wiki2018", "bm25")}),
        ("self_reasoning", {"NQ": ("wiki2018", "dpr"), "PopQA": ("wiki2020", "contriever"), "ASQA": ("wiki2018", "gtr-xxl")}),
    ],
)
def test_defaults_and_presets_are_the_paper_s(name: str, presets: dict[str, tuple[str, str]]) -> None:
    method = find_method(name)
    assert {option.name: option.value for option in list_options(method.options()) if option.origin == "paper"} == PAPERS[name]
    assert {key: (preset.corpus, preset.retriever) for key, preset in method.presets.items()} == presets


COMPARED = {
    "crag": {
        **{"k": 10, "evaluate": "score", "upper": 0.59, "lower": -0.99, "n_strips": 5, "strip_score": -0.5},  # section 4.2, appendix B.2
        **{"strip_sentences": 3},  # internal_knowledge_preparation.py
    },
    "recomp": {"k": 5, "n_sentences": 1, "summary_tokens": 512},  # section 3.2, table 2; README
    "replug": {"k": 10},  # sections 6.1 to 6.3
    "self_rag": {
        **{"k": 5, "retrieve": "adaptive", "threshold": 0.2, "w_rel": 1.0, "w_sup": 1.0, "w_use": 0.5, "beam": 2},  # section 4.3
        **{"likelihood": True, "max_segments": 6, "query": "question", "max_tokens": None},  # equation 4; run_long_form_static.py
    },
    "searchain": {
        **{"k": 1, "max_rounds": 5, "confidence": 1.5, "match": "contains", "overlap": 0.35},  # interaction with IR, setup; server.py
        **{"shots": 2},  # SearChain_w_IR.py
    },
    "metarag": {
        **{"k": 5, "max_rounds": 5, "threshold": 0.4, "encoder": "minilm"},  # section 5.3, appendix A.1
        **{"shots": 4, "max_tokens": 256},  # config.py, llms.py
    },
    "skr": {
        **{"elicit": "knn", "rule": "ratio", "output": "cot", "k": 3, "shots": 4},  # sections 3.2 and 4.3
        **{"neighbours": 5},  # knn.py
    },
    "adaptive_rag": {"k_once": 15, "k_each": 6, "max_sentences": 10},  # run.py, ircot.py
    "flare": {  # 2wikihop_flare_config.json
        **{"k": 2, "theta": 0.8, "beta": 0.4, "queries": "masked", "sentence_tokens": 64, "query_tokens": 64},
    },
    "chain_of_note": {},
}
"""System that papers compare with -> the defaults of its paper or its authors' code, and where they stand."""


@pytest.mark.parametrize("name", COMPARED)
def test_defaults_of_compared_systems_are_those_of_papers_and_codes(name: str) -> None:
    options = list_options(find_method(name).options())
    assert {option.name: option.value for option in options if option.origin in ("paper", "authors' code")} == COMPARED[name]


@pytest.mark.parametrize("name", ["replug", "recomp", "self_rag", "crag"])
def test_an_answer_has_a_token_at_least(name: str) -> None:
    options = find_method(name).options
    assert options(max_tokens=1).max_tokens == 1
    with pytest.raises(InputError):
        options(max_tokens=0)


@pytest.mark.parametrize("name", ["retrorag", "metarag"])
def test_the_first_100_of_bm25_are_reranked_as_in_metarag(name: str) -> None:
    search = SearchOptions(**find_method(name).presets["default"].search)
    assert (search.depth, search.rerank, search.rerank_depth) == (100, "cross-encoder", 100)
    assert "simlm" in RERANKERS


def test_an_unknown_method_has_near_names() -> None:
    with pytest.raises(UnknownNameError, match="unknown method 'ragg': did you mean 'rag'"):
        find_method("ragg")
