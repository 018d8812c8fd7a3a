"""ReAct, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.base.registry import load
from wikidx.corpora import CORPORA
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index
from wikidx.retrievers.opening import open_searcher
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.llms.base import Generate, Message
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.methods.react import METHOD, ReactOptions, react
from wikidx.runtimes.methods.requests import LookUpTitle, Retrieve
from wikidx.runtimes.questions import Question

ULM = [
    Passage("u1", "Ulm", "Ulm is a city. It lies on the"),
    Passage("u2", "Ulm", "Danube. It is old. It is big. It is rich. Its minster is high."),
    Passage("u3", "Ulm", "The river Danube floods."),
]
DANUBE = [Passage("d1", "Danube", "The Danube is a river. It flows into the Black Sea.")]


def run(canned: list[Any], question: str = "Which sea?", **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(react(question, ReactOptions(**{"shots": 0} | values)), canned)


def begun(driven: Driven) -> list[str]:
    """Return the turns that the model was to go on from."""
    turns = [call.prompt[-1] for call in driven.requests if isinstance(call, Generate)]
    assert all(isinstance(turn, Message) and turn.role == "assistant" for turn in turns)
    return [turn.content for turn in turns if isinstance(turn, Message)]


def titles(driven: Driven) -> list[str]:
    return [request.title for request in driven.requests if isinstance(request, LookUpTitle)]


def observations(driven: Driven) -> list[str]:
    return [step["observation"] for step in driven.answer.detail["steps"]]


def test_pages_are_opened_by_title_until_finish() -> None:
    driven = run(
        [
            " I need the river.\nAction 1: Search[Ulm]",
            ULM,
            " It is the Danube.\nAction 2: Search[Danube]\n",
            DANUBE,
            " The Black Sea.\nAction 3: Finish[the Black Sea]",
        ]
    )
    assert driven.outline == [["answer"], ["look up"], ["answer"], ["look up"], ["answer"]]
    assert titles(driven) == ["Ulm", "Danube"]
    first = "Ulm is a city. It lies on the Danube. It is old. It is big. It is rich."
    assert begun(driven) == [
        "Thought 1:",
        f"Thought 1: I need the river.\nAction 1: Search[Ulm]\nObservation 1: {first}\nThought 2:",
        f"Thought 1: I need the river.\nAction 1: Search[Ulm]\nObservation 1: {first}\n"
        "Thought 2: It is the Danube.\nAction 2: Search[Danube]\nObservation 2: The Danube is a river. It flows into the Black Sea.\n"
        "Thought 3:",
    ]
    assert driven.answer == (
        "the Black Sea",
        (ULM[0], ULM[1], DANUBE[0]),
        {
            "steps": [
                {"thought": "I need the river.", "action": "Search[Ulm]", "observation": first, "well_formed": True},
                {
                    "thought": "It is the Danube.",
                    "action": "Search[Danube]",
                    "observation": "The Danube is a river. It flows into the Black Sea.",
                    "well_formed": True,
                },
                {"thought": "The Black Sea.", "action": "Finish[the Black Sea]", "observation": "", "well_formed": True},
            ],
            "stop_reason": "finish",
            "n_malformed": 0,
            "parse_ok": True,
        },
    )
    assert [request.path for request in driven.requests] == [(f"step {number}",) for number in (1, 1, 2, 2, 3)]


def test_decoding_is_the_paper_s() -> None:
    driven = run(["x", " Search[Ulm]", ULM, "y\nAction 2: Finish[z]"])
    decodings = [call.decoding for call in driven.requests if isinstance(call, Generate)]
    assert [(one.max_tokens, one.temperature, one.stop) for one in decodings] == [
        (100, 0, ("\nObservation",)),
        (100, 0, ("\n",)),
        (100, 0, ("\nObservation",)),
    ]


def test_six_demonstrations_are_shown_that_end_with_finish() -> None:
    (call,) = drive(react("Which sea?", ReactOptions()), ["x\nAction 1: Finish[y]"]).requests
    assert isinstance(call, Generate)
    shown = [turn.content for turn in call.prompt[:-1] if isinstance(turn, Message) and turn.role == "assistant"]
    assert len(shown) == 6
    for text in shown:
        assert text.startswith("Thought 1: ")
        assert "\nAction 1: Search[" in text
        assert text.splitlines()[-1].partition(": ")[2].startswith("Finish[")


def test_observations_may_be_cut_for_the_prompt_to_fit() -> None:
    driven = run(["a\nAction 1: Search[Ulm]", ULM, "b\nAction 2: Search[Danube]", DANUBE, "c\nAction 3: Finish[z]"], page_sentences=1)
    call = driven.requests[-1]
    assert isinstance(call, Generate)
    turn = call.prompt[-1]
    assert isinstance(turn, Message)
    assert [turn.content[start:end] for start, end in turn.passages] == ["Ulm is a city.", "The Danube is a river."]


# Search


def test_where_there_is_no_page_similar_titles_are_named() -> None:
    hits = [Passage(str(number), title, "x") for number, title in enumerate(["A", "B", "A", " ", "C", "D", "E", "F"])]
    driven = run(["a\nAction 1: Search[Ulm City]", [], hits, "b\nAction 2: Finish[z]"])
    assert driven.outline == [["answer"], ["look up"], ["retrieve"], ["answer"]]
    assert driven.queries == [("Ulm City",)]
    assert [request.k for request in driven.requests if isinstance(request, Retrieve)] == [20]
    assert observations(driven)[0] == "Could not find Ulm City. Similar: [A, B, C, D, E]."
    assert driven.answer.passages == ()


def test_an_empty_retrieval_names_none() -> None:
    driven = run(["a\nAction 1: Search[Ulm]", [], [], "b\nAction 2: Finish[z]"])
    assert observations(driven)[0] == "Could not find Ulm."


def test_a_title_that_differs_in_case_and_punctuation_is_the_page_s() -> None:
    hits = [Passage("1", "Danube", "x"), Passage("2", "St. Ulm", "x")]
    driven = run(["a\nAction 1: Search[st ulm]", [], hits, ULM, "b\nAction 2: Finish[z]"], page_sentences=1)
    assert driven.outline == [["answer"], ["look up"], ["retrieve"], ["look up"], ["answer"]]
    assert titles(driven) == ["st ulm", "St. Ulm"]
    assert observations(driven)[0] == "Ulm is a city."
    driven = run(["a\nAction 1: Search[st ulm]", [], hits, "b\nAction 2: Finish[z]"], fold_titles=False)
    assert observations(driven)[0] == "Could not find st ulm. Similar: [Danube, St. Ulm]."


def test_an_empty_page_is_said_to_be_empty() -> None:
    driven = run(["a\nAction 1: Search[Ulm]", [Passage("1", "Ulm", " ")], "b\nAction 2: Finish[z]"])
    assert observations(driven)[0] == "The page is empty."


# Lookup


def test_a_word_is_looked_up_sentence_by_sentence_whatever_its_case() -> None:
    driven = run(
        [
            "a\nAction 1: Search[Ulm]",
            ULM,
            *(f"b\nAction {number}: Lookup[danube]" for number in (2, 3, 4)),
            "c\nAction 5: Lookup[minster]",
            "d\nAction 6: Lookup[danube]",
            "e\nAction 7: Finish[z]",
        ],
        page_sentences=1,
    )
    assert observations(driven)[1:6] == [
        "(Result 1 / 2) It lies on the Danube.",
        "(Result 2 / 2) The river Danube floods.",
        "No more results.",
        "(Result 1 / 1) Its minster is high.",
        "(Result 1 / 2) It lies on the Danube.",
    ]
    assert driven.answer.passages == tuple(ULM)


def test_a_search_that_fails_leaves_the_page_open_and_another_page_begins_anew() -> None:
    driven = run(
        [
            "a\nAction 1: Lookup[is]",
            "a\nAction 2: Search[Danube]",
            DANUBE,
            "b\nAction 3: Lookup[sea]",
            "c\nAction 4: Search[Nowhere]",
            [],
            [],
            "d\nAction 5: Lookup[sea]",
            "e\nAction 6: Search[Danube]",
            DANUBE,
            "f\nAction 7: Lookup[sea]",
        ],
    )
    assert observations(driven)[0] == "No more results."
    assert observations(driven)[4] == "No more results."
    assert observations(driven)[2] == observations(driven)[6] == "(Result 1 / 1) It flows into the Black Sea."


# Malformed output


def test_without_an_action_the_model_is_asked_for_one() -> None:
    driven = run(["\nI need the river.\nIt passes Ulm.", " Search[Ulm]", ULM, "b\nAction 2: Finish[z]"])
    assert driven.outline == [["answer"], ["answer"], ["look up"], ["answer"]]
    assert begun(driven)[1] == "Thought 1: I need the river.\nAction 1:"
    assert driven.answer.detail["steps"][0]["well_formed"] is False
    assert driven.answer.detail["n_malformed"] == 1
    assert driven.answer.detail["parse_ok"] is False


@pytest.mark.parametrize(
    ("text", "action", "answer"),
    [
        ("Thought 1: a\nAction 1: Finish[z]", "Finish[z]", "z"),
        ("**Thought 1:** a\n**Action 1:** Finish[z]", "Finish[z]", "z"),
        ("a\nAction: finish[z]", "finish[z]", "z"),
        ("a\naction 3 : FINISH [z].", "FINISH [z].", "z"),
        ("a\nAction 1: I will Finish[z] now", "I will Finish[z] now", "z"),
        ("a\nAction 1: Finish[z", "Finish[z", "z"),
        ("a\nAction 1: Finish[z]\nAction 2: Search[y]", "Finish[z]", "z"),
        ("a\nAction 1: Finish[Łódź [sic]]", "Finish[Łódź [sic]]", "Łódź [sic]"),
        ("a\nAction 1:\nFinish[z]", "Finish[z]", "z"),
    ],
)
def test_actions_are_read_leniently(text: str, action: str, answer: str) -> None:
    driven = run([text])
    assert driven.answer.text == answer
    assert driven.answer.detail["steps"][0]["action"] == action
    assert driven.answer.detail["steps"][0]["thought"] == "a"


@pytest.mark.parametrize("action", ["", "Search", "Search[]", 'Search[" "]', "Lookup[ ]", "Finish[]", "Think[hard]", "dig for it"])
def test_what_is_no_action_is_said_to_be_none(action: str) -> None:
    driven = run([f"a\nAction 1: {action}", "b\nAction 2: Finish[z]"])
    assert driven.outline == [["answer"], ["answer"]]
    assert begun(driven)[1] == f"Thought 1: a\nAction 1: {action}\nObservation 1: {f'Invalid action: {action}'.strip()}\nThought 2:"
    assert driven.answer.detail["n_malformed"] == 1
    assert driven.answer.text == "z"


def test_titles_come_without_quotation_marks_around_them() -> None:
    assert titles(run(['a\nAction 1: Search["Ulm"]', ULM, "b\nAction 2: Finish[z]"])) == ["Ulm"]


def test_a_model_that_says_nothing_is_asked_seven_times_and_answers_nothing() -> None:
    driven = run(["", ""] * 7)
    assert driven.outline == [["answer"]] * 14
    assert driven.answer.text == ""
    assert driven.answer.detail["stop_reason"] == "max_steps"
    assert driven.answer.detail["n_malformed"] == 7


# The end


def test_after_the_last_step_the_answer_is_empty_or_asked_for() -> None:
    steps = ["a\nAction 1: Search[Ulm]", ULM, "a\nAction 2: Search[Danube]", DANUBE]
    driven = run(steps, max_steps=2)
    assert driven.answer.text == ""
    assert driven.answer.passages == (ULM[0], ULM[1], DANUBE[0])
    driven = run([*steps, "the Black Sea]\nObservation"], max_steps=2, at_limit="answer")
    assert driven.outline[-1] == ["answer"]
    assert begun(driven)[-1].endswith("It flows into the Black Sea.\nAction 3: Finish[")
    assert driven.answer.text == "the Black Sea"
    assert driven.answer.detail["stop_reason"] == "max_steps"


@pytest.mark.parametrize(("text", "answer"), [("Action 3: Finish[Łódź]", "Łódź"), ("Łódź\nand", "Łódź"), ("", ""), ("]", "")])
def test_a_forced_answer_is_read_leniently(text: str, answer: str) -> None:
    assert run(["a\nAction 1: Lookup[x]", text], max_steps=1, at_limit="answer").answer.text == answer


def test_a_repeated_action_is_done_again() -> None:
    assert run(["a\nAction 1: Search[Ulm]", ULM] * 7).answer.detail["stop_reason"] == "max_steps"


def test_the_next_result_of_a_word_comes_until_there_is_none() -> None:
    driven = run(["a\nAction 1: Search[Ulm]", ULM, *["b\nAction 2: Lookup[danube]"] * 4], max_steps=5)
    assert observations(driven)[1:] == [
        "(Result 1 / 2) It lies on the Danube.",
        "(Result 2 / 2) The river Danube floods.",
        "No more results.",
        "No more results.",
    ]


def test_a_page_of_many_passages_is_taken_apart_once_in_order() -> None:
    page = passages(*(f"Fact {number}." for number in range(1000)))
    driven = run(["a\nAction 1: Search[T]", page, "b\nAction 2: Lookup[fact 999]", "c\nAction 3: Finish[z]"])
    assert observations(driven)[:2] == ["Fact 0. Fact 1. Fact 2. Fact 3. Fact 4.", "(Result 1 / 1) Fact 999."]
    assert [one.text for one in driven.answer.passages] == [f"Fact {number}." for number in (0, 1, 2, 3, 4, 999)]


@pytest.mark.usefixtures("home")
def test_pages_of_a_corpus_on_this_machine_are_opened_by_title_and_by_what_is_like_it() -> None:
    build_store(load("corpus", "sample", CORPORA), StoreOptions())
    build_index("sample", "bm25", open_store("sample"))
    store = open_store("sample")
    (gold,) = store.get_many(store.rows_with_title("Gold"))
    script = ["a\nAction 1: Search[gold]", "b\nAction 2: Lookup[gold]", "c\nAction 3: Search[Iron]", "d\nAction 4: Finish[aurum]"]
    services = Services(
        llms={"answer": ScriptedLLM(script)},
        searcher=open_searcher("sample"),
        look_up_title=lambda title: store.get_many(store.rows_with_title(title)),
    )
    (prediction,) = execute(lambda question: METHOD.run(question, ReactOptions()), [Question("1", "What is Au?")], services)
    assert prediction.error is None
    assert prediction.answer == "aurum"
    steps = prediction.detail["steps"]
    assert gold.text.startswith(steps[0]["observation"][:40])
    assert steps[1]["observation"].startswith("(Result 1 / ")
    assert [one.title for one in prediction.passages] == ["Gold", "Iron"]
    assert prediction.cost.searches == 1
