"""Ctrl-C while waiting for a model, and while passages are embedded."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import zlib
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.commands import idx as idx_process
from tests.runtimes.command_line import IDX, Command, without_times
from tests.runtimes.llms.endpoint import Endpoint, serving
from tests.runtimes.test_run import questions
from wikidx.base.artifacts.building import staging_path
from wikidx.corpora.resolving import resolve
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.planning import Build, describe_interruption
from wikidx.indexer.vectors.file import finished_ranges
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.llms.base import Call
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.llms.scripted import ScriptedLLM


def interrupt(endpoint: Endpoint, *command: str) -> str:
    """Press Ctrl-C while a command waits for an answer that takes a minute, see that it ends at once, and return what it said."""
    endpoint.seconds = 60
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*IDX, *command], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        while not endpoint.bodies:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(1)  # until every request that can be is on its way
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in said) == (130, False)
    return said


def test_ctrl_c_waits_for_no_model(idx: Command, tmp_path: Path) -> None:
    """The run can be resumed afterwards."""
    endpoint, out = Endpoint(ScriptedLLM(lambda call: "x")), tmp_path / "out"
    asked = ["direct", "--questions", str(questions(tmp_path, "one?", "two?")), "--in-flight", "1", "--out", str(out)]
    with serving(endpoint) as url:
        interrupt(endpoint, "run", *asked, "--llm", f"openai:tiny@{url}")
        endpoint.seconds = 0
        assert "2 questions, 2 answered" in idx("run", *asked, "--llm", f"openai:tiny@{url}")


def test_an_interrupted_experiment_says_how_it_goes_on(idx: Command, tmp_path: Path) -> None:
    asked = "".join(f'{{"id": "{n}", "question": "{n}?", "golden_answers": ["x"]}}\n' for n in (1, 2))
    (tmp_path / "asked.jsonl").write_text(asked, encoding="utf-8")
    table = f'title = "t"\n[questions.q]\nfile = "{tmp_path / "asked.jsonl"}"\n[[rows]]\nname = "direct"\nmethod = "direct"\n'
    (tmp_path / "mine.toml").write_text(table, encoding="utf-8")
    endpoint, command = Endpoint(ScriptedLLM(lambda call: "x")), ["reproduce", f"{tmp_path / 'mine.toml'}", "--out", f"{tmp_path / 'out'}"]
    with serving(endpoint) as url:
        said = interrupt(endpoint, *command, "--in-flight", "1", "--llm", f"openai:tiny@{url}")
        assert said.splitlines()[-1] == "interrupted: the same command resumes, and then writes the report"
        endpoint.seconds = 0
        rows = [line.split() for line in idx(*command, "--llm", f"openai:tiny@{url}").splitlines()]
    assert ["direct", "squad_em", "100.0", "[100.0,", "100.0]", "2", "of", "2"] in rows


@pytest.mark.exhaustive
@pytest.mark.slow  # twenty processes
@pytest.mark.usefixtures("sample_home")
def test_twenty_kills_at_any_moment_lose_no_finished_question(tmp_path: Path) -> None:
    """The predictions of greedy decoding are those of a run that nobody killed."""

    def answer(call: Call) -> str:
        n = zlib.crc32(prompt_text(call.prompt).encode())
        return f"So the answer is: {n % 9}." if n % 4 == 0 else f"Thing {n % 99} is known."

    endpoint, drawn, n_lines = Endpoint(ScriptedLLM(answer)), random.Random(0), [0]
    endpoint.seconds = 0.3
    with serving(endpoint) as url:
        asked = ["run", "ircot", "--questions", "sample", "--corpus", "sample", "--llm", f"openai:tiny@{url}", "--concurrency", "4"]
        for _ in range(20):
            n_bodies = len(endpoint.bodies)
            process = subprocess.Popen([*IDX, *asked, "--out", str(tmp_path / "killed")], cwd=ROOT, stderr=subprocess.DEVNULL)
            while len(endpoint.bodies) == n_bodies and process.poll() is None:
                time.sleep(0.01)
            time.sleep(drawn.uniform(0, 1.5))
            process.kill()
            process.wait(30)
            n_lines.append((tmp_path / "killed" / PREDICTIONS).read_bytes().count(b"\n"))
        assert n_lines == sorted(n_lines)
        assert n_lines[-1] < 107
        endpoint.seconds = 0
        for name in ("killed", "whole"):
            assert "107 questions, 107 answered" in idx_process(*asked, "--out", tmp_path / name).out
    killed, whole = (dict(read_predictions(tmp_path / name)) for name in ("killed", "whole"))
    assert [without_times(one) for one in killed.values()] == [without_times(one) for one in whole.values()]


def test_ctrl_c_waits_for_no_teacher_and_no_judge(sample_home: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"id": "q-1", "answer": "Ada"}\n')
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"id": "q-1", "question": "Who?", "golden_answers": ["Ada"]}\n')
    teacher = f"train-data ra_isf --questions sample --leaks keep --corpus sample --out {tmp_path / 'data'} --llm"
    judge = f"eval answers {answers} --questions {asked} --judge"
    for command in (teacher, judge):
        endpoint = Endpoint(ScriptedLLM(lambda call: "yes"))
        with serving(endpoint) as url:
            interrupt(endpoint, *command.split(), f"openai:tiny@{url}")


def interrupt_build(command: list[str], number: signal.Signals) -> str:
    """Send a signal to a build as soon as it has embedded a range; return its last line."""
    staging = staging_path(index_ref("made", "minilm").path)
    before = finished_ranges(staging)
    process = subprocess.Popen([*IDX, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        while process.poll() is None and finished_ranges(staging) == before:
            time.sleep(0.01)
        process.send_signal(number)
        last = process.communicate(timeout=60)[1].splitlines()[-1]
    finally:
        process.kill()
    assert process.returncode == 130
    return last


@pytest.mark.slow  # processes that embed thousands of passages
def test_an_interrupted_build_says_what_is_finished_and_where_it_resumes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    path = tmp_path / "made.jsonl"
    path.write_text("".join(f'{{"id": {n}, "text": "river {n}"}}\n' for n in range(4_700)))
    command = ["build", str(path), "--bm25", "--encoder", "minilm"]
    for number in (signal.SIGINT, signal.SIGTERM):
        last = interrupt_build(command, number)
        n = sum(map(len, finished_ranges(staging_path(index_ref("made", "minilm").path))))
        assert (n % 1_024, n < 4_700) == (0, True)
        vectors = f"minilm has {n:,} of 4,700 vectors; the same command resumes from row {n:,}"
        assert last == f"stopped: passages, bm25 finished; {vectors}"
    assert "built 'made': minilm (4,700 rows)" in idx_process(*command).out


@pytest.mark.parametrize(
    ("stopped", "said"),
    [
        ("wikidx.indexer.planning._estimate_store", "stopped before anything was built: the same command begins again"),
        ("wikidx.corpora.store.writer.StoreWriter.finish", "stopped: the same command resumes with passages"),
    ],
)
def test_an_interrupted_build_is_told_and_goes_on(
    stopped: str, said: str, idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made.jsonl").write_text('{"id": 1, "text": "river"}\n')
    with monkeypatch.context() as patch:
        patch.setattr(stopped, lambda *_, **__: signal.raise_signal(signal.SIGINT))
        assert idx("build", tmp_path / "made.jsonl", status=130) == said
    assert idx("build", tmp_path / "made.jsonl") == "built 'made': passages (1 row), bm25 (1 row)\n"


def test_what_an_interruption_left_is_described(tmp_path: Path) -> None:
    (tmp_path / "made.jsonl").write_text('{"id": 1, "text": "river"}\n')
    spec = BuildSpec(resolve(str(tmp_path / "made.jsonl")), ("bm25", "minilm"))
    building = Build(spec)
    for said in (
        "stopped: the same command resumes with passages",
        "stopped: passages finished; the same command resumes with bm25",
        "stopped: passages, bm25 finished; the same command resumes with minilm",
    ):
        assert describe_interruption(spec, building.manifests) == said
        building.run_part(spec.artifacts[len(building.manifests)])
    assert describe_interruption(spec, building.manifests) == "stopped: passages, bm25, minilm finished"


def test_ctrl_c_while_modules_are_imported_is_silent() -> None:
    press = (
        "import os, sys; sys.addaudithook(lambda event, values: event == 'import' and values[0] == 'typer' and os.kill(os.getpid(), 2)); "
    )
    ended = subprocess.run([*IDX[:-1], press + IDX[-1], "list"], cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
