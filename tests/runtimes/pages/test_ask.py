"""``/v1/ask`` and the *Ask* tab: steps as they come, the answer with its passages, refusals, clients that go away."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from tests.retrievers.server.serving import Answer, ask, wait_until
from wikidx.base.machine.failures import DeviceLost, device_errors
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.settings import Settings, listen, server_url
from wikidx.runtimes.llms.base import Call
from wikidx.runtimes.llms.scripted import Scripted, ScriptedLLM
from wikidx.runtimes.pages import asking
from wikidx.runtimes.pages.asking import Asker

if TYPE_CHECKING:
    from playwright.sync_api import Page

METAL = "Which metal is liquid at room temperature?"
HOSTILE = '<img src=x onerror="document.ran=1">'

pytestmark = pytest.mark.usefixtures("sample_home")


class Slow:
    """A model whose calls wait for a gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.n_calls = 0
        self.text = "Mercury [1]"

    def __call__(self, call: Call) -> Scripted:
        self.n_calls += 1
        assert self.gate.wait(30)
        return [self.text]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Let servers open this model."""
    slow = Slow()
    monkeypatch.setattr(asking, "open_llms", lambda specs, _: dict.fromkeys(specs, ScriptedLLM(slow, name="slow")))
    return slow


class Served(NamedTuple):
    """A server in a thread, and the end of its run."""

    url: str
    service: Service
    ended: Future[None]


@contextmanager
def answering(model: str | None = "scripted:unread.jsonl", **more: Any) -> Iterator[Served]:  # noqa: ANN401 - settings
    made = Settings(corpora=("sample",), port=0, **more)
    listener = listen(made)
    service = Service(made, listener, Metrics(), answerer=Asker([model]) if model else None)
    with ThreadPoolExecutor(1) as thread:
        served = Served(server_url(listener), service, thread.submit(service.run))
        try:
            wait_until(lambda: served.ended.done() or ask(served.url, "/ready").status == 200)
            yield served
        finally:
            service.stop()


def events(answer: Answer) -> list[dict[str, Any]]:
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson"), answer
    return [json.loads(line) for line in answer.body.splitlines()]


@contextmanager
def opened(url: str, body: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
    """Send a question, and yield the response that is still to be read; the connection is closed then."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    connection.request("POST", "/v1/ask", json.dumps(body))
    response = connection.getresponse()
    try:
        yield response
    finally:
        response.close()
        connection.close()


MISTAKES: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "question"),
    ({"question": " \n"}, 422, "question is "),
    ({"question": 3}, 422, "question is 3: it should be a valid string"),
    ({"question": "half \ud800"}, 422, "question is 'half \\ud800': it should be a valid string"),
    ({"question": METAL, "method": "ragg"}, 404, "unknown method 'ragg': did you mean 'rag'"),
    ({"question": METAL, "corpus": "nothing"}, 404, "unknown corpus 'nothing'"),
    ({"question": METAL, "seed": -1}, 422, "seed is -1"),
    ({"question": METAL, "sed": 1}, 422, "unknown field 'sed'"),
]


def test_steps_come_with_texts_and_the_answer_last_and_mistakes_are_named(model: Slow, capfd: pytest.CaptureFixture[str]) -> None:
    with answering(access_log=True) as (url, *_):
        (search, call, last) = events(ask(url, "/v1/ask", {"question": METAL}))
        assert search["step"]["queries"] == [METAL]
        assert set(search["texts"]) == {hit["id"] for hit in search["step"]["result"]}
        assert search["texts"]["element-80#0"].startswith("The chemical element mercury")
        assert call["step"]["result"][0]["text"] == "Mercury [1]"
        prediction = last["prediction"]
        assert (prediction["method"], prediction["answer"], len(prediction["passages"])) == ("rag", "Mercury [1]", 5)
        assert events(ask(url, "/v1/ask", {"question": METAL, "method": "react"}))[-1]["prediction"]["method"] == "react"
        served = ask(url, "/v1/indexes").json["ask"]
        assert served["models"] == ["scripted:unread.jsonl"]
        assert {"method": "rag", "summary": "retrieve with the question, answer from the passages"} in served["methods"]
        for body, status, message in MISTAKES:
            refused = ask(url, "/v1/ask", body)
            assert refused.status == status
            assert message in refused.json["error"]
    logged = [line for line in map(json.loads, capfd.readouterr().out.splitlines()) if line["path"] == "/v1/ask"]
    assert [(line["method"], line["answered_by"], line["status"]) for line in logged[:2]] == [("POST", "rag", 200), ("POST", "react", 200)]


def test_clients_learn_neither_folders_nor_urls() -> None:
    assert Asker(["hf:/secret/llama"]).describe()["models"] == ["hf:llama"]
    assert Asker(["openai:qwen@http://me:secret@127.0.0.1:1/v1"]).describe()["models"] == ["openai:qwen"]


def test_a_step_is_sent_before_the_next_is_there(model: Slow) -> None:
    with answering() as (url, *_):
        model.gate.clear()
        with opened(url, {"question": METAL}) as response:
            assert json.loads(response.readline())["step"]["request"] == "retrieve"
            model.gate.set()
            assert "prediction" in json.loads(response.read().splitlines()[-1])


def test_one_question_at_a_time_and_who_goes_away_ends_his(model: Slow) -> None:
    with answering() as (url, *_):
        model.gate.clear()
        with opened(url, {"question": METAL, "method": "iter_retgen"}) as response:
            response.readline()
            wait_until(lambda: model.n_calls == 1, 30)
            answers = list[Answer]()
            waiting = threading.Thread(target=lambda: answers.append(ask(url, "/v1/ask", {"question": METAL})))
            waiting.start()
            with opened(url, {"question": METAL}):
                pass  # gone before its turn
        assert model.n_calls == 1
        wait_until(lambda: 'path="/v1/ask",status="499"} 2.0' in ask(url, "/metrics").body.decode(), 30)
        model.gate.set()
        waiting.join(30)
        assert "prediction" in events(answers[0])[-1]
        assert model.n_calls == 2  # neither the second round of the first question, nor the third question


