"""vLLM as a child, without vLLM: a stand-in of its command, and answers in the form that vLLM documents."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, TURNS, gens, wait_until
from wikidx.base.errors import IdxError, InputError
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms import served, vllm_server
from wikidx.runtimes.llms.base import Generate, Reply
from wikidx.runtimes.llms.naming import assign_models, close_llms, open_llms
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.vllm_server import Vllm

STAND_IN = """
import http.server, json, os, pathlib, subprocess, sys, time
folder, arguments = pathlib.Path(os.environ["STAND_IN"]), sys.argv[1:]
if (folder / "log").exists():
    sys.exit((folder / "log").read_text())
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
port = int(arguments[arguments.index("--port") + 1])
(folder / "started.json").write_text(json.dumps([arguments, os.getpid(), helper.pid, port]))

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def is_allowed(self):
        return not self.path.startswith("/v1") or self.headers["authorization"] == "Bearer " + os.environ["VLLM_API_KEY"]
    def do_GET(self):
        models = {"data": [{"id": arguments[1], "owned_by": "vllm", "max_model_len": 512}]}
        self.answer(200 if self.is_allowed() else 401, models if self.path == "/v1/models" else {})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("max_tokens") == 77:
            (folder / "asked").touch()
            time.sleep(600)
        choice = {"index": 0, "message": {"role": "assistant", "content": body["model"]}, "finish_reason": "stop"}
        self.answer(200 if self.is_allowed() else 401, {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})

