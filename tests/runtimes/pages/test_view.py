"""``idx view``: the list of a run's questions, what went wrong, traces by offset, two runs; the page in Chromium."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from tests.conftest import ROOT
from tests.retrievers.server.serving import ask, wait_until
from tests.runtimes.command_line import Command
from wikidx.base.errors import InputError
from wikidx.retrievers.server.settings import Settings, listen, server_url
from wikidx.runtimes.pages.viewing import Viewer, application

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = '<img src=x onerror="document.ran=1"><script>document.ran=2</script>'
PASSAGES = [{"id": "p1", "title": "Mercury (element)", "text": "Mercury, or quick-\nsilver, is a liquid metal."}]


def generated(text: str, finish: str = "stop", **more: object) -> dict[str, Any]:
    gen = {"text": text, "finish": finish, "mean_nll": None, "degraded": [], **more}
    prompt = [{"role": "user", "content": f"Which metal? {HOSTILE}"}]
    call = {"request": "generate", "role": "answer", "prompt": prompt, "decoding": {"max_tokens": 9}, "n": 1}
    return {"depth": 1, "path": ["sub-question 1"], **call, "result": [gen], "tokens": [12, 3]}


SEARCH = {"depth": 0, "path": [], "request": "retrieve", "queries": ["liquid metal"], "k": 2, "merge": None, "dedup": None}
HITS = [{"id": "p1", "title": "Mercury (element)", "score": 3.5}, {"id": "p2", "title": HOSTILE, "score": 1.0}]
VERDICT = {"depth": 2, "path": ["sub-question 1", "relevance"], "request": "yes_no", "role": "answer", "prompt": "is it?"}
YES = {"words": [["yes"], ["no"]], "result": {"p_positive": 0.9, "p_negative": 0.05, "score": 0.947}, "tokens": [5, 1]}
STEPS = [
    {**SEARCH, "result": HITS},
    generated("Mercury", reasoning=f"It is liquid. {HOSTILE}"),
    {**VERDICT, **YES},
    {"depth": 2, "path": [], "note": "judged", "data": {"why": HOSTILE}},
]


def line(id: str, answer: str, **fields: object) -> dict[str, Any]:
    asked = {"id": id, "question": f"Which metal is {id}?", "golden_answers": ["Quick-silver", "Mercury"], "answer": answer}
    blank: dict[str, object] = {
        "error": None,
        "passages": [],
        "detail": {},
        "degraded": [],
        "cost": {"calls": 1},
        "timing": {"seconds": 1.0},
    }
    return {**asked, **blank, **fields}


def write_run(folder: Path, *lines: Mapping[str, Any], tail: str = "") -> Path:
    folder.mkdir()
    text = "".join(json.dumps(one) + "\n" for one in lines) + tail
    (folder / "predictions.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def odd_run(tmp_path: Path) -> Path:
    return write_run(
        tmp_path / "odd",
        line("failed", "", error="LLMError: no answer"),
        line("right", "mercury", passages=PASSAGES, steps=STEPS),
        line(
            "cut",
            "Lead",
            steps=[generated("Lead is", "length")],
            detail={"parse_ok": False},
            replies={"cut": 1},
            passages=[{**PASSAGES[0], "title": "Lead", "text": "lead"}],
        ),
        line("empty", " ", degraded=["no logprobs"]),
        line("failed", "Mercury", question=f"Which metal is failed? {HOSTILE}"),
        tail='{"id": "unfinished", "ans',
    )


@contextmanager
def viewing(*folders: Path) -> Iterator[str]:
    """Serve the page of a viewer in a thread; yield its address."""
    listener = listen(Settings(corpora=(), port=0))
    server = uvicorn.Server(uvicorn.Config(application(Viewer(folders)), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield server_url(listener)
    finally:
        server.should_exit = True
        thread.join()


def test_what_went_wrong_is_told_of_the_last_line_of_each_question(odd_run: Path) -> None:
    listed = Viewer([odd_run]).list_questions()
    (run,) = listed["runs"]
    entries = {question["id"]: question["runs"][0] for question in listed["questions"]}
    assert (run["name"], listed["metrics"][0]) == ("odd", "squad_em")
    assert {name: entry["kinds"] for name, entry in entries.items()} == {
        "failed": ["lacks"],
        "right": ["holds"],
        "cut": ["lacks", "cut", "unparsed"],
        "empty": ["lacks", "degraded", "empty"],
    }
    assert {name: entry["values"]["squad_em"] for name, entry in entries.items()} == {"failed": 1, "right": 1, "cut": 0, "empty": 0}


def test_a_trace_is_the_line_itself_with_the_texts_of_its_passages(odd_run: Path) -> None:
    viewer = Viewer([odd_run])
    for id, text in (("cut", "lead"), ("right", PASSAGES[0]["text"])):
        trace = json.loads(viewer.trace(id))
        assert (trace["records"][0]["id"], trace["texts"]) == (id, [{"p1": text}])
    assert json.loads(viewer.trace("failed"))["records"][0]["answer"] == "Mercury"
    assert json.loads(viewer.trace("nothing")) == {"records": [None], "texts": [{}]}


def test_a_run_that_goes_on_or_puts_its_lines_in_order_is_read_again(odd_run: Path, tmp_path: Path) -> None:
    written = [line("m1", "Mercury"), line("m22", "Quicksilver, or mercury")]
    viewer = Viewer([run := write_run(tmp_path / "run", *written)])
    write_run(tmp_path / "ordered", *reversed(written))
    (tmp_path / "ordered" / "predictions.jsonl").replace(run / "predictions.jsonl")
    assert [json.loads(viewer.trace(one["id"]))["records"] for one in written] == [[one] for one in written]
    viewer, path = Viewer([odd_run]), odd_run / "predictions.jsonl"
    path.write_text(path.read_text(encoding="utf-8").rpartition("\n")[0] + "\n" + json.dumps(line("new", "x")) + "\n", encoding="utf-8")
    assert "new" in [question["id"] for question in viewer.list_questions()["questions"]]


@pytest.mark.usefixtures("sample_home")
def test_texts_come_from_the_corpus_that_was_searched(idx: Command, script: Callable[..., str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    model = script({"match": "", "text": "Mercury"})
    idx("run", "rag", "--corpus", "sample", "--questions", "sample", "--llm", model, "--limit", 3, "--out", out)
    records = (out / "predictions.jsonl").read_text(encoding="utf-8")
    bare = [{**json.loads(record), "passages": []} for record in records.splitlines()]
    (out / "predictions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in bare), encoding="utf-8")
    viewer = Viewer([out])
    assert len(viewer.list_questions()["questions"]) == 3
    trace = json.loads(viewer.trace(bare[0]["id"]))
    found = json.loads(records.splitlines()[0])["passages"]
    assert trace["texts"] == [{passage["id"]: passage["text"] for passage in found}]


def test_two_runs_are_joined_by_question(odd_run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", line("cut", "Mercury"), line("right", "Mercury", question="another one?"), line("more", ""))
    questions = Viewer([odd_run, other]).list_questions()["questions"]
    known = sorted((question["id"], *(run is not None for run in question["runs"])) for question in questions)
    first, second = [(name, True, False) for name in ("empty", "failed", "right")], [(name, False, True) for name in ("more", "right")]
    assert known == sorted([("cut", True, True), *first, *second])
    with pytest.raises(InputError, match="have no question in common"):
        Viewer([odd_run, write_run(tmp_path / "third", line("else", ""))])


def test_foreign_pages_and_unknown_runs_are_refused(odd_run: Path, tmp_path: Path, idx: Command) -> None:
    with viewing(odd_run) as url:
        assert ask(url, "/v1/questions").status == 200
        for path, policy in (("/", "frame-ancestors 'none'"), ("/v1/questions", "default-src 'none'; frame-ancestors 'none'")):
            headers = ask(url, path).headers
            assert (headers["content-security-policy"], headers["x-content-type-options"]) == (policy, "nosniff")
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            assert ask(url, "/v1/questions", headers=headers).status == 403
        assert ask(url, "/page/runs/../../viewing.py").status == 404
    assert "holds no predictions.jsonl: name the folder" in idx("view", tmp_path, status=2)
    assert "3 runs are given" in idx("view", *[odd_run] * 3, status=2)
    broken = write_run(tmp_path / "broken", line("right", ""))
    with (broken / "predictions.jsonl").open("a", encoding="utf-8") as file:
        file.write("no JSON\n")
    assert "line 2 is no prediction" in idx("view", broken, status=2)


@pytest.mark.slow  # a process of its own
def test_it_prints_its_address_and_ends_by_ctrl_c(odd_run: Path) -> None:
    command = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()", "view", str(odd_run)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.fullmatch(rf"{re.escape(str(odd_run))} \(4 answers\) on (http://127\.0\.0\.1:\d+) until Ctrl-C\n", said)
        assert found, said
        assert b"view.js" in ask(found[1], "/").body
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def rows(page: Page) -> list[str]:
    texts: list[str] = page.locator(".row .question").all_inner_texts()
    return texts


@pytest.mark.slow  # a browser
@pytest.mark.parametrize("width", [390, 1600])
def test_all_of_a_record_is_shown_as_text(page: Page, odd_run: Path, width: int) -> None:
    from playwright.sync_api import expect

    page.set_viewport_size({"width": width, "height": 800})
    with viewing(odd_run) as url:
        page.goto(f"{url}/#id=right")
        expect(page.locator("#shown h2")).to_have_text("Which metal is right?")
        while (folded := page.locator("#shown details:not([open]) > summary")).count():
            folded.first.click()
        shown = page.locator("#shown").inner_text()
        texts = ("It is liquid.", "Mercury (element)", "yes 0.900 · no 0.050 · score 0.947", "12+3 tokens", "squad_em 1", "liquid metal")
        assert [text for text in texts if text not in shown] == []
        assert shown.count(HOSTILE) == 4  # prompt, thoughts, title, note
        assert page.locator("#shown .passage, #shown .line .text mark").all_inner_texts() == ["Mercury", "quick-\nsilver"] * 2
        assert page.locator(".trace .label").all_inner_texts() == ["sub-question 1", "relevance"]
        assert page.locator(".label:text-is('sub-question 1') + ul").get_by_text("score 0.947").count() == 1  # a branch of its branch
        page.goto(f"{url}/#id=failed")
        expect(page.locator("#shown h2")).to_contain_text(HOSTILE)
        assert page.locator("img, #shown script").count() == 0
        assert page.evaluate("document.ran") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow  # a browser
def test_filters_search_and_keys(page: Page, odd_run: Path) -> None:
    from playwright.sync_api import expect

    page.set_viewport_size({"width": 1024, "height": 800})
    with viewing(odd_run) as url:
        page.goto(url)
        expect(page.locator("#status")).to_have_text("4 questions")
        page.get_by_role("button", name="wrong 2").click()
        assert rows(page) == ["Which metal is cut?", "Which metal is empty?"]
        page.get_by_role("button", name="cut 1").click()
        expect(page.locator("#status")).to_have_text("1 of 4 questions")
        page.reload()  # the address keeps the filters
        expect(page.locator("#status")).to_have_text("1 of 4 questions")
        page.goto("about:blank")
        page.goto(url)
        page.locator("#shown h2").wait_for()
        page.keyboard.press("j")
        expect(page.locator("#shown h2")).to_have_text("Which metal is right?")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("k")
        expect(page.locator("[aria-selected=true] .question")).to_have_text("Which metal is right?")
        page.keyboard.press("/")
        page.keyboard.type("lead")
        assert rows(page) == ["Which metal is cut?"]
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        expect(page.locator("#shown h2")).to_have_text("Which metal is cut?")
        expect(page.locator("#shown .final")).to_contain_text("Lead")


@pytest.mark.slow  # a browser
def test_two_runs_side_by_side(page: Page, odd_run: Path, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    other = write_run(tmp_path / "other", line("cut", "Mercury"), line("right", "tin"), line("empty", " "))
    page.set_viewport_size({"width": 1600, "height": 800})
    with viewing(odd_run, other) as url:
        page.goto(url)
        page.get_by_role("button", name="won").click()
        assert rows(page) == ["Which metal is cut?"]
        page.locator(".row").click()
        expect(page.locator("#shown h2")).to_have_text("Which metal is cut?")
        assert page.locator(".columns h3").all_inner_texts() == ["odd", "other"]
        assert [text.split()[-1] for text in page.locator(".columns .final").all_inner_texts()] == ["Lead", "Mercury"]
        boxes = [box.bounding_box() for box in page.locator(".columns section").all()]
        assert len({box["y"] for box in boxes if box}) == 1
        page.get_by_role("button", name="won").click()
        page.get_by_role("button", name="lost").click()
        expect(page.locator("#status")).to_have_text("2 of 4 questions")  # the failed one is unanswered in the second


@pytest.mark.slow  # a browser
def test_equal_answers_are_said_and_names_given_once(page: Page, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    page.set_viewport_size({"width": 390, "height": 800})
    runs = [write_run(tmp_path / name, line("cut", "Mercury")) for name in ("rag", "other")]
    for run in runs:
        (run / "run.json").write_text(json.dumps({"settings": {"method": "rag", "search": {"corpus": "sample"}}, "sessions": []}))
    with viewing(*runs) as url:
        page.goto(url)
        expect(page.get_by_role("button", name="answers differ 0")).to_be_visible()
        expect(page.locator("#about")).to_have_text("rag, sample · other, rag, sample")
        find = page.get_by_role("searchbox")
        find.fill(find.get_attribute("placeholder") or "")  # text is cut where a placeholder is
        assert find.evaluate("find => find.scrollWidth <= find.clientWidth")


@pytest.mark.slow  # a browser, and ten thousand questions
def test_of_ten_thousand_questions_those_in_sight_are_drawn(page: Page, tmp_path: Path) -> None:
    lines = (line(str(n), "Mercury" if n % 3 else "tin", steps=STEPS, passages=PASSAGES) for n in range(10_000))
    with viewing(write_run(tmp_path / "many", *lines)) as url:
        page.goto(url)
        page.locator(".row").first.wait_for()
        assert page.locator(".row").count() < 60
        page.get_by_role("button", name="wrong 3,334").click()
        page.locator("#find").fill("is 9999")
        page.locator("#list").evaluate("list => list.scrollTo(0, list.scrollHeight)")
        assert rows(page) == ["Which metal is 9999?"]
        page.locator(".row").click()
        page.locator("#shown h2:text-is('Which metal is 9999?')").wait_for()
