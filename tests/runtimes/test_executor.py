"""Many questions at once: their results, number of batches and cost."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Literal

import pytest

from wikidx.base.errors import IdxError, InputError, UnknownNameError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Match, Ranking, ScoredPassage, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import Ask, execute
from wikidx.runtimes.execution.results import Prediction, Step
from wikidx.runtimes.llms.base import LLM, AskYesNo, Call, Capabilities, Deliver, Gen, Generate, Reply, YesNo
from wikidx.runtimes.llms.prompts import Decoding, prompt_text
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.rag import RagOptions, rag
from wikidx.runtimes.methods.requests import ask_yes_no, gather, generate, label, look_up_title, note, retrieve, sample, truncate
from wikidx.runtimes.questions import Question

N = 200
QUESTIONS = [Question(f"q{number}", f"question {number}") for number in range(N)]
DEFAULTS = SearchOptions()


class CountingLLM:
    """A stand-in for a model: echoes the prompt; keeps the batches."""

    def __init__(self) -> None:
        self.name, self.capabilities = "counting", Capabilities(seed=True, n=True)
        self.batches: list[list[Call]] = []

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        self.batches.append(list(calls))
        return [self._reply(call) for call in calls]

    def _reply(self, call: Call) -> Reply | LLMError:
        text = prompt_text(call.prompt)
        if "fail" in text:
            return LLMError(f"made to fail: {text}")
        if isinstance(call, AskYesNo):
            return Reply(YesNo(p_positive=0.5, p_negative=0.25), 3, 1)
        assert isinstance(call, Generate)
        drawn = random.Random(f"{call.decoding.seed} {text}")
        return Reply(tuple(Gen(text=f"{text}!{drawn.random() if call.decoding.temperature else ''}") for _ in range(call.n)), 5, 2)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def truncate(self, text: str, max_tokens: int, *, keep: Literal["start", "end"] = "start") -> str:
        return ScriptedLLM([]).truncate(text, max_tokens, keep=keep)

    def close(self) -> None:
        """Nothing is open."""


class CountingSearcher(Searcher):
    """A stand-in for a searcher: a query finds itself; keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[list[str]], SearchOptions]] = []

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        self.calls.append(([list(group) for group in groups], options))
        if any("bad" in query for group in groups for query in group):
            raise InputError("a query is bad")
        if any("down" in query for group in groups for query in group):
            raise IdxError("the index is gone")
        return [
            Ranking(ScoredPassage(Passage(q, f"T {q}", f"text of {q}"), 0, 1.0, (Match(q, "bm25", 1, 1.0),)) for q in group)
            for group in groups
        ]


def run_all(ask: Ask, llm: LLM, *, questions: Sequence[Question] = QUESTIONS, in_flight: int = 64, seed: int = 0) -> list[Prediction]:
    services = Services(llms={"answer": llm, "judge": llm}, searcher=CountingSearcher())
    return sorted(execute(ask, questions, services, in_flight=in_flight, seed=seed), key=lambda p: int(p.id[1:]))


async def uneven(question: str) -> Answer:
    """Ask between one and four times, judge three things at once, search in between, and draw."""
    n = int(question.split()[1]) % 4
    texts = [question]
    for step in range(n):
        with label(f"step {step}"):
            found = await retrieve([question, texts[-1]], 2)
        texts.append((await generate(f"{found[0].text} {step}")).text)
        verdicts = await gather(*(ask_yes_no(f"{question} {letter}", role="judge") for letter in "abc"))
        await note("judged", {"scores": [verdict.score for verdict in verdicts]})
    drawn = await sample(question, 2, Decoding(temperature=1.0))
    return Answer("|".join([*texts, *(gen.text for gen in drawn)]), detail={"n": n})


def test_results_depend_on_neither_batch_size_nor_order() -> None:
    wanted = run_all(uneven, CountingLLM())
    assert len({prediction.answer for prediction in wanted}) == N
    shuffled = random.Random(0).sample(QUESTIONS, N)
    for in_flight, questions in ((1, QUESTIONS), (7, shuffled), (500, shuffled)):
        assert run_all(uneven, CountingLLM(), questions=questions, in_flight=in_flight) == wanted
    other = run_all(uneven, CountingLLM(), seed=1)
    assert all(one.answer != two.answer for one, two in zip(other, wanted, strict=True))


