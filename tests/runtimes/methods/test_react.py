"""ReAct: actions as models write them, and pages of a built corpus. What is asked, in order, stands in ``transcripts/``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive
from wikidx.corpora.build import open_store
from wikidx.retrievers.opening import open_searcher
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.methods.react import METHOD, ReactOptions, react
from wikidx.runtimes.questions import Question


def run(canned: list[Any], **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(react("Which sea?", ReactOptions(shots=0, **values)), canned)


@pytest.mark.parametrize(
    ("text", "action", "answer"),
    [
        ("**Thought 1:** a\n**Action 1:** Finish[z]", "Finish[z]", "z"),
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
    (step,) = driven.answer.detail["steps"]
    assert (driven.answer.text, step["action"], step["thought"]) == (answer, action, "a")


@pytest.mark.parametrize("action", ["", "Search", 'Search[" "]', "Lookup[ ]", "Finish[]", "Think[hard]", "dig for it"])
def test_what_is_no_action_is_said_to_be_none(action: str) -> None:
    driven = run([f"a\nAction 1: {action}", "b\nAction 2: Finish[z]"])
    assert driven.answer.detail["steps"][0]["observation"] == f"Invalid action: {action}".strip()
    assert (driven.answer.text, driven.answer.detail["n_malformed"]) == ("z", 1)


@pytest.mark.parametrize(("text", "answer"), [("Action 3: Finish[Łódź]", "Łódź"), ("Łódź\nand", "Łódź"), ("", ""), ("]", "")])
def test_a_forced_answer_is_read_leniently(text: str, answer: str) -> None:
    assert run(["a\nAction 1: Lookup[x]", text], max_steps=1, at_limit="answer").answer.text == answer


@pytest.mark.usefixtures("sample_home")
def test_pages_of_a_corpus_on_this_machine_are_opened_by_title_and_by_what_is_like_it() -> None:
    store = open_store("sample")
    (gold,) = store.get_many(store.rows_with_title("Gold"))
    script = ["a\nAction 1: Search[gold]", "b\nAction 2: Lookup[gold]", "c\nAction 3: Search[Iron]", "d\nAction 4: Finish[aurum]"]
    services = Services(
        llms={"answer": ScriptedLLM(script)},
        searcher=open_searcher("sample"),
        look_up_title=lambda title: store.get_many(store.rows_with_title(title)),
    )
    (prediction,) = execute(lambda question: METHOD.run(question, ReactOptions()), [Question("1", "What is Au?")], services)
    assert (prediction.error, prediction.answer, prediction.cost.searches) == (None, "aurum", 1)
    steps = prediction.detail["steps"]
    assert gold.text.startswith(steps[0]["observation"][:40])
    assert steps[1]["observation"].startswith("(Result 1 / ")
    assert [one.title for one in prediction.passages] == ["Gold", "Iron"]
