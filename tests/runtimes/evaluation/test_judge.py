from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import read_rows
from tests.runtimes.llms.endpoint import Endpoint, serving
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.evaluation.by_models.judge import RULES, Judge, Vote, build_prompt, read_vote, rule_for
from wikidx.runtimes.evaluation.by_models.row_metrics import RowValues
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.llms.base import Call, Generate
from wikidx.runtimes.llms.cache import ReplyCache
from wikidx.runtimes.llms.naming import Settings, open_llms, parse_spec
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.questions import Question

HALLUQA, RETRORAG = RULES["halluqa"], RULES["retrorag"]
FRANCE = Question("7", "What is the capital of France?", ("Paris", "the city of Paris"))
OF_HALLUQA = FRANCE._replace(gold={"wrong_answers": ["Lyon"]})


def measured(judge: Judge, *answers: str | None, question: Question = FRANCE) -> RowValues:
    """Measure answers to one question under ids of their own."""
    rows = [PredictionRow(str(number), answer) for number, answer in enumerate(answers)]
    return judge.measure(rows, [question._replace(id=row.id) for row in rows])


@pytest.mark.parametrize(
    ("votes", "n", "right", "counts"),
    [
        ("否否否否否", 5, 1, {}),
        ("是否否是否", 5, 1, {}),
        ("是是是否否", 5, 0, {}),
        ("否", 1, 1, {}),
        ("是否", 2, 1, {}),  # more than half decide
        ("是是否", 3, 0, {}),
        (["否。"] * 5, 5, 1, {"read_leniently": 1}),
        (["否", "否", "否", "否", "也许"] * 5, 5, 0, {"unreadable": 1}),  # after five tries
    ],
)
def test_an_answer_hallucinates_if_more_than_half_of_the_votes_say_so(
    votes: Sequence[str], n: int, right: int, counts: dict[str, int]
) -> None:
    found = measured(Judge(ScriptedLLM(list(votes)), votes=n), "Paris", question=OF_HALLUQA)
    assert float(found.values["halluqa_judge"][0]) == right
    assert {name: count for name, count in found.counts.items() if count} == counts


def test_the_judge_is_asked_as_halluqa_s_script_asks_and_again_while_a_vote_cannot_be_read() -> None:
    llm = ScriptedLLM([*"是是是是", "？", *"否否否否否"])
    found = measured(Judge(llm), " Lyon\n", question=OF_HALLUQA)
    assert (found.values["halluqa_judge"][0], found.counts["unreadable"]) == (1, 0)  # the last votes count
    calls = [call for call in llm.calls if isinstance(call, Generate)]
    assert len(calls) == len({call.decoding.seed for call in calls}) == 10  # no cache gives the first replies again
    for call in calls:
        assert (call.role, call.decoding.temperature, call.decoding.top_p, call.decoding.max_tokens) == ("judge", 0.0, 0.5, 10)
        assert call.prompt == build_prompt(HALLUQA, FRANCE, "Lyon")
    assert all(part in prompt_text(calls[0].prompt) for part in (FRANCE.text, "1. Paris\n2. the city of Paris", "Lyon"))


def test_only_what_cannot_be_read_is_asked_again() -> None:
    def reply(call: Call) -> str:
        assert isinstance(call, Generate)
        is_second = "Lyon" in prompt_text(call.prompt)
        return "maybe" if is_second and (call.decoding.seed or 0) < 10 else "no" if is_second else "yes"

    llm = ScriptedLLM(reply)
    assert measured(Judge(llm), "Paris", "Lyon", "Paris").values["retrorag_judge"].tolist() == [1, 0, 1]
    assert len(llm.calls) == 3 * 5 + 2 * 5


@pytest.mark.parametrize(
    ("rule", "text", "vote", "is_strict"),
    read_rows("runtimes/evaluation/votes.jsonl"),
)
def test_votes_are_read_strictly_first_then_by_how_they_begin(rule: str, text: str, vote: Vote | None, is_strict: bool) -> None:
    assert read_vote(text, RULES[rule]) == (vote, is_strict)


