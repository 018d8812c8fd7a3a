"""Expansion of queries: HyDE's vector beside plain numpy, and the group of each search, in methods and outside."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtimes.methods.test_reading import READERS, WORDINGS, run
from wikidx.indexer.base import Hits
from wikidx.retrievers.fusion import make_targets, merge, to_lists
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.execution.opening import Plan, describe
from wikidx.runtimes.llms.base import Call, Gen, Generate
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.expansion import KINDS, expand_groups
from wikidx.runtimes.methods.requests import Retrieve


def test_the_sum_of_a_group_is_the_mean_vector_s_score() -> None:
    """HyDE's query is the mean of the vectors of the query and eight passages."""
    rng = np.random.default_rng(1)
    queries, rows = rng.normal(size=(9, 16)).astype(np.float32), rng.normal(size=(50, 16)).astype(np.float32)
    scores = queries @ rows.T
    order = np.argsort(-scores, axis=1)
    hits = Hits(order, np.take_along_axis(scores, order, axis=1))
    merged = merge(to_lists(hits), make_targets([range(9)]), KINDS["hyde"].merge)
    expected = rows.astype(float) @ queries.astype(float).mean(axis=0)
    np.testing.assert_array_equal(merged.rows, np.argsort(-expected))
    np.testing.assert_allclose(merged.scores / 9, np.sort(expected)[::-1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", READERS)
def test_every_search_of_a_reader_has_the_group(name: str) -> None:
    plain, driven = run(name), run(name, expand="rewrites")
    assert [queries[:-3] for queries in driven.queries] == plain.queries
    assert driven.queries
    searches = [request for request in driven.requests if isinstance(request, Retrieve)]
    for search in searches:
        assert search.merge in ("rrf", "max", "interleave")  # the last two are those of the methods themselves
    assert driven.answer.text == plain.answer.text


def test_passages_are_sampled_as_in_the_authors_code() -> None:
    driven = run("rag", expand="hyde")
    request, search = driven.requests[:2]
    assert isinstance(request, Generate)
    assert isinstance(search, Retrieve)
    assert (request.n, request.decoding, request.role) == (8, Decoding(max_tokens=512, temperature=0.7), "answer")
    assert search.queries == ("Who?", *(f"Passage {number}." for number in range(8)))
    assert search.merge == "sum"


def test_noise_is_searched_with_the_other_question_alone() -> None:
    driven = run("rag", expand="hyde", expansions=2, noise=0.5, noise_questions=("Else?",))
    assert sorted(driven.queries) == [("Else?",), ("Who?", "Passage 0.", "Passage 1.")]


@pytest.mark.parametrize(("n", "expected"), [(None, ["other words", "third", "fourth"]), (1, ["other words"]), (9, None)])
def test_groups_for_search_groups(n: int | None, expected: list[str] | None) -> None:
    llm = ScriptedLLM(lambda call: WORDINGS if "Query: who?" in call.prompt[-1].content else "")  # type: ignore[union-attr]
    groups = expand_groups(["who?", "When?"], llm, "rewrites", n)
    assert groups == [["who?", *(expected or ["other words", "third", "fourth", "fifth"])], ["When?"]]
    assert all(f"write {n or 3} others" in call.prompt[0].content for call in llm.calls)  # type: ignore[union-attr]


def test_sampled_passages_depend_on_the_seed_and_a_failure_is_told() -> None:
    def answer(call: Call) -> list[Gen]:
        assert isinstance(call, Generate)
        if "fail" in call.prompt[-1].content:  # type: ignore[union-attr]
            raise LLMError("it failed")
        return [Gen(text=f"{call.decoding.seed} {number}") for number in range(call.n)]

    llm = ScriptedLLM(answer)
    assert expand_groups(["a"], llm, "hyde", 2, seed=7) == [["a", "7 0", "7 1"]]
    with pytest.raises(LLMError, match="it failed"):
        expand_groups(["a", "fail"], llm, "hyde")


@pytest.mark.parametrize(("values", "more"), [({}, set()), ({"expand": "hyde"}, {"expansion"})])
def test_a_run_records_the_prompts_that_it_uses(values: dict[str, str], more: set[str]) -> None:
    method = find_method("skr")
    prompts = describe(Plan(method=method, options=method.options(**values), is_dry=True))["prompts"]
    assert {name.partition("/")[0] for name in prompts} == {"skr", "cot", "direct", "iter_retgen", "rag", "forms", *more}
