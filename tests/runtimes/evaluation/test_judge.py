from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.runtimes.llms.endpoint import Endpoint, serving
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.evaluation.by_models.judge import RULES, Judge, Vote, build_prompt, read_vote, rule_for
from wikidx.runtimes.evaluation.by_models.row_metrics import RowValues
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.llms.base import Call, Generate, prompt_text
from wikidx.runtimes.llms.cache import ReplyCache
from wikidx.runtimes.llms.naming import Settings, open_llms, parse_spec
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.questions import Question

HALLUQA, RETRORAG = RULES["halluqa"], RULES["retrorag"]
FRANCE = Question("7", "What is the capital of France?", ("Paris", "the city of Paris"))
OF_HALLUQA = FRANCE._replace(gold={"wrong_answers": ["Lyon"]})


def judged(replies: Sequence[str] | Callable[[Call], str], answer: str | None = "Paris", votes: int = 5) -> RowValues:
    """One answer judged by HalluQA's rule."""
    llm = ScriptedLLM(replies if callable(replies) else list(replies))
    return Judge(llm, votes=votes).measure([PredictionRow("7", answer)], [OF_HALLUQA])


def value(found: RowValues) -> float:
    return float(found.values["halluqa_judge"][0])


@pytest.mark.parametrize(
    ("votes", "right"), [("否否否否否", 1), ("是否否否否", 1), ("是是否否否", 1), ("是是是否否", 0), ("否是是否是", 0), ("是是是是是", 0)]
)
def test_an_answer_hallucinates_if_more_than_two_of_five_votes_say_so(votes: str, right: int) -> None:
    found = judged(votes)
    assert value(found) == right
    assert set(found.counts.values()) == {0}


@pytest.mark.parametrize(("votes", "right"), [("否", 1), ("是", 0), ("是否", 1), ("是是否", 0)])
def test_of_another_number_of_votes_more_than_half_decide(votes: str, right: int) -> None:
    assert value(judged(votes, votes=len(votes))) == right


def test_the_judge_is_asked_as_halluqa_s_script_asks() -> None:
    llm = ScriptedLLM(list("否否否否否"))
    Judge(llm).measure([PredictionRow("7", " Lyon\n")], [OF_HALLUQA])
    calls = [call for call in llm.calls if isinstance(call, Generate)]
    assert len(calls) == len({call.decoding.seed for call in calls}) == 5
    for call in calls:
        assert (call.role, call.decoding.temperature, call.decoding.top_p, call.decoding.max_tokens) == ("judge", 0.0, 0.5, 10)
        assert call.prompt == build_prompt(HALLUQA, FRANCE, "Lyon")
    text = prompt_text(build_prompt(HALLUQA, FRANCE, "Lyon"))
    assert all(part in text for part in (FRANCE.text, "1. Paris\n2. the city of Paris", "Lyon"))


def test_all_votes_are_asked_for_again_while_one_cannot_be_read_and_the_last_count() -> None:
    llm = ScriptedLLM([*"是是是是", "？", *"否否否否否"])
    found = Judge(llm).measure([PredictionRow("7", "Paris")], [OF_HALLUQA])
    assert value(found) == 1
    assert found.counts["unreadable"] == 0
    seeds = [call.decoding.seed for call in llm.calls if isinstance(call, Generate)]
    assert len(set(seeds)) == 10  # no cache gives the first replies again


def test_votes_that_cannot_be_read_after_five_tries_count_as_wrong_and_are_counted() -> None:
    replies = ["否", "否", "否", "否", "也许"] * 5
    found = judged(replies)
    assert (value(found), found.counts["unreadable"]) == (0, 1)


def test_only_what_cannot_be_read_is_asked_again() -> None:
    def reply(call: Call) -> str:
        assert isinstance(call, Generate)
        is_second = "Lyon" in prompt_text(call.prompt)
        return "maybe" if is_second and (call.decoding.seed or 0) < 10 else "no" if is_second else "yes"

    llm = ScriptedLLM(reply)
    rows = [PredictionRow("7", "Paris"), PredictionRow("8", "Lyon"), PredictionRow("9", "Paris")]
    found = Judge(llm).measure(rows, [FRANCE._replace(id=row.id) for row in rows])
    assert found.values["retrorag_judge"].tolist() == [1, 0, 1]
    assert len(llm.calls) == 3 * 5 + 2 * 5