http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stand-in of vLLM's package, which writes there how it was started."""
    (tmp_path / "vllm" / "entrypoints" / "cli").mkdir(parents=True)
    (tmp_path / "vllm" / "entrypoints" / "cli" / "main.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(folder: Path) -> bool:
    """Return whether the server and its helper end within seconds, and nobody listens any more."""
    _, *processes, port = json.loads((folder / "started.json").read_text())
    deadline = time.monotonic() + 30
    while any(map(is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    with socket.socket() as client:
        return not any(map(is_running, processes)) and client.connect_ex(("127.0.0.1", port)) != 0


def open_models(*specs: str, options: Sequence[str] = ()) -> None:
    close_llms(open_llms(assign_models(specs, ["answer", "know", "relevance"], options=options)).values())


def test_a_model_is_served_and_ends_with_all_that_it_has_started(stand_in: Path) -> None:
    model = Vllm("org/m", options={"tensor_parallel_size": 2, "enable_prefix_caching": False, "hf_overrides": {"a": 1}, "revision": "v2"})
    (reply,) = model.run([ASK])
    assert isinstance(reply, Reply)
    assert gens(reply)[0].text == "org/m"
    assert (model.name, model.capabilities.context, model.capabilities.chat) == ("vllm:org/m", 512, True)
    (_, name, *arguments), process, _, port = json.loads((stand_in / "started.json").read_text())
    assert name == "org/m"
    assert arguments == [
        *("--host", "127.0.0.1", "--port", str(port), "--generation-config", "vllm", "--uvicorn-log-level", "warning"),
        *("--tensor-parallel-size", "2", "--no-enable-prefix-caching", "--hf-overrides", '{"a": 1}', "--revision", "v2"),
        *("--tokenizer-revision", "v2"),
    ]
    assert os.getsid(process) != os.getsid(0)  # Ctrl-C reaches idx alone
    model.close()
    assert ended(stand_in)
    assert not list(stand_in.glob("*.log"))


def test_closing_fails_the_calls_in_progress(stand_in: Path) -> None:
    model = Vllm("org/m")
    reply = model._pool.submit(model.run, [Generate(prompt=TURNS, decoding=Decoding(max_tokens=77))])
    wait_until((stand_in / "asked").exists)
    model.close()
    assert isinstance(reply.result(timeout=30)[0], LLMError)
    assert ended(stand_in)


def test_the_server_ends_with_an_idx_that_is_killed(stand_in: Path) -> None:
    script = "import os, signal; from wikidx.runtimes.llms.vllm_server import Vllm; Vllm('org/m'); os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert ended(stand_in)


def test_an_interrupted_start_leaves_no_server(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(address: served.Address) -> bool:
        if (stand_in / "started.json").exists():
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr(served.Address, "is_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Vllm("org/m")
    assert ended(stand_in)
    assert not list(stand_in.glob("*.log"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The servers that would be started: name, command, and the reader of its log."""
    servers = list[dict[str, Any]]()

    def start(self: Vllm, model: str, command: list[str], address: object, **given: Any) -> None:  # noqa: ANN401
        servers.append({"model": model, "command": command, **given})

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(served.ServedLLM, "__init__", start)
    monkeypatch.setattr(served.ServedLLM, "close", lambda self: None)
    return servers


@pytest.mark.parametrize(
    ("log", "kind", "message"),
    [
        (
            "(EngineCore) ValueError: Free memory on device (1/80 GiB) is less\nRuntimeError: Engine core initialization failed.",
            LLMError,
            "the GPU has too little memory for 'vllm:org/m': ValueError: Free memory on device .* by --llm-option gpu_memory_utilization",
        ),
        ("RuntimeError: Failed to infer device type", LLMError, "vLLM finds no GPU for 'vllm:org/m': use hf:"),
        (
            "usage: vllm serve\nvllm: error: unrecognized arguments: --quantisation fp8",
            InputError,
            "cannot serve 'vllm:org/m': error: unrecognized arguments: --quantisation fp8",
        ),
        ("ValueError: " + "long " * 200, InputError, "cannot serve 'vllm:org/m': ValueError: long"),
    ],
)
def test_a_server_that_does_not_start_tells_why_in_one_line(
    started: list[dict[str, Any]], log: str, kind: type[IdxError], message: str
) -> None:
    Vllm("org/m")
    error = started[0]["explain"](log)
    assert isinstance(error, kind)
    assert re.search(message, str(error))
    assert "\n" not in str(error)
    assert len(str(error)) < 500


def test_the_log_of_an_unknown_failure_is_kept_and_named(stand_in: Path) -> None:
    (stand_in / "log").write_text("RuntimeError: Failed to infer device type")
    with pytest.raises(LLMError, match="vLLM finds no GPU"):
        Vllm("org/m")
    assert not list(stand_in.glob("*.log"))
    (stand_in / "log").write_text("first\nIllegal instruction\n\n")
    with pytest.raises(LLMError, match="vllm:org/m ended before it was ready: Illegal instruction; its log is ") as error:
        Vllm("org/m")
    assert Path(str(error.value).rpartition(" ")[2]).read_text().startswith("first\n")


def have_gpus(monkeypatch: pytest.MonkeyPatch, *free_gb: float) -> None:
    monkeypatch.setattr(vllm_server, "count_gpus", lambda: len(free_gb))
    monkeypatch.setattr(vllm_server, "_free_and_total", lambda number: (free_gb[number] * 1e9, 80e9))


@pytest.mark.parametrize(
    ("free_gb", "options", "share"),
    [
        ((79.5,), [], "0.92"),  # vLLM's default
        ((47.5,), [], "0.55"),  # (47.5 - 3.2) / 80
        ((47.5,), ["gpu_memory_utilization=0.7"], "0.7"),
        ((47.5,), ["kv_cache_memory_bytes=9000000000"], None),
        ((79.5, 47.5), [], "0.92"),
        ((79.5, 47.5), ["tensor_parallel_size=2"], "0.55"),  # the fullest GPU decides
    ],
)
def test_the_free_memory_is_taken(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, free_gb: tuple[float, ...], options: list[str], share: str | None
) -> None:
    have_gpus(monkeypatch, *free_gb)
    open_models("vllm:org/m", options=options)
    arguments, flag = started[0]["command"], "--gpu-memory-utilization"
    assert (arguments[arguments.index(flag) + 1] if flag in arguments else None) == share


def test_several_models_divide_what_one_with_a_share_of_its_own_leaves(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one with a share of its own is first. The last two divide 70 GB, less 3.2 GB for searches, as both count them."""
    have_gpus(monkeypatch, 70.0)
    open_models("vllm:a", "know=vllm:b", "relevance=vllm:c", options=["relevance.gpu_memory_utilization=0.25"])
    shares = [(one["model"], one["command"][one["command"].index("--gpu-memory-utilization") + 1]) for one in started]
    assert shares == [("c", "0.25"), ("a", "0.41"), ("b", "0.83")]


@pytest.mark.parametrize(
    ("free_gb", "options", "message"),
    [
        ((4.0,), {}, "no memory for vllm:org/m: 4.0 of 80.0 GB are free"),
        ((70.0,), {"tensor_parallel_size": 2}, "on 2 GPUs, but there are 1"),
    ],
)
def test_too_few_gpus_and_too_little_memory_are_told_before_a_start(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, free_gb: tuple[float, ...], options: dict[str, int], message: str
) -> None:
    have_gpus(monkeypatch, *free_gb)
    with pytest.raises(IdxError, match=message):
        Vllm("org/m", options=options)
    assert started == []
