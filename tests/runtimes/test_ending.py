"""The end of a process whose main thread fails or is interrupted while calls wait for a slow server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import Any

from tests.conftest import ROOT
from tests.runtimes.ending_cases import CASES, QUICK
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving


def test_no_process_waits_for_a_slow_server() -> None:
    is_over = threading.Event()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if QUICK not in json.dumps(body):
            is_over.wait(60)
        return chat("x") if path.endswith("/completions") else (401, {"error": "no", "error_type": "Unauthorized"})

    with fake_serving(FakeServer(answer, {"/v1/avail": {"search": ["any"]}})) as url:
        command = [sys.executable, "-m", "tests.runtimes.ending_cases", url]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        is_over.set()
    statuses = {"error": 0, "SIGINT": -signal.SIGINT, "SIGTERM": -signal.SIGTERM}
    assert json.loads(done.stdout) == {f"{case.__name__} {event}": statuses[event] for case, event in CASES}, done.stderr