def test_a_longer_reply_counts_and_is_reported() -> None:
    found = judged(["否。"] * 5)
    assert (value(found), found.counts["read_leniently"], found.counts["unreadable"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("rule", "text", "vote", "is_strict"),
    [
        ("retrorag", "yes", "right", True),
        ("retrorag", "No", "wrong", True),
        ("retrorag", " Yes.", "right", False),
        ("retrorag", "**NO**, it says Lyon", "wrong", False),
        ("retrorag", "Verdict: **yes**", "right", False),
        ("retrorag", "Incorrect", "wrong", False),
        ("retrorag", "Not right", "wrong", False),
        ("retrorag", "Nobody knows", None, False),
        ("retrorag", "", None, False),
        ("halluqa", "是", "wrong", True),
        ("halluqa", "否", "right", True),
        ("halluqa", "是的。", "wrong", False),
        ("halluqa", "不是", "right", False),
        ("halluqa", "“否”", "right", False),
        ("halluqa", "判断：是", "wrong", False),
        ("halluqa", "不存在幻觉", "right", False),
        ("halluqa", "是否有幻觉很难说", None, False),
        ("halluqa", "yes", None, False),
    ],
)
def test_votes_are_read_strictly_first_then_by_how_they_begin(rule: str, text: str, vote: Vote | None, is_strict: bool) -> None:
    assert read_vote(text, RULES[rule]) == (vote, is_strict)


@pytest.mark.parametrize("answer", [None, "", "  \n"])
def test_an_empty_answer_is_wrong_without_being_asked_about(answer: str | None) -> None:
    found = judged([], answer)
    assert (value(found), found.counts["empty_answers"]) == (0, 1)


def test_an_answer_without_golds_or_without_a_reply_has_no_value() -> None:
    def reply(call: Call) -> str:
        if "Lyon" in prompt_text(call.prompt):
            raise LLMError("the endpoint is down")
        return "yes"

    rows = [PredictionRow("1", "Paris"), PredictionRow("2", "Paris"), PredictionRow("3", "Lyon")]
    questions = [FRANCE._replace(id="1"), Question("2", "?"), FRANCE._replace(id="3")]
    judge = Judge(ScriptedLLM(reply))
    found = judge.measure(rows, questions)
    assert judge.metadata()["failures"] == {"the endpoint is down": 5}
    np.testing.assert_array_equal(found.values["retrorag_judge"], [1, np.nan, np.nan])
    assert (found.counts["without_golden_answers"], found.counts["failed"]) == (1, 1)


def test_a_judge_that_fails_on_every_answer_is_an_error_and_not_a_bad_system() -> None:
    def reply(call: Call) -> str:
        assert isinstance(call, Generate)
        raise LLMError("no such model" if call.decoding.seed else "busy")

    rows, questions = [PredictionRow("1", "Paris"), PredictionRow("2", "")], [FRANCE._replace(id="1"), FRANCE._replace(id="2")]
    with pytest.raises(LLMError, match=r"failed on all 1 answers, most often \(4 calls\): no such model"):
        Judge(ScriptedLLM(reply)).measure(rows, questions)
    assert Judge(ScriptedLLM(reply)).measure(rows[1:], questions[1:]).counts["failed"] == 0  # it was not asked


def test_failures_are_those_of_the_last_run() -> None:
    replies: Iterator[str | LLMError] = iter([LLMError("busy"), "yes", "yes"])

    def reply(call: Call) -> str:
        said = next(replies)
        if isinstance(said, LLMError):
            raise said
        return said

    judge = Judge(ScriptedLLM(reply), votes=1)
    rows, questions = [PredictionRow("1", "Paris"), PredictionRow("2", "Rome")], [FRANCE._replace(id="1"), FRANCE._replace(id="2")]
    judge.measure(rows, questions)
    assert judge.metadata()["failures"] == {"busy": 1}
    judge.measure(rows[:1], questions[:1])
    assert judge.metadata()["failures"] == {}


def test_halluqa_s_questions_are_judged_in_chinese_and_others_in_english() -> None:
    assert rule_for([OF_HALLUQA, OF_HALLUQA]) is HALLUQA
    assert rule_for([OF_HALLUQA, FRANCE]) is RETRORAG
    assert rule_for([]) is RETRORAG


def test_settings_that_decide_the_values_are_recorded() -> None:
    judge = Judge(ScriptedLLM(["否"], name="scripted:x"), votes=1)
    assert judge.measure([PredictionRow("7", "Paris")], [OF_HALLUQA]).values["halluqa_judge"] == 1
    metadata = judge.metadata()
    assert (metadata["llm"], metadata["votes"], metadata["tries"], metadata["max_tokens"]) == ("scripted:x", 1, 5, 10)
    assert metadata["origin"] == HALLUQA.origin
    assert len(metadata["prompt_sha256"]) == 64
    judge.measure([PredictionRow("7", "")], [FRANCE])
    assert judge.metadata()["origin"] == RETRORAG.origin


def test_progress_is_reported_of_every_try() -> None:
    reports: list[tuple[int, int | None]] = []
    rows = [PredictionRow(str(number), "Paris") for number in range(100)]
    judge = Judge(ScriptedLLM(lambda call: "yes"), progress=lambda done, total: reports.append((done, total)))
    values = judge.measure(rows, [FRANCE._replace(id=row.id) for row in rows]).values
    assert (int(values["retrorag_judge"].sum()), reports) == (100, [(256, 500), (500, 500)])


def test_votes_of_an_endpoint_are_separate_requests_and_paid_for_once(tmp_path: Path) -> None:
    endpoint = Endpoint(ScriptedLLM(["yes", "no", "Yes.", "no", "yes"]))
    cache = ReplyCache(tmp_path / "replies.sqlite")
    with serving(endpoint) as url:
        llm = open_llms({"judge": parse_spec(f"openai:tiny@{url}")}, Settings(cache=cache))["judge"]
        for _ in range(2):
            judge = Judge(llm)
            found = judge.measure([PredictionRow("7", "Paris")], [FRANCE])
            assert judge.metadata()["failures"] == {}
            assert (found.values["retrorag_judge"][0], found.counts["read_leniently"]) == (1, 1)
        llm.close()
    cache.close()
    assert len(endpoint.bodies) == 5
    assert all(body["temperature"] == 0 and body["top_p"] == 0.5 and body["max_tokens"] == 10 for body in endpoint.bodies)
