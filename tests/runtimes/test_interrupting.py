"""Ctrl-C while waiting for a model."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.conftest import ROOT
from tests.runtimes.llms.endpoint import Endpoint, serving
from tests.runtimes.test_cli import IDX
from tests.runtimes.test_cli import idx as idx_process
from tests.runtimes.test_run import questions
from wikidx.runtimes.llms.scripted import ScriptedLLM


def interrupt(endpoint: Endpoint, *command: str) -> None:
    """Press Ctrl-C while a command waits for an answer that takes a minute, and see that it ends at once, as such a command should."""
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


def test_ctrl_c_waits_for_no_model(tmp_path: Path) -> None:
    """The run can be resumed afterwards."""
    endpoint, out = Endpoint(ScriptedLLM(lambda call: "x")), tmp_path / "out"
    asked = ["direct", "--questions", str(questions(tmp_path, "one?", "two?")), "--in-flight", "1", "--out", str(out)]
    with serving(endpoint) as url:
        interrupt(endpoint, "run", *asked, "--llm", f"openai:tiny@{url}")
        endpoint.seconds = 0
        assert "2 questions, 2 answered" in idx_process("run", *asked, "--llm", f"openai:tiny@{url}").out


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
