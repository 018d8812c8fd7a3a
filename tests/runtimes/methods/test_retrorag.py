"""RetroRAG, request by request (spec: the rounds of section 3.2, the calls of 3.4, the ablations of 3.5, the open choices of 3.6)."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.runtimes.methods.driving import drive
from tests.runtimes.methods.retrorag_rounds import (
    FIRST,
    FIRST_OUTLINE,
    SECOND,
    SECOND_OUTLINE,
    A,
    B,
    C,
    D,
    Q,
    options,
    reasoned,
    rejected,
    two_rounds,
)
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.rerankers import RERANKERS
from wikidx.runtimes.llms.base import AskYesNo, Generate, JsonSchema
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.requests import Request
from wikidx.runtimes.methods.retrorag import METHOD, RetroRAGOptions, retrorag


def test_an_answer_that_agrees_with_itself_ends_the_first_round() -> None:
    driven = drive(retrorag(Q, options()), [[A, B], 0.2, 0.9, reasoned("r", "Byron"), "Lord Byron", 0.70001])
    assert driven.outline == [["retrieve"], ["evidence?"] * 2, ["answer", "monitor"], ["consistency?"]]
    assert driven.queries == [(Q,)]
    assert driven.answer.text == "Byron"
    assert driven.answer.passages == (B, A)
    assert driven.answer.detail["accepted"] is True
    assert driven.answer.detail["n_rounds"] == 1
    assert driven.answer.detail["parse_ok"] is True


def test_a_score_at_the_threshold_goes_on_and_every_round_makes_the_paper_s_calls_in_the_paper_s_order() -> None:
    driven = two_rounds()
    assert driven.outline == FIRST_OUTLINE + SECOND_OUTLINE
    assert driven.queries == [(Q,), ("Lord Byron daughter",)]
    assert driven.answer.text == "Lord Byron"
    assert driven.answer.passages == (C, A)


def test_source_evidence_is_scored_anew_each_round_with_the_question_and_the_last_query() -> None:
    prompts = two_rounds().prompts("evidence")
    assert [f"Question: {Q}\n" in prompt for prompt in prompts] == [True, True, True, False, False, False]
    assert [f"Question: {Q} Lord Byron daughter\n" in prompt for prompt in prompts] == [False] * 3 + [True] * 3
    assert [next(word for word in ("text A.", "text B.", "text C.", "X is so.") if word in prompt) for prompt in prompts] == [
        *("text A.", "text B.", "X is so."),
        *("text B.", "text A.", "text C."),
    ]


def test_the_answerer_sees_this_round_s_passages_and_the_last_round_s_inferences() -> None:
    driven = two_rounds()
    for role in ("answer", "monitor"):
        first, second = driven.prompts(role)
        assert "[1] Title B\ntext B.\n\n[2] Title A\ntext A." in first
        assert "Inferences:" not in first
        assert "[1] Title C\ntext C.\n\n[2] Title A\ntext A." in second
        assert "Inferences:\n- X is so." in second


def test_the_consistency_prompt_holds_both_answers_and_the_question() -> None:
    first, second = two_rounds().prompts("consistency")
    assert all(part in first for part in (Q, "Byron", "Shelley"))
    assert all(part in second for part in (Q, "Lord Byron", "Byron"))


def test_discovery_infers_about_the_entities_from_the_passages() -> None:
    (prompt,) = two_rounds().prompts("inference")
    assert "Ada Lovelace; Lord Byron" in prompt
    assert "[1] Title B\ntext B.\n\n[2] Title A\ntext A." in prompt


def test_gates_see_the_stored_inferences_and_the_passages_and_share_their_prompts_up_to_the_candidate() -> None:
    driven = drive(
        retrorag(Q, options(max_rounds=3)),
        [
            *FIRST,
            *SECOND[:-1],
            0.1,
            "X is so.\nV is so.",  # the entities are known, and X is stored already: only V is new
            *(0.9, 0.9),
            0.8,  # M_e of V
            "third query",
            [D],
            *(0.5, 0.6, 0.9),
            *(reasoned("r3", "B"), "B"),
            0.9,
        ],
    )
    relevance, attribution = driven.prompts("relevance"), driven.prompts("attribution")
    assert "Known so far:" not in relevance[0]
    assert f"Question: {Q}\n" in relevance[0]
    assert "Known so far:\n- X is so." in relevance[3]
    assert f"Question: {Q} Lord Byron daughter\n" in relevance[3]
    assert "text B.\n\n[2] Title A\ntext A." in attribution[0]
    assert "text C.\n\n[2] Title A\ntext A." in attribution[3]
    for prompts in (relevance[:3], attribution[:3]):
        shared = os.path.commonprefix(prompts)
        assert [prompt[len(shared) :][0] for prompt in prompts] == ["X", "Y", "Z"]
    assert len(driven.prompts("entities")) == 1
    assert driven.answer.passages == (D, A)


def test_the_prompts_that_score_evidence_share_all_but_the_evidence() -> None:
    prompts = two_rounds().prompts("evidence")
    shared = os.path.commonprefix(prompts[:2])
    assert Q in shared
    assert [prompt[len(shared) :] for prompt in prompts[:2]] == ["A\ntext A.\n\nAnswer:", "B\ntext B.\n\nAnswer:"]


def test_inferences_are_kept_by_score_for_the_original_question_and_scored_once() -> None:
    driven = drive(
        retrorag(Q, options(n_inferred=2, max_rounds=3)),
        [
            *FIRST[:11],
            *(0.9, 0.9, 0.9),  # M_ra: X and Y pass, Z falls at M_qr
            *(0.3, 0.4),  # M_e of X and Y
            "second query",
            [C],
            *(0.1, 0.6, 0.8),
            *(reasoned("r2", "?"), "!"),
            0.1,
            "W is so.",
            *(0.9, 0.9),
            0.35,  # between Y and X
            "third query",
            [D],
            *(0.5, 0.6, 0.9),
            *(reasoned("r3", "B"), "B"),
            0.9,
        ],
    )
    assert [prompt.count("is so.") for prompt in driven.prompts("answer")] == [0, 2, 2]
    assert "- Y is so.\n- W is so." in driven.prompts("answer")[2]
    about_inferences = [prompt for prompt in driven.prompts("evidence") if "is so." in prompt]
    assert len(about_inferences) == 3
    assert all(f"Question: {Q}\n" in prompt for prompt in about_inferences)


def test_an_inference_that_was_crowded_out_and_comes_again_has_its_old_score() -> None:
    driven = drive(
        retrorag(Q, options(n_inferred=1, max_rounds=3)),
        [
            *FIRST[:11],
            *(0.9, 0.9, 0.9),  # X and Y pass
            *(0.3, 0.4),  # Y crowds X out
            "second query",
            [C],
            *(0.1, 0.6, 0.8),
            *(reasoned("r2", "?"), "!"),
            0.1,
            "X is so.",
            *(0.9, 0.9),  # the gates depend on the round, the score does not
            "third query",
            [D],
            *(0.5, 0.6, 0.9),
            *(reasoned("r3", "B"), "B"),
            0.9,
        ],
    )
    assert [round_.get("inferred") for round_ in driven.answer.detail["rounds"]] == [[{"text": "Y is so.", "score": 0.4}]] * 2 + [None]


def test_the_next_query_is_asked_for_with_the_new_inferences_and_the_last_reason() -> None:
    (prompt,) = two_rounds().prompts("query")
    assert all(part in prompt for part in (Q, "text A.", "text B.", "- X is so.", "r1"))


def test_decoding_is_the_paper_s() -> None:
    driven = two_rounds()
    by_role = {call.role: call.decoding for call in driven.requests if isinstance(call, Generate)}
    assert {role: decoding.temperature for role, decoding in by_role.items()} == {
        **{"answer": 0.01, "monitor": 1.0},
        **{"entities": 0.01, "inference": 0.01, "query": 0.01},
    }
    schemas = {call.role: call.schema for call in driven.requests if isinstance(call, Generate)}
    assert isinstance(schemas["answer"], JsonSchema)
    assert list(json.loads(schemas["answer"].text)["properties"]) == ["reason", "answer"]


def test_the_last_round_answers_without_discovery() -> None:
    driven = drive(retrorag(Q, options(max_rounds=1)), [[A, B], 0.2, 0.9, reasoned("r", "Byron"), "Shelley", 0.1])
    assert driven.outline[-1] == ["consistency?"]
    assert driven.answer.text == "Byron"
    assert driven.answer.detail["accepted"] is False


def test_the_answer_at_the_budget_s_end_is_the_last_or_the_most_consistent() -> None:
    canned = [[A], 0.9, *rejected("one", 0.6), "e", "", "query two", [B], 0.9, 0.9, *rejected("two", 0.3)]
    assert drive(retrorag(Q, options(max_rounds=2)), canned).answer[:2] == ("two", (A, B))
    assert drive(retrorag(Q, options(max_rounds=2, at_budget="best")), canned).answer[:2] == ("one", (A,))


def test_five_rounds_by_default_with_five_of_everything() -> None:
    found = iter([[Passage(f"{round_}-{place}", "T", f"text {round_} {place}") for place in range(5)] for round_ in range(5)])

    def canned(request: Request) -> object:
        if isinstance(request, AskYesNo):
            return {"evidence": 0.5, "relevance": 0.9, "attribution": 0.9, "consistency": 0.5}[request.role]
        if isinstance(request, Generate):
            number = sum(1 for text in counted if text == request.role)
            counted.append(request.role)
            return {
                "answer": reasoned("r", f"answer {number}"),
                "inference": "\n".join(f"Inference {number} {item}" for item in range(4)),
                "query": f"query {number}",
            }.get(request.role, "text")
        return next(found)

    counted: list[str] = []
    driven = drive(retrorag(Q, RetroRAGOptions()), canned)
    assert driven.answer.text == "answer 4"
    assert driven.answer.detail["n_rounds"] == 5
    assert len(driven.queries) == 5
    assert {request.k for request in driven.requests if hasattr(request, "k")} == {5}
    scored = [len(level) for level in driven.outline if set(level) == {"evidence?"}]
    assert scored == [5, 4, 10, 4, 10, 4, 10, 4, 10]
    assert [prompt.count("Inference ") for prompt in driven.prompts("answer")] == [0, 4, 5, 5, 5]
    assert driven.answer.passages == tuple(Passage(f"0-{place}", "T", f"text 0 {place}") for place in range(5))  # ties: the older


# --- ablations (section 3.5)


def test_without_answer_evaluation_every_round_is_run_and_nothing_is_compared() -> None:
    canned = [[A], 0.9, reasoned("r", "one"), "e", "", "query two", [B], 0.9, 0.9, reasoned("r", "two")]
    driven = drive(retrorag(Q, options(answer_evaluation=False, max_rounds=2)), canned)
    assert driven.outline == [
        *(["retrieve"], ["evidence?"], ["answer"], ["entities"], ["inference"], ["query"]),
        *(["retrieve"], ["evidence?"] * 2, ["answer"]),
    ]
    assert driven.answer.text == "two"


def test_without_ellery_the_answerer_answers_once_from_nothing() -> None:
    driven = drive(retrorag(Q, options(ellery=False)), [reasoned("r", "Byron")])
    assert driven.outline == [["answer"]]
    assert "Passages:" not in driven.prompts("answer")[0]
    assert driven.answer.text == "Byron"
    assert driven.answer.passages == ()


def test_without_source_evidence_the_answerer_sees_inferences_alone() -> None:
    driven = drive(retrorag(Q, options(source_evidence=False)), [*FIRST, *SECOND])
    assert driven.outline == FIRST_OUTLINE + SECOND_OUTLINE
    for role in ("answer", "monitor"):
        assert all("text " not in prompt for prompt in driven.prompts(role))
    assert "- X is so." in driven.prompts("answer")[1]
    assert "text A." in driven.prompts("inference")[0]
    assert "text A." in driven.prompts("query")[0]


def test_without_inferential_evidence_nothing_is_inferred() -> None:
    driven = drive(
        retrorag(Q, options(inferential_evidence=False)),
        [[A, B], 0.2, 0.9, reasoned("r", "Byron"), "Shelley", 0.1, "query two", *SECOND],
    )
    assert driven.outline == [*FIRST_OUTLINE[:4], ["query"], *SECOND_OUTLINE]
    assert "Inferences:" not in driven.prompts("answer")[1]


def test_without_updating_evidence_grows_or_stays_as_it_first_was() -> None:
    def canned(n_rounds: int) -> list[Any]:
        rounds = [
            [[A, B], *rejected("one", 0.1), "e", "X is so.\nY is so.", *(0.9, 0.9, 0.9, 0.9), "query two"],
            [[B, C], *rejected("two", 0.1), "W is so.", *(0.9, 0.9), "query three"],
            [[D], *rejected("three", 0.9)],
        ]
        return [result for round_ in rounds[:n_rounds] for result in round_]

    grown = drive(retrorag(Q, options(update_evidence=False)), canned(3))
    assert "evidence?" not in {kind for level in grown.outline for kind in level}
    assert grown.answer.passages == (A, B, C, D)
    assert "- X is so.\n- Y is so.\n- W is so." in grown.prompts("answer")[2]


def test_without_evaluation_every_inference_goes_through() -> None:
    driven = drive(retrorag(Q, options(evaluate_evidence=False)), [*FIRST[:-8], *(0.3, 0.4, 0.2), "Lord Byron daughter", *SECOND])
    assert driven.outline == [*FIRST_OUTLINE[:6], ["evidence?"] * 3, ["query"], *SECOND_OUTLINE]
    assert "- Y is so.\n- X is so." in driven.prompts("answer")[1]


# --- what is recorded


def test_the_detail_tells_every_round_and_is_json() -> None:
    detail = two_rounds().answer.detail
    assert json.loads(json.dumps(detail)) == detail
    assert detail["entities"] == "Ada Lovelace; Lord Byron"
    assert detail["rounds"][0] == {
        "query": Q,
        "source": [{"id": "b", "score": 0.9}, {"id": "a", "score": 0.2}],
        "reason": "r1",
        "answer": "Byron",
        "parse_ok": True,
        "monitor": "Shelley",
        "consistency": 0.7,
        "candidates": [
            {"text": "X is so.", "relevance": 0.9, "attribution": 0.8, "kept": True},
            {"text": "Y is so.", "relevance": 0.6, "attribution": 0.5, "kept": False},
            {"text": "Z is so.", "relevance": 0.4, "attribution": 0.9, "kept": False},
        ],
        "inferred": [{"text": "X is so.", "score": 0.3}],
        "next_query": "Lord Byron daughter",
    }
    assert detail["rounds"][1]["consistency"] == 0.71
    assert "next_query" not in detail["rounds"][1]
    assert (detail["n_rounds"], detail["accepted"], detail["parse_ok"]) == (2, True, True)


def test_rounds_are_named_in_the_trace() -> None:
    assert {request.path[0] for request in two_rounds().requests} == {"round 1", "round 2"}


def test_defaults_and_their_origins() -> None:
    stated = {option.name: option.value for option in list_options(RetroRAGOptions()) if option.origin == "paper"}
    assert stated == {
        **{"k": 5, "n_source": 5, "n_inferred": 5, "max_rounds": 5, "threshold": 0.7, "gate": 0.5},
        **{"temperature": 0.01, "monitor_temperature": 1.0},
        **{"answer_evaluation": True, "ellery": True, "source_evidence": True, "inferential_evidence": True},
        **{"update_evidence": True, "evaluate_evidence": True, "repeated_query": "search"},
    }


@pytest.mark.parametrize("name", ["k", "n_source", "n_inferred", "max_rounds"])
def test_a_size_below_one_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 0: it should be greater than or equal to 1"):
        options(**{name: 0})


def test_the_preset_searches_as_the_paper_did() -> None:
    preset = METHOD.presets["default"]
    assert (preset.corpus, preset.retriever) == ("wiki2018", "bm25")
    search = SearchOptions(**preset.search)
    assert (search.depth, search.rerank, search.rerank_depth) == (100, "cross-encoder", 100)
    assert "simlm" in RERANKERS
    assert METHOD.roles[0] == "answer"


def test_every_role_is_declared() -> None:
    asked = {call.role for call in two_rounds().requests if isinstance(call, Generate | AskYesNo)}
    assert asked | {"assessor"} == set(METHOD.roles)
