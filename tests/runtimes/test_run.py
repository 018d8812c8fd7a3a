"""``idx run``: its files, kills and resuming, failures, other settings. Refusals are in ``test_command_errors``."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.faults.commands import idx as idx_process
from tests.runtimes.command_line import IDX, Command, without_times
from tests.runtimes.llms.endpoint import Endpoint, serving
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving, refusal
from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.corpora.known import sample
from wikidx.runtimes.execution.resumable import REPLIES
from wikidx.runtimes.execution.runs import PREDICTIONS, RUN, open_run, read_predictions
from wikidx.runtimes.llms.base import Call
from wikidx.runtimes.llms.scripted import Scripted, ScriptedLLM
from wikidx.runtimes.methods.templates import prompt_hashes

pytestmark = pytest.mark.usefixtures("sample_home")

Script = Callable[..., str]

SAMPLE = ("--corpus", "sample", "--questions", "sample")


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / PREDICTIONS).read_bytes().splitlines()]


def outcome(out: Path) -> dict[str, dict[str, Any]]:
    """Return the predictions of a run but for their times."""
    return {name: without_times(record) for name, record in dict(read_predictions(out)).items()}


def run_record(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / RUN).read_text(encoding="utf-8"))
    return found


def questions(folder: Path, *texts: str) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps({"id": f"q{n}", "question": text}) + "\n" for n, text in enumerate(texts)), encoding="utf-8")
    return file


def test_predictions_and_what_they_were_made_by(idx: Command, script: Script, tmp_path: Path) -> None:
    out, model = tmp_path / "out", script({"match": "", "text": "Mercury"})
    asked = ("run", "rag", *SAMPLE, "--llm", model, "--set", "k=2", "--seed", "3", "--out", out)
    assert idx(*asked) == f"{out}: 107 questions, 107 answered, 0 failed\n"
    records = dict(read_predictions(out))
    for one in sample.questions():
        record = records[one.id]
        assert (record["question"], record["golden_answers"]) == (one.question, list(one.answers))
        assert (record["answer"], record["error"]) == ("Mercury", None)
        assert [step["request"] for step in record["steps"]] == ["retrieve", "generate"]
    settings = run_record(out)["settings"]
    assert settings["options"]["k"] == {"value": 2, "default": 5, "origin": "ours"}
    searched = {"shuffle", "noise", "noise_questions", "seed", "expand", "expansions"}
    assert set(settings["options"]) == {"form", "k", "shots", "max_tokens"} | searched
    assert settings["prompts"] == prompt_hashes(["rag"])
    assert (settings["method"], settings["seed"], settings["questions"]["n"]) == ("rag", 3, 107)
    assert settings["models"]["answer"]["model"] == model.partition(":")[2]
    assert re.fullmatch("[0-9a-f]{64}", settings["models"]["answer"]["sha256"])
    assert (settings["search"]["corpus"], settings["search"]["retriever"]) == ("sample", "bm25")
    assert set(settings["search"]["fingerprints"]) == {"passages", "bm25"}
    (session,) = run_record(out)["sessions"]
    assert session["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert session["command"][:3] == ["idx", "run", "rag"]
    assert session["source"] == {"file": "sample", "format": None}
    before = (out / PREDICTIONS).read_bytes()
    again = idx.json(*asked)
    assert (again["answered"], again["failed"], again["cost"]["calls"]) == (107, [], 0)
    assert (out / PREDICTIONS).read_bytes() == before
    assert [session["predictions_before"] for session in run_record(out)["sessions"]] == [0, 107]


@contextmanager
def killed_after(n_lines: int, out: Path, *arguments: object) -> Iterator[None]:
    """Start ``idx run`` as a process of its own and kill it once so many predictions are written."""
    command = [*IDX, "run", *map(str, arguments), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 120
        while not (out / PREDICTIONS).exists() or (out / PREDICTIONS).read_bytes().count(b"\n") < n_lines:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.01)
        yield
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(30)
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.slow  # some twenty seconds
def test_a_run_that_is_killed_goes_on_and_comes_to_the_same(idx: Command, tmp_path: Path) -> None:
    """The tiny Llama draws at random, so that seeds must come out the same whatever was asked before the kill."""
    model = ("--llm", f"hf:{save_tiny_llama(tmp_path / 'llama', context=8192)}", "--device", "cpu")
    asked = ("refeed", *SAMPLE, *model, "--limit", "30", "--in-flight", "3", "--set", "k=1", "--set", "samples=2", "--set", "max_tokens=6")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    with killed_after(3, killed, *asked):
        pass
    before = (killed / PREDICTIONS).read_bytes()
    assert 3 <= before.count(b"\n") < 30
    (killed / PREDICTIONS).write_bytes(before[:-100])  # as if it had been killed while it wrote
    n_left = before[:-100].count(b"\n")
    ended = idx_process("run", *asked, "--out", killed)
    assert f"asked before: {n_left} of 30 questions" in ended.err
    assert "an unfinished line of" in ended.err
    assert ended.out == f"{killed}: 30 questions, 30 answered, 0 failed\n"
    assert (killed / PREDICTIONS).read_bytes().startswith(before[:-100].rpartition(b"\n")[0])
    assert len(lines(killed)) == 30
    idx("run", *asked[:-6], "--in-flight", "64", *asked[-6:], "--out", whole)
    assert rounded(outcome(killed)) == rounded(outcome(whole))
    assert len({record["answer"] for record in outcome(whole).values()}) > 15


def rounded(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value with its numbers to 4 digits: a batch's company shows in the last ones."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def test_no_question_is_paid_for_twice(idx: Command, tmp_path: Path) -> None:
    """A kill costs at most what was under way; replies of endpoints that had come are kept beside the run."""
    endpoint = Endpoint(ScriptedLLM(lambda call: "x"))
    endpoint.seconds = 0.05
    with serving(endpoint) as url:
        asked = ("rag", *SAMPLE, "--llm", f"openai:tiny@{url}", "--limit", "30", "--in-flight", "4", "--concurrency", "4")
        with killed_after(8, tmp_path / "out", *asked):
            pass
        n_asked = len(endpoint.bodies)
        n_done = len(lines(tmp_path / "out"))
        assert n_asked <= n_done + 8
        assert idx("run", *asked, "--out", tmp_path / "out").endswith("30 questions, 30 answered, 0 failed\n")
        assert len(endpoint.bodies) <= 30 + 4  # the calls that were on their way when it was killed
    assert (tmp_path / "out" / REPLIES).is_file()


def test_noise_comes_from_the_other_questions_of_the_file(idx: Command, script: Script, tmp_path: Path) -> None:
    """Half of the passages that are read are those of one of the others; named questions go before the file's."""
    model = script({"match": "", "text": "x"})
    asked = ("run", "self_reasoning", *SAMPLE, "--limit", "4", "--llm", model, "--set", "k=2", "--set", "noise=0.5")
    texts = [one.question for one in sample.questions()]
    for out, more, others in (("out", (), texts), ("named", ("--set", 'noise_questions=["Who painted it?"]'), ["Who painted it?"])):
        idx(*asked, *more, "--out", tmp_path / out)
        for record in lines(tmp_path / out):
            own, other = [step["queries"][0] for step in record["steps"] if step.get("request") == "retrieve"]
            assert own == record["question"] != other
            assert other in others


