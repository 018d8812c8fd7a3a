"""Replaced prompts, prompt sets of the package, and demonstrations from training questions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import StandInSearcher, stand_in_llm
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import Message, prompt_text
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.methods.prompt_sets import PromptFile, hash_prompts, list_prompts, prompt_sets, read_prompt_set, with_prompts
from wikidx.runtimes.methods.templates import load_template, prompt_hashes
from wikidx.runtimes.questions import Question

FIVE = passages("one", "two", "three", "four", "five")


def folder(path: Path, **files: str) -> str:
    """Write files, whose names have "__" for a full stop, into a folder."""
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return str(path)


def run(name: str, files: Mapping[str, str], canned: Any, drawn: Any = (), **values: Any) -> Driven:  # noqa: ANN401
    method = with_prompts(find_method(name), files, drawn)
    return drive(method.run("Who?", method.options(**values)), canned)


def test_a_folder_replaces_prompts_and_demonstrations_and_leaves_the_others(tmp_path: Path) -> None:
    shot = {"question": "S?", "answers": "1. x", "passages": "p", "output": "the shot"}
    texts = {
        "refine_answer__shots__jsonl": f'{{"origin": "a figure"}}\n{json.dumps(shot)}\n',
        "initial_answer__txt": "[user]\nMine: {question}",
    }
    files = read_prompt_set("refeed", folder(tmp_path / "mine", **texts))
    driven = run("refeed", files, ["Ada", FIVE, "Ada"], diverse=False, ensemble=False, shots=1)
    initial, refine = driven.prompts("answer")
    assert initial.endswith("Mine: Who?")
    assert "Finlandia" in initial  # a demonstration of the form of answers
    assert "S?" in refine
    assert "the shot" in refine
    assert {prompt for prompt in list_prompts(with_prompts(find_method("refeed"), files)) if prompt.origin != "ours"} == {
        PromptFile("initial_answer.txt", ""),
        PromptFile("refine_answer.shots.jsonl", "a figure", 1),
    }


def test_replaced_prompts_hold_in_all_branches_of_one_run_and_nowhere_else(tmp_path: Path) -> None:
    """Two runs with prompts of their own take turns."""
    methods = dict[str, Method]()
    for name in ("one", "two"):
        files = read_prompt_set("ra_isf", folder(tmp_path / name, relevance__txt=f"[user]\n{name}: {{passage}} {{question}}"))
        methods[name] = with_prompts(find_method("ra_isf"), files)
    own = load_template("ra_isf", "relevance")
    options = find_method("ra_isf").options(know=False, max_query_tokens=0)
    services = Services(llms=dict.fromkeys(find_method("ra_isf").roles, stand_in_llm("no")), searcher=StandInSearcher())
    asked = [Question(name, name) for name in methods]
    for prediction in execute(lambda name: methods[name].run(name, options), asked, services):
        judged = [step.request for step in prediction.steps if isinstance(step.request, Generate) and step.request.role == "relevance"]
        assert len(judged) >= 5
        assert all(prompt_text(call.prompt).startswith(f"{prediction.id}: <title") for call in judged)
    assert load_template("ra_isf", "relevance") is own


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"answer__txt": "[user]\nNothing"}, "answer.txt: the placeholder {passages} is missing"),
        ({"answer__txt": "[user]\n{passages} {question} {title}"}, r"answer.txt: the placeholder {title} is unknown; it can have {"),
        ({"answer__txt": "Question: {question}"}, "answer.txt: a prompt begins with [system], [user] or [assistant], not with 'Question:"),
        (
            {"answer__shots__jsonl": '{"question": "q", "output": "a"}'},
            "demonstration 1 of answer.shots.jsonl needs a text for each of output, ",
        ),
        (
            {"answer__shots__jsonl": '{"question": "q", "passages": 1, "output": "a"}'},
            "needs a text for each of output, passages, question",
        ),
        ({"answer__shots__jsonl": "{"}, "answer.shots.jsonl: Expecting"),
        ({}, "has no prompts: give it files such as answer.txt"),
    ],
)
def test_a_prompt_that_does_not_suit_is_refused_in_one_line(files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_prompt_set("rag", folder(tmp_path / "mine", **files))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_prompt_without_its_place_in_the_method_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown prompt of 'rag' 'answers.txt': did you mean 'answer.txt'"):
        read_prompt_set("rag", folder(tmp_path / "mine", answers__txt="[user]\nx"))
    with pytest.raises(InputError, match="there is no folder papr with prompts for 'ra_isf', and its prompt sets are paper"):
        read_prompt_set("ra_isf", "papr")
    (tmp_path / "mine" / "answers.txt").unlink()
    (tmp_path / "mine" / "answer.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="answer.txt is not UTF-8"):
        read_prompt_set("rag", str(tmp_path / "mine"))


def test_the_fields_of_a_trajectory_can_be_described_anew(tmp_path: Path) -> None:
    own = json.loads((Path(load_template.__code__.co_filename).parent / "prompts/self_reasoning/fields.json").read_text(encoding="utf-8"))
    own["common"]["relevant"]["description"] = "MY WORDS"
    files = read_prompt_set("self_reasoning", folder(tmp_path / "mine", fields__json=json.dumps(own)))
    answer = '{"relevant": true, "relevant_reason": "r", "cite_list": [], "analysis": "a", "answer": "Ada"}'
    assert "MY WORDS" in run("self_reasoning", files, [FIVE, answer]).prompts("answer")[0]
    del own["common"]["relevant"]
    with pytest.raises(InputError, match="it has other names than the fields.json of 'self_reasoning'"):
        read_prompt_set("self_reasoning", folder(tmp_path / "mine", fields__json=json.dumps(own)))


def test_ra_isf_asks_by_the_paper_s_criteria() -> None:
    """Appendix E: known or not; relevant and sufficient; sub-questions; answers from paragraphs or from sub-answers."""
    files = read_prompt_set("ra_isf", "paper")
    driven = run("ra_isf", files, ["No.", FIVE, "No.", "1. a?", "Yes.", "b", "Ada"], relevance="joint", form="sentence")
    (know, _), (relevance,), (decompose,) = driven.prompts("know"), driven.prompts("relevance"), driven.prompts("decompose")
    assert "yes if you know" in know
    assert "sure" not in know
    assert "relevant to the question and sufficient to answer it" in relevance
    assert "sub-questions" in decompose
    assert "1. a?\nAnswer: b" in driven.prompts("answer")[1]
    assert driven.answer.text == "Ada"
    assert all(call.prompt[0].role == "user" and len(call.prompt) == 1 for call in driven.requests if isinstance(call, Generate))  # type: ignore[union-attr]


def test_retrorag_answers_in_the_form_of_metarag() -> None:
    """Four demonstrations of a reference, a question and a reasoned answer in JSON."""
    assert prompt_sets("retrorag") == ["metarag"]
    files = read_prompt_set("retrorag", "metarag")
    found = '{"reason": "r", "answer": "Ada"}'
    driven = run("retrorag", files, [FIVE[:1], 0.9, found, "Ada", '{"judgement": "correct"}', 0.9])
    call = driven.requests[2]
    assert isinstance(call, Generate)
    roles = [turn.role for turn in call.prompt if isinstance(turn, Message)]
    assert roles == ["system", *["user", "assistant"] * 4, "user"]
    for turn in call.prompt[2:-1:2]:
        assert isinstance(turn, Message)
        assert set(json.loads(turn.content)) == {"reason", "answer"}
    assert "4. redundant." in driven.prompts("assessor")[0]


def test_prompts_of_the_methods_that_a_method_runs_lie_in_folders_of_their_names(tmp_path: Path) -> None:
    folder(tmp_path / "mine", need__txt="[user]\nNeed: {question}")
    folder(tmp_path / "mine" / "cot", answer__txt="[user]\nThink: {question}")
    skr = find_method("skr")
    files = read_prompt_set("skr", str(tmp_path / "mine"), skr.parts)
    driven = run("skr", files, [0.1, "Because.\nAnswer: Ada"], elicit="prompt", shots=0)
    assert driven.prompts("knowledge") == ["Need: Who?"]
    assert driven.prompts("answer") == ["Think: Who?"]
    method = with_prompts(skr, files)
    own, now = hash_prompts(skr, "none"), hash_prompts(method, "none")
    assert {name for name, digest in now.items() if own[name] != digest} == {"cot/answer.txt", "skr/need.txt"}
    assert {prompt.name for prompt in list_prompts(method)} >= {"need.txt", "cot/answer.txt", "iter_retgen/answer.txt", "rag/answer.txt"}
    (tmp_path / "mine" / "cot" / "answer.txt").write_text("[user]\nThink.")
    with pytest.raises(InputError, match=r"mine/cot/answer.txt: the placeholder {question} is missing"):
        read_prompt_set("skr", str(tmp_path / "mine"), skr.parts)
    (tmp_path / "mine" / "rga").mkdir()
    with pytest.raises(UnknownNameError, match="unknown part of 'skr' 'rga': did you mean 'rag'"):
        read_prompt_set("skr", str(tmp_path / "mine"), skr.parts)


DRAWN = [("A?", "a"), ("B?", "b"), ("C?", "c")]


def test_drawn_demonstrations_have_the_passages_of_their_own_searches() -> None:
    driven = run("rag", {}, [FIVE[:1], FIVE[1:2], FIVE[2:3], FIVE[3:], "Ada"], DRAWN, shots=2, k=4)
    assert driven.queries == [("A?",), ("B?",), ("C?",), ("Who?",)]
    assert {request.path for request in driven.levels[0]} == {("demonstrations",)}
    call = driven.requests[-1]
    assert isinstance(call, Generate)
    shown = [turn.content for turn in call.prompt[1:] if isinstance(turn, Message)]
    assert [text.partition("\n\nQuestion: ")[2].partition("\n")[0] for text in shown[::2]] == ["A?", "B?", "Who?"]
    assert "[1] T1\none" in shown[0]
    assert "[1] T2\ntwo" in shown[2]
    assert shown[1::2] == ["a", "b"]


@pytest.mark.parametrize(("name", "replies"), [("recomp", ["a summary"]), ("crag", [[-1.0]])])
def test_demonstrations_of_compressed_passages_have_none(name: str, replies: list[Any]) -> None:
    """As RECOMP shows them (section 4.2), drawn or not."""
    for drawn, first in ((DRAWN, "A?"), ((), "Finlandia")):
        driven = run(name, {}, [FIVE[:1], *replies, "Ada"], drawn, shots=2)
        assert driven.queries == [("Who?",)]
        call = driven.requests[-1]
        assert isinstance(call, Generate)
        turns = [turn.content for turn in call.prompt[1:] if isinstance(turn, Message)]
        assert len(turns) == 5
        assert first in turns[0]
        assert [turn.startswith("Question: ") for turn in turns[:4:2]] == [True, True]


def test_prompts_that_a_question_and_answer_do_not_demonstrate_keep_their_own() -> None:
    driven = run("refeed", {}, ["Ada", FIVE, "Ada"], DRAWN * 3, shots=8, diverse=False, ensemble=False)
    sizes = [len(call.prompt) for call in driven.requests if isinstance(call, Generate) and isinstance(call.prompt, tuple)]
    assert sizes == [1 + 2 * 8 + 1, 1 + 2 * 6 + 1]
    known = run("ra_isf", {}, [*[FIVE[:1]] * 3, "yes", "Ada"], DRAWN, shots=3, form="yes_no")
    assert "Question: B?\nReply with one word, yes or no." in known.prompts("answer")[0]


def test_no_question_is_its_own_demonstration() -> None:
    driven = run("direct", {}, ["Ada"], [("A?", "a"), (" who? ", "GOLD")], shots=2)
    assert "GOLD" not in driven.prompts("answer")[0]
    assert "A?" in driven.prompts("answer")[0]


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("react", {}, r"a question with its answer demonstrates no prompt; write files \*.shots.jsonl instead"),
        ("refeed", {"output": "cot", "shots": 1}, "a question with its answer demonstrates no prompt"),
        ("direct", {"shots": 0}, "the option 'shots' is 0"),
    ],
)
def test_demonstrations_that_would_not_be_shown_are_refused(name: str, values: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=f"demonstrations are drawn for '{name}', but {reason}"):
        run(name, {}, [], DRAWN, **values)


def test_checksums_cover_what_is_replaced_and_drawn() -> None:
    own = prompt_hashes(["rag"])
    replaced = with_prompts(find_method("rag"), {"rag/answer.txt": "[user]\n{question} {passages}"}).prompts
    assert {name for name, value in prompt_hashes(["rag"], replaced).items() if own[name] != value} == {"rag/answer.txt"}
    first, second = (with_prompts(find_method("rag"), {}, drawn).prompts for drawn in (DRAWN, DRAWN[:2]))
    assert prompt_hashes(["rag"], first) != prompt_hashes(["rag"], second)
    assert set(prompt_hashes(["rag"], first)) - set(own) == {"drawn demonstrations"}