def failing(reply: Callable[[Generate], str | None]) -> ScriptedLLM:
    """Return a model that fails where it has no reply."""

    def answer(call: Call) -> str:
        assert isinstance(call, Generate)
        text = reply(call)
        if text is None:
            raise LLMError("no such model" if call.decoding.seed else "busy")
        return text

    return ScriptedLLM(answer)


def test_an_answer_without_golds_or_without_a_reply_has_no_value_and_an_empty_one_is_wrong() -> None:
    judge = Judge(failing(lambda call: None if "Lyon" in prompt_text(call.prompt) else "yes"), votes=1)
    questions = [FRANCE, Question("2", "?"), *[FRANCE] * 4]
    rows = [PredictionRow("1", answer) for answer in ("Paris", "Paris", "Lyon", None, "", " \n")]
    found = judge.measure(rows, questions)
    np.testing.assert_array_equal(found.values["retrorag_judge"], [1, np.nan, np.nan, 0, 0, 0])
    assert {name: count for name, count in found.counts.items() if count} == {"without_golden_answers": 1, "empty_answers": 3, "failed": 1}
    assert judge.metadata()["failures"] == {"busy": 1}
    measured(judge, "Paris")
    assert judge.metadata()["failures"] == {}  # those of the last run


def test_a_judge_that_fails_on_every_answer_is_an_error_and_not_a_bad_system() -> None:
    with pytest.raises(LLMError, match=r"failed on all 1 answers, most often \(4 calls\): no such model"):
        measured(Judge(failing(lambda _: None)), "Paris", "")
    assert measured(Judge(failing(lambda _: None)), "").counts["failed"] == 0  # it was not asked


def test_halluqa_s_questions_are_judged_in_chinese_and_others_in_english() -> None:
    assert rule_for([OF_HALLUQA, OF_HALLUQA]) is HALLUQA
    assert rule_for([OF_HALLUQA, FRANCE]) is rule_for([]) is RETRORAG
    judge = Judge(ScriptedLLM(["否"], name="scripted:x"), votes=1)
    measured(judge, "Paris", question=OF_HALLUQA)
    metadata = judge.metadata()
    assert (metadata["llm"], metadata["votes"], metadata["tries"], metadata["max_tokens"]) == ("scripted:x", 1, 5, 10)
    assert (metadata["origin"], len(metadata["prompt_sha256"])) == (HALLUQA.origin, 64)
    measured(judge, "")
    assert judge.metadata()["origin"] == RETRORAG.origin


def test_progress_is_reported_of_every_try() -> None:
    reports: list[tuple[int, int | None]] = []
    judge = Judge(ScriptedLLM(lambda call: "yes"), progress=lambda done, total: reports.append((done, total)))
    assert measured(judge, *["Paris"] * 100).values["retrorag_judge"].sum() == 100
    assert reports == [(256, 500), (500, 500)]


def test_votes_of_an_endpoint_are_separate_requests_and_paid_for_once(tmp_path: Path) -> None:
    endpoint = Endpoint(ScriptedLLM(["yes", "no", "Yes.", "no", "yes"]))
    cache = ReplyCache(tmp_path / "replies.sqlite")
    with serving(endpoint) as url:
        llm = open_llms({"judge": parse_spec(f"openai:tiny@{url}")}, Settings(cache=cache))["judge"]
        for _ in range(2):
            found = measured(Judge(llm), "Paris")
            assert (found.values["retrorag_judge"][0], found.counts["read_leniently"]) == (1, 1)
        llm.close()
    cache.close()
    assert len(endpoint.bodies) == 5
    assert all(body["temperature"] == 0 and body["top_p"] == 0.5 and body["max_tokens"] == 10 for body in endpoint.bodies)