def test_what_models_could_not_do_is_counted_at_the_end(idx: Command, tmp_path: Path) -> None:
    endpoint = Endpoint(ScriptedLLM(lambda call: "x"))
    endpoint.refuses.add("temperature")
    with serving(endpoint) as url:
        asked = ("run", "direct", "--questions", questions(tmp_path, "one?", "two?"), "--llm", f"openai:tiny@{url}")
        idx(*asked, "--out", tmp_path / "told")
        assert "note: 2 questions: the endpoint sets the temperature\n" in idx.err
        report = idx.json(*asked, "--out", tmp_path / "out")
    assert report["degraded"] == [{"questions": 2, "rule": "the endpoint sets the temperature"}]


def unsure_of_yes_and_no(path: str, body: dict[str, Any]) -> Answer:
    """Give yes and no a fifth of the probability together, as a fake server."""
    tops = [{"token": token, "logprob": math.log(p)} for token, p in (("The", 0.8), ("Yes", 0.05), ("no", 0.15))]
    return chat("The", logprobs={"content": [{**tops[0], "top_logprobs": tops}]} if "logprobs" in body else None)


def test_yes_and_no_of_little_mass_are_told_by_the_run_and_by_its_evaluation(idx: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ("run", "ra_isf", *SAMPLE, "--limit", "2", "--set", "verdicts=probability", "--set", "max_depth=0", "--no-steps")
    with fake_serving(FakeServer(unsure_of_yes_and_no)) as url:
        idx(*asked, "--llm", f"openai:fake@{url}", "--out", tmp_path / "told")
        told = idx.err
        report = idx.json(*asked, "--llm", f"openai:fake@{url}", "--out", out)
    n_asked = report["yes_no"]["asked"]
    assert n_asked >= 2
    assert report["yes_no"]["mass"] == pytest.approx(0.2)
    assert f"{n_asked} yes/no questions: yes and no together have a probability of 0.20 on average; their scores mean little\n" in told
    assert idx.json("eval", "answers", out)["yes_no"] == {"asked": n_asked, "mass": pytest.approx(0.2)}
    assert "below 0.5 on average: the scores mean little" in idx("eval", "answers", out)


def test_the_model_that_answered_is_recorded_and_told_if_it_has_another_name(idx: Command, tmp_path: Path) -> None:
    """Fake servers that call their model 'fake', whatever name is asked for."""
    asked = ("run", "direct", "--questions", questions(tmp_path, "one?"))
    with fake_serving(FakeServer(lambda path, body: chat("Mercury"))) as url:
        for name, is_told in (("gpt", True), ("fake-135m", False)):
            idx(*asked, "--llm", f"openai:{name}@{url}", "--out", tmp_path / name)
            assert (f"note: the endpoint calls the model that answered 'fake', not '{name}'\n" in idx.err) == is_told
    assert run_record(tmp_path / "gpt")["sessions"][-1]["models"] == ["fake"]
    assert lines(tmp_path / "gpt")[0]["models"] == ["fake"]


def test_more_questions_of_the_same_file_may_follow(idx: Command, script: Script, tmp_path: Path) -> None:
    asked = ("run", "rag", *SAMPLE, "--llm", script({"match": "", "text": "x"}), "--out", tmp_path / "out", "--no-steps")
    for limit, more in (("3", ()), ("5", ("--in-flight", "1"))):
        assert f"{limit} questions, {limit} answered" in idx(*asked, "--limit", limit, *more)
    assert [record["id"] for record in lines(tmp_path / "out")] == [one.id for one in sample.questions()[:5]]
    assert all("steps" not in record and record["cost"]["calls"] == 1 for record in lines(tmp_path / "out"))


def test_predictions_are_in_the_order_of_the_questions(idx: Command, script: Script, tmp_path: Path) -> None:
    """The first question takes more steps than the others. With a limit, or after an interruption, the file is the same in the end."""
    file = questions(tmp_path, "long?", "one?", "two?")
    parts = {"role": "decompose", "match": "long?", "text": "1. Who?\n2. When?"}
    model = script(parts, {"role": "decompose", "match": "", "text": "no parts"}, {"match": "", "text": "Ada"})
    asked = ("run", "least_to_most", "--questions", file, "--llm", model, "--set", "shots=0")
    for out, limits in (("whole", [()]), ("limited", [("--limit", "2"), ()])):
        for limit in limits:
            idx(*asked, *limit, "--out", tmp_path / out)
        assert [line["id"] for line in lines(tmp_path / out)] == ["q0", "q1", "q2"]
    assert [without_times(line) for line in lines(tmp_path / "whole")] == [without_times(line) for line in lines(tmp_path / "limited")]


def test_questions_are_answered_in_the_form_that_they_take(idx: Command, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "claims.jsonl"
    claims = [{"id": 1, "claim": "It is.", "label": "SUPPORTS"}, {"id": 2, "claim": "It is not.", "label": "NOT ENOUGH INFO"}]
    file.write_text("".join(json.dumps(claim) + "\n" for claim in claims), encoding="utf-8")
    asked = ("--questions", file, "--llm", script({"match": "", "text": "True."}), "--out", tmp_path / "out")
    idx("run", "direct", *asked)
    assert "the questions take the form fever: a verdict on a claim (FEVER)\n" in idx.err
    assert {name: record["answer"] for name, record in outcome(tmp_path / "out").items()} == {"1": "SUPPORTS", "2": "SUPPORTS"}
    assert run_record(tmp_path / "out")["settings"]["options"]["form"]["value"] == "fever"
    idx("run", "direct", *asked[:-1], tmp_path / "short", "--set", "form=short")
    assert outcome(tmp_path / "short")["1"]["answer"] == "True."


def test_a_failed_question_is_recorded_and_the_run_goes_on(idx: Command, tmp_path: Path) -> None:
    file, out = questions(tmp_path, "one?", "two?", "three?", "four?"), tmp_path / "out"
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"match": "one?", "text": "1"}\n{"match": "four?", "text": "4"}\n')
    asked = ("run", "direct", "--questions", file, "--llm", f"scripted:{answers}", "--out", out)
    idx(*asked, status=1)
    summary, reason = idx.out.splitlines()
    assert summary == f"{out}: 4 questions, 2 answered, 2 failed"
    assert re.match(r"    2 × LLMError: the script has 0 answers, and there is one more call, of role 'answer': '.*two\?", reason)
    assert "add --retry-failed" in idx.err
    assert {record["id"]: record["answer"] for record in lines(out)} == {"q0": "1", "q1": "", "q2": "", "q3": "4"}
    failed = [record["error"] for record in lines(out) if record["error"]]
    assert [error.partition(":")[0] for error in failed] == ["LLMError", "LLMError"]
    report = idx.json(*asked, status=1)
    assert (report["questions"], report["answered"], [one["questions"] for one in report["failed"]]) == (4, 2, [2])
    assert report["failed"][0]["error"] == failed[0]
    assert len(lines(out)) == 4  # they are asked again only on request


def test_failed_questions_are_asked_again_when_that_is_wanted(idx: Command, tmp_path: Path) -> None:
    answered: list[str] = []

    def answer(call: Call) -> Scripted:
        answered.append(str(call.prompt))
        return "x"

    endpoint, out = Endpoint(ScriptedLLM(answer)), tmp_path / "out"
    endpoint.faults.extend([refusal("made to fail", 500)] * 4)
    with serving(endpoint) as url:
        asked = ("run", "rag", *SAMPLE, "--limit", "12", "--llm", f"openai:tiny@{url}", "--retries", "0", "--out", out)
        idx(*asked, status=1)
        assert ": 12 questions, 8 answered, 4 failed\n    4 × " in idx.out
        again = idx.json(*asked, "--retry-failed")
    assert (again["answered"], again["failed"], again["cost"]["calls"]) == (12, [], 4)
    assert len(answered) == 12
    assert len(lines(out)) == 16
    assert all(record["error"] is None for record in outcome(out).values())


def test_other_settings_are_refused(idx: Command, script: Script, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, text in (("one", "one?"), ("two", "two?")):
        (tmp_path / name).mkdir()
        questions(tmp_path / name, text)
    options = {
        "--corpus": "sample",
        "--set": "k=2",
        "--seed": "0",
        "--search": "depth=100",
        "--questions": str(tmp_path / "one" / "questions.jsonl"),
        "--llm": script({"match": "", "text": "x"}),
    }

    def command(method: str = "rag", *more: str, **changed: str) -> list[object]:
        given = options | {f"--{name}": value for name, value in changed.items()}
        return ["run", method, *(part for option in given.items() for part in option), *more, "--out", out]

    idx(*command())
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    for other, message in (
        (command(set="k=3"), "options.k.value was 2 and is 3"),
        (command(seed="1"), "seed was 0 and is 1"),
        (command(search="depth=50"), "search.options.depth was 100 and is 50"),
        (command("rag", "--no-steps"), "steps was true and is false"),
        (command(context="100"), "context was not set and is 100"),
        (command(llm=script({"match": "", "text": "y"})), "models.answer.sha256 was"),
        (command(questions=str(tmp_path / "two" / "questions.jsonl")), "questions.sha256 was"),
        (command("self_reasoning"), 'method was "rag" and is "self_reasoning"'),
    ):
        said = idx(*other, status=2)
        assert f"{out} holds a run with other settings: " in said
        assert message in said
        assert "take another folder for --out" in said
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    with open_run(out, run_record(out)["settings"], {}):
        assert "another process is at work on the run" in idx(*command(), status=2)


def test_no_secret_is_written_down(idx: Command, tmp_path: Path) -> None:
    asked = ("run", "direct", "--questions", questions(tmp_path, "one?"), "--api-key", "geheim", "--retries", "0")
    idx(*asked, "--llm", "openai:x@http://user:geheim@127.0.0.1:9/v1", "--out", tmp_path / "out", status=1)
    assert ": 1 questions, 0 answered, 1 failed\n" in idx.out.replace("1 question,", "1 questions,")
    assert "nobody listens" in idx.out
    (session,) = run_record(tmp_path / "out")["sessions"]
    assert session["command"][5:7] == ["--api-key", "…"]
    assert "openai:x@http://127.0.0.1:9/v1" in session["command"]
    assert b"geheim" not in (tmp_path / "out" / RUN).read_bytes()


def test_a_dry_run_shows_the_first_question_and_writes_nothing(idx: Command, tmp_path: Path) -> None:
    asked = ("run", "rag", "--questions", questions(tmp_path, "one?", "two?"), "--out", tmp_path / "out", "--dry-run")
    output = idx(*asked)
    assert output.startswith("one?\n├── depth 1: retrieve 5: one?\n")
    assert "[user]" in output
    assert "two?" not in output
    shown = idx.json(*asked)
    assert (shown["questions"], shown["first"]["id"], shown["settings"]["models"]) == (2, "q0", {"answer": {"backend": "stand-in"}})
    assert not (tmp_path / "out").exists()