def test_costs_are_each_question_s_own() -> None:
    (prediction,) = [p for p in run_all(uneven, CountingLLM()) if p.id == "q3"]
    cost = prediction.cost
    assert (cost.calls, cost.searches, cost.queries, prediction.depth) == (3 * (1 + 3) + 1, 3, 6, 3 * 3 + 1)
    assert (cost.prompt_tokens, cost.completion_tokens) == (3 * (5 + 3 * 3) + 5, 3 * (2 + 3) + 2)
    assert prediction.seconds > 0


def test_what_waits_is_one_batch_and_one_search() -> None:
    llm, searcher = CountingLLM(), CountingSearcher()
    services = Services(llms={"answer": llm}, searcher=searcher, search=SearchOptions(depth=50))
    predictions = list(execute(lambda question: rag(question, RagOptions(k=3)), QUESTIONS, services, in_flight=100))
    assert [len(batch) for batch in llm.batches] == [100, 100]
    assert [(len(groups), options) for groups, options in searcher.calls] == [(100, SearchOptions(k=3, depth=50))] * 2
    assert [prediction.id for prediction in predictions] == [question.id for question in QUESTIONS]
    assert predictions[0].passages == (Passage("question 0", "T question 0", "text of question 0"),)


def test_room_is_filled_as_soon_as_a_question_leaves() -> None:
    """Of 4 places one is taken by a question of 30 calls; 57 of 1 call go through the other three meanwhile."""

    async def ask(question: str) -> Answer:
        for step in range(30 if question == "question 0" else 1):
            await generate(f"{question} {step}")
        return Answer("")

    llm = CountingLLM()
    predictions = list(execute(ask, QUESTIONS[:58], Services(llms={"answer": llm}), in_flight=4))
    assert [len(batch) for batch in llm.batches] == [4] * 19 + [1] * 11
    assert predictions[-1].id == "q0"


def test_models_and_searcher_work_at_the_same_time() -> None:
    """Three things that wait for one another would never end one by one."""
    meeting = threading.Barrier(3, timeout=10)

    class Meeting(CountingLLM):
        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            meeting.wait()
            return super().run(calls, deliver)

    class MeetingSearcher(CountingSearcher):
        def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
            meeting.wait()
            return super().search_groups(groups, options)

    async def ask(question: str) -> Answer:
        found = await gather(retrieve(question, 1), generate(question), generate(question, role="judge"))
        return Answer(str(len(found)))

    services = Services(llms={"answer": Meeting(), "judge": Meeting()}, searcher=MeetingSearcher())
    (prediction,) = execute(ask, QUESTIONS[:1], services)
    assert prediction.answer == "3"


def test_equal_requests_are_served_once_and_cost_each_question_the_same() -> None:
    async def ask(question: str) -> Answer:
        found = await retrieve("everyone's", 2)
        text = await generate(found[0].text)
        again = await gather(generate(found[0].text), generate("other"))
        return Answer(text.text + again[0].text)

    llm, searcher = CountingLLM(), CountingSearcher()
    predictions = list(execute(ask, QUESTIONS[:10], Services(llms={"answer": llm}, searcher=searcher), in_flight=5))
    assert [len(batch) for batch in llm.batches] == [1, 1]
    assert len(searcher.calls) == 1
    assert {prediction.cost for prediction in predictions} == {predictions[0].cost}
    assert predictions[0].cost.calls == 3
    assert [sum(step.is_reused for step in prediction.steps) for prediction in predictions] == [1, 4, 4, 4, 4, 4, 4, 4, 4, 4]


def test_draws_are_never_shared() -> None:
    """Not between questions, nor between equal calls of one question; a seed of one's own makes them equal."""

    async def ask(question: str) -> Answer:
        free = await gather(*(sample("same", 1, Decoding(temperature=1.0)) for _ in range(2)))
        fixed = await gather(*(sample("same", 1, Decoding(temperature=1.0, seed=4)) for _ in range(2)))
        return Answer("", detail={"free": [gens[0].text for gens in free], "fixed": [gens[0].text for gens in fixed]})

    predictions = run_all(ask, CountingLLM())
    assert len({text for prediction in predictions for text in prediction.detail["free"]}) == 2 * N
    assert len({text for prediction in predictions for text in prediction.detail["fixed"]}) == 1


