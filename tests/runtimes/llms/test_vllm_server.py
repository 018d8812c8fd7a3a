"""vLLM as a child, without vLLM: a stand-in of its command, and answers in the form that vLLM documents."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, FAST, TURNS, gens
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving
from wikidx.base.errors import IdxError, InputError
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms import served, vllm_server
from wikidx.runtimes.llms.base import (
    AskYesNo,
    Choice,
    Decoding,
    Generate,
    JsonSchema,
    MeanNll,
    Message,
    Nll,
    Regex,
    Reply,
    Schema,
    TokenIds,
    YesNo,
)
from wikidx.runtimes.llms.naming import assign_models, close_llms, open_llms
from wikidx.runtimes.llms.openai_model import OpenAIHttp
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
    time.sleep(0.5)
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
def test_a_server_that_does_not_start_tells_why_in_one_line(stand_in: Path, log: str, kind: type[IdxError], message: str) -> None:
    (stand_in / "log").write_text(log)
    with pytest.raises(kind, match=message) as error:
        Vllm("org/m")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert not list(stand_in.glob("*.log"))


def test_the_log_of_an_unknown_failure_is_kept_and_named(stand_in: Path) -> None:
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
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, free_gb: tuple[float, ...], options: list[str], share: str | None
) -> None:
    have_gpus(monkeypatch, *free_gb)
    open_models("vllm:org/m", options=options)
    arguments = json.loads((stand_in / "started.json").read_text())[0]
    flag = "--gpu-memory-utilization"
    assert (arguments[arguments.index(flag) + 1] if flag in arguments else None) == share


def test_several_models_divide_what_one_with_a_share_of_its_own_leaves(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have_gpus(monkeypatch, 70.0)
    opened = list[tuple[str, Any, int]]()

    class Opened(Vllm):
        def __init__(self, model: str, *, options: dict[str, Any], n_later: int, **_: object) -> None:
            opened.append((model, options.get("gpu_memory_utilization"), n_later))
            super().__init__(model, options=options, n_later=n_later)

    monkeypatch.setattr(vllm_server, "Vllm", Opened)
    open_models("vllm:a", "know=vllm:b", "relevance=vllm:c", options=["relevance.gpu_memory_utilization=0.25"])
    assert opened == [("c", 0.25, 2), ("a", None, 1), ("b", None, 0)]


@pytest.mark.parametrize(
    ("free_gb", "options", "message"),
    [
        ((4.0,), {}, "no memory for vllm:org/m: 4.0 of 80.0 GB are free"),
        ((70.0,), {"tensor_parallel_size": 2}, "on 2 GPUs, but there are 1"),
    ],
)
def test_too_few_gpus_and_too_little_memory_are_told_before_a_start(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, free_gb: tuple[float, ...], options: dict[str, int], message: str
) -> None:
    have_gpus(monkeypatch, *free_gb)
    with pytest.raises(IdxError, match=message):
        Vllm("org/m", options=options)
    assert not (stand_in / "started.json").exists()


PAGES = {"/v1/models": {"data": [{"id": "org/m", "owned_by": "vllm", "max_model_len": 512}]}}


@pytest.mark.parametrize("prompt", [TURNS, (*TURNS, Message("assistant", "It is")), "The river", TokenIds((1, 2, 3))])
def test_a_text_after_any_prompt_is_scored_by_its_ids(prompt: Any) -> None:  # noqa: ANN401 - a prompt
    """vLLM writes for each id of a prompt but the first the log-probabilities of that id and of likelier ones."""
    tokenized = list[dict[str, Any]]()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if path == "/tokenize":
            tokenized.append(body)
            ids = [8, 9] if body.get("prompt") == " yes" else [1, 2, 3]
            return 200, {"tokens": ids, "count": len(ids), "max_model_len": 512}
        scores = {8: -0.5, 9: -0.25}
        entries: list[dict[str, Any] | None] = [
            None,
            *({str(token): {"logprob": scores.get(token, -7.0), "rank": 2, "decoded_token": "x"}} for token in body["prompt"][1:]),
        ]
        entries[-1] = {**(entries[-1] or {}), "5": {"logprob": -0.01, "rank": 1, "decoded_token": "y"}}
        choice = {"index": 0, "text": "z", "finish_reason": "length", "logprobs": None, "prompt_logprobs": entries}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}

    server = FakeServer(answer, PAGES)
    with fake_serving(server) as url:
        model = OpenAIHttp("org/m", url, options=FAST)
        (reply,) = model.run([MeanNll(prompt=prompt, continuation=" yes")])
        model.close()
    assert isinstance(reply, Reply)
    assert (reply.result, reply.prompt_tokens) == (Nll(total=0.75, n_tokens=2), 5)
    (body,) = server.bodies
    assert (body["prompt"], body["prompt_logprobs"], body["max_tokens"]) == ([1, 2, 3, 8, 9], 0, 1)
    if not isinstance(prompt, str | TokenIds):
        continues = len(prompt) == 3
        flags = {"add_generation_prompt": not continues, "continue_final_message": continues}
        assert tokenized[0] | flags == tokenized[0]
        assert tokenized[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_constraints_and_logprobs_are_asked_for_in_vllm_s_fields() -> None:
    content = [
        {"token": "Y", "bytes": [89], "logprob": math.log(0.6), "top_logprobs": [{"token": "Yes", "logprob": math.log(0.6), "bytes": [89]}]}
    ]
    server = FakeServer(lambda path, body: chat("Yes", logprobs={"content": content}), PAGES)
    schemas: list[Schema] = [Choice(("a", "b")), Regex("[ab]+"), JsonSchema.of({"type": "object"})]
    with fake_serving(server) as url:
        model = OpenAIHttp("org/m", url, options=FAST)
        replies = [*(model.run([Generate(prompt=TURNS, schema=schema)])[0] for schema in schemas), *model.run([AskYesNo(prompt=TURNS)])]
        assert model.capabilities.structured == {"choice", "regex", "json"}
        model.close()
    assert [gens(reply)[0].degraded for reply in replies[:3]] == [()] * 3
    choice, regex, schema, asked = server.bodies
    assert (choice["structured_outputs"], regex["structured_outputs"]) == ({"choice": ["a", "b"]}, {"regex": "[ab]+"})
    assert schema["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (asked["logprobs"], asked["top_logprobs"], asked["max_tokens"]) == (True, 20, 1)
    scored = replies[3]
    assert isinstance(scored, Reply)
    assert isinstance(scored.result, YesNo)
    assert scored.result.p_positive == pytest.approx(0.6)
    assert scored.result.p_negative == 0.0
