"""RA-ISF's prompts, the form of its answers, and its handling of arbitrary model output."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from tests.runtimes.methods.ra_isf_driving import FIVE, MISSING, asked, form, run, tree, walk
from wikidx.runtimes.llms.base import AskYesNo, Gen, Generate
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.ra_isf import METHOD, RaIsfOptions
from wikidx.runtimes.methods.requests import Request, Retrieve
from wikidx.runtimes.methods.templates import load_template

# The form of the answer


@pytest.mark.parametrize(("option", "deeper"), [("short", "short"), ("sentence", "sentence"), ("yes_no", "short")])
def test_the_form_of_answers(option: str, deeper: str) -> None:
    driven = run("q?", ["no", [], "1. a?\n2. b?", "yes", "no", "A", FIVE[:1], "yes", "B", "x"], form=option)
    known, found, final = driven.prompts("answer")
    assert (form(deeper) in known, form(deeper) in found, form(option) in final) == (True, True, True)
    assert len({form("short"), form("sentence"), form("yes_no")}) == 3


# Prompts


@pytest.mark.parametrize(
    "name",
    [
        "know",
        "relevance",
        "relevant_passages",
        "decompose",
        "decompose_in_order",
        "closed_book",
        "from_passages",
        "synthesise",
        "synthesise_or_recall",
    ],
)
def test_every_prompt_has_at_least_four_demonstrations_of_every_field(name: str) -> None:
    prompt = load_template("ra_isf", name)
    fields = {field for _, text in prompt.turns for field in re.findall(r"\{([a-z_]+)\}", text)}
    assert len(prompt.shots) >= 4
    assert [set(shot) for shot in prompt.shots] == [fields | {"output"}] * len(prompt.shots)


def test_demonstrations_are_read_by_our_own_parsers() -> None:
    assert {shot["output"] for shot in load_template("ra_isf", "know").shots} == {"yes", "no"}
    assert {shot["output"] for shot in load_template("ra_isf", "relevance").shots} == {"yes", "no"}
    for shot in load_template("ra_isf", "decompose").shots:
        n_lines = len(shot["output"].splitlines())
        driven = run("Q", ["no", [], shot["output"], *["yes"] * n_lines, *["a"] * n_lines, "x"])
        assert len(tree(driven)["sub_questions"]) == n_lines > 1


def test_demonstrations_come_in_every_prompt() -> None:
    driven = run("Who?", ["no", FIVE[:1], "no", "1. a?", "yes", "b", "Ada"], shots=3)
    calls = [call for call in driven.requests if isinstance(call, Generate)]
    assert [len(call.prompt) for call in calls if isinstance(call.prompt, tuple)] == [1 + 2 * 3 + 1] * len(calls)


# The method


def test_verdicts_are_short_and_answers_and_lists_as_long_as_wanted() -> None:
    driven = run("Who?", ["no", FIVE[:1], "no", "1. a?", "yes", "b", "Ada"], max_tokens=99, k=1)
    limits = {role: {call.decoding.max_tokens for call in asked(driven, role)} for role in METHOD.roles}
    assert limits == {"answer": {99}, "know": {8}, "relevance": {8}, "decompose": {99}}
    assert [search.k for search in driven.requests if isinstance(search, Retrieve)] == [1]


def test_the_switches_of_the_paper() -> None:
    assert METHOD.name == "ra_isf"
    assert METHOD.roles == ("answer", "know", "relevance", "decompose")
    (preset,) = METHOD.presets.values()
    assert (preset.corpus, preset.retriever) == ("wiki2018", "contriever")
    stated = {option.name: option.value for option in list_options(RaIsfOptions()) if option.origin == "paper"}
    assert stated == {
        **{"know": True, "decompose": True, "k": 5, "max_depth": 3, "remove_question": True, "verdicts": "words"},
        **{"synthesis": "answers", "refer_back": False},
    }


NASTY = [
    "",
    " \n",
    "yes",
    "No.",
    "[2] and [9]",
    "1. Who is A?\n2. Who is B?",
    '{"query": ["Who?", null, "\\ud83d"]}',
    "```json\n[[1, {}]]\n```",
    "{" * 50,
    "1. 2. 3. 4. 5. 6. 7. 8.",
    "- " * 200,
    "?" * 300,
    "\u202eслово\u0000 🎬",
    "99999999999999999999999999",
    "q? q? q? q? q? q? q? q? q?",
]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_model_says_there_is_an_answer_within_the_limits(seed: int) -> None:
    rng = random.Random(seed)
    values = {
        "relevance": rng.choice(["each", "joint", "off"]),
        "depth_test": rng.choice(["exceeded", "reached", "leaf"]),
        "if_none_answered": rng.choice(["synthesise", "unknown", "closed_book", "passages"]),
        "refer_back": rng.random() < 0.5,
        "verdicts": rng.choice(["words", "choice", "probability"]),
    }

    def reply(request: Request) -> Any:  # noqa: ANN401 - a canned result
        if isinstance(request, Retrieve):
            return FIVE[: rng.randrange(4)]
        if isinstance(request, AskYesNo):
            return rng.choice([0.0, 0.4, 1.0, MISSING])
        return Gen(text=rng.choice(NASTY), finish=rng.choice(["stop", "length"]))

    driven = run("q?", reply, max_depth=2, max_sub_questions=3, **values)
    nodes = walk(tree(driven))
    assert json.loads(json.dumps(driven.answer.detail)) == driven.answer.detail
    assert driven.answer.text.encode() == driven.answer.text.strip().encode()
    assert max(node["depth"] for node in nodes) <= 3
    assert max(len(node["sub_questions"]) for node in nodes) <= 3
    assert all(node["question"].strip() for node in nodes)
    assert driven.answer.detail["parse_ok"] == all(node["parse_ok"] for node in nodes)


def test_non_ascii_questions_and_answers_pass_unchanged() -> None:
    driven = run("Kto wyreżyserował „Wojnę”? 誰?", ["no", [], "1. 監督は誰?", "はい yes", "Żuławski", "母は Małgorzata 🎬"])
    assert driven.queries == [("Kto wyreżyserował „Wojnę”? 誰?",)]
    assert "1. 監督は誰?\nAnswer: Żuławski" in driven.prompts("answer")[-1]
    assert driven.answer.text == "母は Małgorzata 🎬"