def test_what_fails_costs_its_question_only() -> None:
    async def ask(question: str) -> Answer:
        number = int(question.split()[1])
        first = await generate(f"{question} {'fail' if number == 1 else ''}")
        await retrieve("bad" if number == 2 else question, 1)
        if number == 3:
            raise InputError("the method refuses this question")
        if number == 4:
            await look_up_title("a title")
        return Answer(first.text)

    predictions = run_all(ask, CountingLLM(), questions=QUESTIONS[:6])
    assert [prediction.error for prediction in predictions] == [
        None,
        "LLMError: made to fail: question 1 fail",
        "InputError: a query is bad",
        "InputError: the method refuses this question",
        "InputError: the method looks titles up, which needs a corpus on this machine",
        None,
    ]
    assert [len(prediction.steps) for prediction in predictions] == [2, 1, 2, 2, 3, 2]
    assert predictions[1].steps[0].error == predictions[1].error


def test_a_searcher_that_fails_fails_the_questions_that_wait() -> None:
    async def ask(question: str) -> Answer:
        await retrieve("down" if question == "question 2" else question, 1)
        return Answer("found")

    predictions = run_all(ask, CountingLLM(), questions=QUESTIONS[:6], in_flight=2)
    assert [prediction.answer for prediction in predictions] == ["found", "found", "", "", "found", "found"]
    assert predictions[3].error == "IdxError: the index is gone"


def test_a_model_that_fails_as_a_whole_fails_the_questions_that_wait() -> None:
    class Down(CountingLLM):
        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            if len(self.batches) == 1:
                self.batches.append([])
                raise LLMError("nobody listens")
            return super().run(calls, deliver)

    async def ask(question: str) -> Answer:
        return Answer((await generate(question)).text)

    predictions = run_all(ask, Down(), questions=QUESTIONS[:6], in_flight=2)
    assert [prediction.error for prediction in predictions] == [
        None,
        None,
        "LLMError: nobody listens",
        "LLMError: nobody listens",
        None,
        None,
    ]


def test_steps_are_in_order_with_paths_notes_and_cuts() -> None:
    async def ask(question: str) -> Answer:
        query = await truncate(f"a b {question}", 2, keep="end")
        with label("outer"), label("inner"):
            await retrieve(query, 1)
        await note("done", {"query": query})
        return Answer(query)

    (prediction,) = run_all(ask, CountingLLM(), questions=[Question("q9", "question 9")])
    kinds = [(type(step.request).__name__, step.request.path, step.depth) for step in prediction.steps]
    assert kinds == [("Truncate", (), 0), ("Retrieve", ("outer", "inner"), 0), ("Note", (), 1)]
    assert (prediction.answer, prediction.depth) == ("question 9", 1)


def test_each_step_is_told_as_it_comes_and_who_listens_can_end_all() -> None:
    told = list[tuple[str, Step]]()
    services = Services(llms=dict.fromkeys(("answer", "judge"), CountingLLM()), searcher=CountingSearcher())
    for prediction in execute(
        uneven, QUESTIONS[:8], services, in_flight=3, on_step=lambda question, step: told.append((question.id, step))
    ):
        assert tuple(step for name, step in told if name == prediction.id) == prediction.steps

    def hang_up(question: Question, step: Step) -> None:
        raise InterruptedError(question.id)

    with pytest.raises(InterruptedError, match="q0"):
        list(execute(uneven, QUESTIONS, services, on_step=hang_up))


def test_what_a_model_could_not_do_is_said_in_the_prediction() -> None:
    llm = ScriptedLLM([Gen(text="a", degraded=("no logprobs",)), [Gen(text="b", degraded=("no logprobs", "cut"))]])

    async def ask(question: str) -> Answer:
        await generate("1")
        await generate("2")
        return Answer("")

    (prediction,) = execute(ask, QUESTIONS[:1], Services(llms={"answer": llm}))
    assert prediction.degraded == ["no logprobs", "cut"]


def test_a_role_without_a_model_ends_the_run() -> None:
    async def ask(question: str) -> Answer:
        return Answer((await generate(question, role="judgement")).text)

    running = execute(ask, QUESTIONS, Services(llms={"answer": CountingLLM(), "judge": CountingLLM()}))
    with pytest.raises(UnknownNameError, match="unknown role 'judgement': did you mean 'judge'"):
        next(running)


def test_a_question_that_needs_nothing_is_answered_at_once_and_questions_are_taken_as_there_is_room() -> None:
    taken: list[str] = []

    def questions() -> Iterator[Question]:
        for question in QUESTIONS:
            taken.append(question.id)
            yield question

    async def ask(question: str) -> Answer:
        if question != "question 1":
            await generate(question)
        return Answer(question)

    running = execute(ask, questions(), Services(llms={"answer": CountingLLM()}), in_flight=3)
    assert next(running).id == "q1"
    assert next(running).id == "q0"
    assert taken == ["q0", "q1", "q2", "q3"]