def test_the_end_of_the_server_ends_an_answer_with_an_error(model: Slow) -> None:
    with answering(limits=Limits(deadline_s=0.5)) as (url, service, ended):
        model.gate.clear()
        with opened(url, {"question": METAL}) as response:
            response.readline()
            service.stop()
            lines = response.read().splitlines()  # raises ``IncompleteRead`` of an answer that is cut
        model.gate.set()
        ended.result(30)
    assert [json.loads(line) for line in lines] == [{"error": "the server ends: ask another one, or again", "error_type": "NotReady"}]


def test_too_many_questions_are_refused(model: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_MAX_OPEN", 1)
    with answering() as (url, *_):
        model.gate.clear()
        with opened(url, {"question": METAL}) as response:
            refused = ask(url, "/v1/ask", {"question": METAL})
            assert (refused.status, refused.json["error_type"], refused.headers["retry-after"]) == (503, "Overloaded", "5")
            model.gate.set()
            response.read()


def test_a_failed_question_says_why(script: Callable[..., str]) -> None:
    with answering(script({"match": "never", "text": "x"})) as (url, *_):
        last = events(ask(url, "/v1/ask", {"question": METAL}))[-1]
    assert set(last) == {"error", "error_type"}
    assert "script" in last["error"]


def test_any_question_of_the_document_is_answered_or_refused(model: Slow) -> None:
    with answering() as (url, *_):
        document = ask(url, "/openapi.json").json
        assert "post" in document["paths"]["/v1/ask"]
        checks = [
            schemathesis.checks.not_a_server_error,
            schemathesis.checks.status_code_conformance,
            schemathesis.checks.content_type_conformance,
        ]
        found = schemathesis.openapi.from_dict(document)["/v1/ask"]["POST"]
        operation = found.ok() if isinstance(found, Ok) else found

        @settings(max_examples=25, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
        def run(case: Any) -> None:  # noqa: ANN401
            case.call_and_validate(base_url=url, checks=checks)

        run()


@pytest.mark.slow  # a browser
@pytest.mark.parametrize("width", [390, 1600])
def test_the_tab_shows_steps_and_the_answer_with_its_passages(page: Page, model: Slow, width: int) -> None:
    from playwright.sync_api import expect

    page.set_viewport_size({"width": width, "height": 800})
    with answering() as (url, *_):
        page.goto(url)
        page.get_by_role("link", name="Ask").click()
        page.get_by_label("Question").fill(f"{METAL} {HOSTILE}")
        model.gate.clear()
        page.keyboard.press("Enter")
        expect(page.locator(".step")).to_have_count(1)  # before the answer is there
        expect(page.locator("#status")).to_contain_text("1 step, ")
        model.text = f"Mercury [1] {HOSTILE}"
        model.gate.set()
        expect(page.locator("#answer")).to_contain_text(f"Mercury [1] {HOSTILE}")
        expect(page.locator("#status")).to_have_text("2 steps")
        assert page.locator(".passages .passage").count() == 5
        page.locator("#answer a").first.click()
        assert page.url.endswith("#passage-1")
        assert page.locator("img").count() == 0
        assert page.evaluate("document.ran") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow  # a browser
def test_a_question_is_stopped_and_errors_are_said(page: Page, model: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    from playwright.sync_api import expect

    with answering(api_key="secret") as (url, *_):
        page.goto(f"{url}/ask")
        expect(page.get_by_text("This server requires its API key")).to_be_visible()
        page.get_by_role("link", name="search page").click()
        page.get_by_label("This server requires its API key").fill("secret")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Ask").click()
        model.gate.clear()
        page.get_by_label("Question").fill(METAL)
        page.keyboard.press("Enter")
        expect(page.locator(".step")).to_have_count(1)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("stopped after 1 step")
        monkeypatch.setattr(asking, "_MAX_OPEN", 0)
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("alert")).to_contain_text(re.compile("questions? (is|are) waiting: ask again"))
        model.gate.set()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_server_ends_when_its_models_gpu_takes_no_work_any_more(is_gone: bool, model: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits, or has gone. torch's answers are replaced."""
    torch = pytest.importorskip("torch")

    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def run(llm: ScriptedLLM, calls: list[Call], deliver: object = None) -> None:
        with device_errors("cuda:0", "a batch", "use another"):
            model(calls[0])
            fail()

    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    monkeypatch.setattr(ScriptedLLM, "run", run)
    with answering(limits=Limits(drain_s=0.0)) as (url, _, ended):
        if is_gone:
            model.gate.clear()
            with opened(url, {"question": METAL}):
                wait_until(lambda: model.n_calls > 0)
            model.gate.set()
        else:
            last = events(ask(url, "/v1/ask", {"question": METAL}))[-1]
            assert last["error_type"] == "DeviceLost"
            assert last["error"] == "cuda:0 failed: CUDA error: an illegal memory access was encountered"
        assert isinstance(ended.exception(timeout=30), DeviceLost)


@pytest.mark.slow  # a browser
def test_without_a_model_there_is_no_tab(page: Page) -> None:
    with answering(None) as (url, *_):
        page.goto(url)
        page.locator(".welcome").wait_for()
        assert not page.get_by_role("link", name="Ask").is_visible()
        assert ask(url, "/v1/ask", {"question": METAL}).status == 404
