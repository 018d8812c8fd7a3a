"""ReFeed's choice between initial and refined answer, its prompts, and its handling of arbitrary model output."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from typing import Any

import pytest

from tests.runtimes.methods.refeed_driving import FOUND, NO_NLL, basic, calls, run, said
from wikidx.runtimes.llms.base import Gen, Generate, MeanNll, Message
from wikidx.runtimes.llms.repetition import cut_loop
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.refeed import METHOD, RefeedOptions
from wikidx.runtimes.methods.requests import Request, Retrieve
from wikidx.runtimes.methods.templates import load_template

# The ensemble over diverse answers

DRAWS = [said("Ada", 0.5), said("Grace", 0.4), said("ada", 0.45), said("", 0.0)]


def test_the_likeliest_sample_stands_for_the_initial_answers() -> None:
    driven = run("Who?", [DRAWS, FOUND, said("Mary", 0.41)], samples=4)
    assert (driven.answer.text, driven.answer.detail["initial"]["nll"]) == ("Grace", pytest.approx(0.4))
    assert run("Who?", [DRAWS, FOUND, said("Mary", 0.39)], samples=4).answer.text == "Mary"


def test_the_greedy_answer_may_stand_for_them_and_takes_no_step() -> None:
    driven = run("Who?", [DRAWS, said("Greedy", 0.2), FOUND, said("Mary", 0.3)], samples=4, initial_candidate="greedy")
    assert driven.outline == [["answer", "answer"], ["retrieve"], ["answer"]]
    sampled, greedy, _ = calls(driven)
    assert (sampled.prompt, sampled.n, greedy.n, greedy.decoding.temperature) == (greedy.prompt, 4, 1, 0)
    assert driven.queries == [("Who? Ada", "Who? Grace")]
    assert "Greedy" not in driven.prompts("answer")[-1]
    assert driven.answer.text == "Greedy"


def test_no_greedy_answer_is_made_without_an_ensemble() -> None:
    driven = run("Who?", [DRAWS, FOUND, "Mary"], samples=4, initial_candidate="greedy", ensemble=False)
    assert driven.outline == [["answer"], ["retrieve"], ["answer"]]
    assert [call.logprobs for call in calls(driven)] == [False, False]


def test_samples_without_log_probabilities_do_not_compete() -> None:
    draws = [Gen(text="Ada"), said("Grace", 0.4)]
    assert run("Who?", [draws, FOUND, said("Mary", 0.5)], samples=2).answer.text == "Grace"
    driven = run("Who?", [["Ada", "Grace"], FOUND, said("Mary", 0.5)], samples=2)
    assert (driven.answer.text, driven.answer.detail["reason"]) == ("Mary", "no log-probabilities")


def test_a_text_that_is_cut_competes_by_what_remains_of_it() -> None:
    """A loop and a further question that the model invents are near-certain: they must not decide."""
    ends = tuple(range(1, 5)) + tuple(range(5, 105))
    for refined in (Gen(text="Mary" + "y" * 100, finish="length"), Gen(text="Mary\nQuestion: who?" + "." * 85)):
        certain = dataclasses.replace(refined, logprobs=(-3.0,) * 4 + (-0.001,) * 100)
        for places, text, reason in ((ends, "Ada", "mean NLL"), (None, "Mary", "no log-probabilities")):
            cut = cut_loop(dataclasses.replace(certain, ends=places))
            answer = basic([said("Ada", 0.5), FOUND, cut]).answer
            assert (answer.text, answer.detail["reason"]) == (text, reason)
            assert answer.detail["refined"]["nll"] == (3.0 if places else None)


# What is scored


def test_the_stripped_texts_may_be_scored_once_more() -> None:
    driven = basic([" Ada ", FOUND, "Grace ", 0.3, 0.2], nll="text")
    assert driven.outline == [["answer"], ["retrieve"], ["answer"], ["answer nll", "answer nll"]]
    assert [call.logprobs for call in calls(driven)] == [False, False]
    before, after = driven.requests[-2:]
    assert isinstance(before, MeanNll)
    assert isinstance(after, MeanNll)
    first, second = calls(driven)
    assert (before.prompt, before.continuation) == (first.prompt, "Ada")
    assert (after.prompt, after.continuation) == (second.prompt, "Grace")
    assert driven.answer.text == "Grace"
    assert driven.answer.detail["initial"]["nll"] == 0.3


def test_every_distinct_sample_is_scored_where_the_likeliest_is_wanted() -> None:
    driven = run("Who?", [["Ada", "Grace", "Ada", ""], FOUND, "Mary", 0.5, 0.2, 0.3], samples=4, nll="text")
    assert driven.outline[-1] == ["answer nll"] * 3
    assert [call.continuation for call in driven.requests if isinstance(call, MeanNll)] == ["Ada", "Grace", "Mary"]
    assert driven.answer.text == "Grace"


def test_a_given_text_that_cannot_be_scored_ends_the_ensemble() -> None:
    driven = basic(["Ada", FOUND, "Grace", NO_NLL, 0.2], nll="text")
    assert (driven.answer.text, driven.answer.detail["reason"]) == ("Grace", "no log-probabilities")


# Prompts


@pytest.mark.parametrize(("output", "form"), [("answer", "short"), ("cot", "short"), ("answer", "dialogue")])
@pytest.mark.parametrize("step", ["initial", "refine"])
def test_every_prompt_has_four_demonstrations_of_every_field(step: str, output: str, form: str) -> None:
    prompt = load_template("refeed", f"{step}_{output}", form)
    fields = {field for _, text in prompt.turns for field in re.findall(r"\{([a-z_]+)\}", text)}
    assert fields == ({"question"} if step == "initial" else {"question", "passages", "answers"})
    assert len(prompt.shots) >= 4
    assert [set(shot) for shot in prompt.shots] == [fields | {"output"}] * len(prompt.shots)


@pytest.mark.parametrize("step", ["initial", "refine"])
def test_demonstrated_chains_of_thought_end_with_their_answer(step: str) -> None:
    for shot in load_template("refeed", f"{step}_cot").shots:
        driven = basic([shot["output"], FOUND, "Answer: x"], output="cot", ensemble=False)
        last = shot["output"].splitlines()[-1]
        assert last == f"Answer: {driven.answer.detail['samples'][0]['answer']}"
        assert driven.answer.detail["samples"][0]["parse_ok"] is True


def test_some_demonstrations_keep_an_earlier_answer_and_some_correct_it() -> None:
    def kept(shot: dict[str, str]) -> bool:
        return any(line.partition(". ")[2] == shot["output"] for line in shot["answers"].splitlines())

    assert {kept(shot) for shot in load_template("refeed", "refine_answer").shots} == {True, False}


def test_demonstrations_come_in_every_prompt() -> None:
    driven = run("Who?", [["a"], FOUND, "b"], samples=1, shots=3)
    assert [len(call.prompt) for call in calls(driven) if isinstance(call.prompt, tuple)] == [1 + 2 * 3 + 1] * 2


def test_documents_are_what_may_be_cut() -> None:
    driven = basic(["Ada", FOUND, "Grace"], ensemble=False)
    prompt = calls(driven)[1].prompt
    assert isinstance(prompt, tuple)
    turn = prompt[-1]
    assert isinstance(turn, Message)
    assert [turn.content[start:end] for start, end in turn.passages] == ["[1] T1\none", "\n\n[2] T2\ntwo"]


def test_chains_of_thought_get_more_tokens() -> None:
    def limits(output: str, **values: Any) -> list[int]:  # noqa: ANN401 - an option
        driven = basic(["a", FOUND, "b"], output=output, max_reasoning_tokens=9, **values)
        return [call.decoding.max_tokens for call in calls(driven)]

    assert (limits("answer", max_tokens=7), limits("cot", max_tokens=7)) == ([7, 7], [9, 9])
    assert (limits("answer"), limits("answer", form="dialogue")) == ([256, 256], [50, 50])


# The method


def test_the_switches_of_the_paper() -> None:
    assert (METHOD.name, METHOD.roles) == ("refeed", ("answer",))
    (preset,) = METHOD.presets.values()
    assert (preset.corpus, preset.retriever) == ("wiki2018", "bm25")
    stated = {option.name: option.value for option in list_options(RefeedOptions()) if option.origin == "paper"}
    assert stated == {
        **{"diverse": True, "ensemble": True, "form": "short", "output": "answer", "shots": 0},
        **{"merge": "max", "dedup": "row", "search_question": False},
    }


def test_without_diversity_and_without_ensemble_are_the_ablations_of_table_3() -> None:
    assert run("Who?", [said("Ada", 0.1), FOUND, said("Grace", 0.2)], diverse=False).answer.text == "Ada"
    assert run("Who?", [[said("Ada", 0.1)], FOUND, said("Grace", 0.2)], samples=1, ensemble=False).answer.text == "Grace"


NASTY = ["", " \n", "?!", "Answer:", "**Answer:**  ", "the", "a\nb", "\u202eслово\u0000 🎬", "the answer is", "x " * 300, "Answer: " * 100]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_model_says_one_of_its_answers_is_kept(seed: int) -> None:
    rng = random.Random(seed)
    output, form = rng.choice([("answer", "short"), ("cot", "short"), ("answer", "dialogue")])
    values = {
        "diverse": rng.random() < 0.7,
        "ensemble": rng.random() < 0.8,
        "initial_candidate": rng.choice(["best", "greedy"]),
        "nll": rng.choice(["output", "text", "answer"]),
    }

    def gen() -> Gen:
        logprobs = rng.choice([None, (), (-0.5, -0.25), (0.0,), (-math.inf,)])
        return Gen(text=rng.choice(NASTY), finish=rng.choice(["stop", "length"]), logprobs=logprobs)

    def reply(request: Request) -> Any:  # noqa: ANN401 - a canned result
        if isinstance(request, Retrieve):
            return FOUND[: rng.randrange(3)]
        if isinstance(request, MeanNll):
            assert request.continuation.strip()
            return rng.choice([NO_NLL, math.nan, 0.5, 2.0])
        assert isinstance(request, Generate)
        return [gen() for _ in range(request.n)]

    driven = run("q?", reply, output=output, form=form, samples=4, **values)
    detail = driven.answer.detail
    assert json.loads(json.dumps(detail, allow_nan=False)) == detail
    assert driven.answer.text == detail[detail["kept"]]["answer"]
    assert len(driven.queries) == 1
    assert all(query.strip() == query for query in driven.queries[0])
    if detail["reason"] == "mean NLL":
        assert (detail["initial"]["nll"] < detail["refined"]["nll"]) == (detail["kept"] == "initial")


def test_non_ascii_passes_unchanged() -> None:
    driven = run("誰?", [["Żuławski", "żuławski", "母"], FOUND, "Małgorzata 🎬"], samples=3)
    assert driven.queries == [("誰? Żuławski", "誰? 母")]
    assert driven.answer.text == "Małgorzata 🎬"
