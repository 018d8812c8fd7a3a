"""A small OpenAI-compatible HTTP server, for tests: a real model behind it, or given answers, and every bad behaviour on demand."""

from __future__ import annotations

import http.server
import itertools
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from tests.loopback import listening
from wikidx.runtimes.errors import PromptTooLong
from wikidx.runtimes.llms.base import LLM, Choice, Decoding, Gen, Generate, JsonSchema, Message, Prompt, Reply, Schema, TokenIds
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

NO_HEADERS: Mapping[str, str] = {}

Alternatives = Callable[[Prompt, int], list[tuple[str, float]]]
"""A prompt and a number -> the likeliest next tokens with their log-probabilities."""


class Echo(NamedTuple):
    """A prompt's tokens, the log-probability of each but the first, and where each begins."""

    tokens: list[str]
    logprobs: list[float | None]
    offsets: list[int]


class Endpoint:
    """The behaviour of the server.

    Attributes:
        llm: the model that answers.
        model: the model's name.
        alternatives, echo: sources of logprobs; None: no logprobs.
        faults: of the next requests: a status ("500"), one with Retry-After ("429 0.2"), or one of ``_FAULTS``.
        refuses: parts of a body that are answered with 400.
        paths: available paths.
        top: maximum number of alternatives.
        owner: reported owner of the models; "vllm" for vLLM's server.
        context: reported context length; None: not reported.
        seconds: duration of an answer.
        refuses_turns: roles of a chat -> status and message of a chat template's refusal; None: the chat is accepted.
        one_choice: whether it gives one text, however many are requested.
        bodies, keys, times: the bodies received, with their keys and times.
        busiest: maximum number of concurrent requests so far.
    """

    def __init__(self, llm: LLM, *, alternatives: Alternatives | None = None, echo: Callable[[str], Echo] | None = None) -> None:
        self.llm, self.alternatives, self.echo = llm, alternatives, echo
        self.model = "tiny"
        self.faults: deque[str] = deque()
        self.refuses: set[str] = set()
        self.paths = {"/v1/chat/completions", "/v1/completions", "/v1/models"}
        self.top, self.owner, self.context, self.seconds = 20, "vllm", None, 0.0
        self.one_choice = False
        self.refuses_turns: Callable[[list[str]], tuple[int, str] | None] = lambda roles: None
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.busy = self.busiest = 0
        self.lock, self.model_lock = threading.Lock(), threading.Lock()

    def complete(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer a body with a status and another body."""
        for name in self.refuses & set(body):
            return 400, {"error": {"message": f"Unrecognized request argument supplied: '{name}'", "param": name, "code": None}}
        if refusal := self.refuses_turns([turn["role"] for turn in body.get("messages", ())]):
            return refusal[0], {"error": {"message": refusal[1], "type": "made", "code": refusal[0]}}
        top = body.get("top_logprobs") if "messages" in body else body.get("logprobs")
        if top and top > self.top:
            return 400, {"error": {"message": f"top_logprobs must be at most {self.top}", "param": "top_logprobs", "code": None}}
        call = call_of(body)
        with self.model_lock:
            (reply,) = self.llm.run([call])
            if isinstance(reply, PromptTooLong):
                said = f"This model's maximum context length is {self.llm.capabilities.context} tokens. Please send fewer."
                return 400, {"error": {"message": said, "code": "context_length_exceeded", "param": "messages"}}
            assert isinstance(reply, Reply), reply
            return 200, self._answer(body, call, reply)

    def _answer(self, body: Mapping[str, Any], call: Generate, reply: Reply) -> dict[str, Any]:
        assert isinstance(reply.result, tuple)
        gens = reply.result[:1] if self.one_choice else reply.result
        choices = [self._choice(body, call, gen, index) for index, gen in enumerate(gens)]
        return {
            "id": "made",
            "object": "made",
            "choices": choices,
            "usage": {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens},
        }

    def _choice(self, body: Mapping[str, Any], call: Generate, gen: Gen, index: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": gen.finish, "logprobs": None}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": gen.text}
        else:
            choice["text"] = gen.text
        if not body.get("logprobs") or self.alternatives is None or gen.logprobs is None:
            return choice
        top = body.get("top_logprobs", 0) if "messages" in body else body["logprobs"]
        others = self.alternatives(call.prompt, top) if top else []
        if "messages" in body:
            tokens = zip(pieces(gen), gen.logprobs, strict=True)
            content = [{"token": token, "logprob": logprob, "top_logprobs": []} for token, logprob in tokens]
            content[0]["top_logprobs"] = [{"token": token, "logprob": logprob} for token, logprob in others]
            choice["logprobs"] = {"content": content}
        elif body.get("echo"):
            assert self.echo is not None
            echoed = self.echo(body["prompt"])
            choice["logprobs"] = {
                "tokens": echoed.tokens,
                "token_logprobs": echoed.logprobs,
                "text_offset": echoed.offsets,
                "top_logprobs": None,
            }
        else:
            choice["logprobs"] = {
                "tokens": pieces(gen),
                "token_logprobs": list(gen.logprobs),
                "top_logprobs": [dict(others)],
                "text_offset": [0],
            }
        return choice


def pieces(gen: Gen) -> list[str]:
    """Return the text of each token."""
    assert gen.ends is not None
    return [gen.text[start:end] for start, end in itertools.pairwise((0, *gen.ends))]


def call_of(body: Mapping[str, Any]) -> Generate:
    """Read a body."""
    prompt: Prompt
    if "messages" in body:
        prompt = tuple(Message(turn["role"], turn["content"]) for turn in body["messages"])
    else:
        prompt = TokenIds(tuple(body["prompt"])) if isinstance(body["prompt"], list) else body["prompt"]
    decoding = Decoding(
        max_tokens=body.get("max_tokens") or body.get("max_completion_tokens") or 16,
        temperature=body.get("temperature", 1.0),
        top_p=body.get("top_p", 1.0),
        stop=tuple(body.get("stop", ())),
        seed=body.get("seed"),
    )
    schema: Schema | None = None
    if "structured_outputs" in body and "choice" in body["structured_outputs"]:
        schema = Choice(tuple(body["structured_outputs"]["choice"]))
    elif "response_format" in body:
        schema = JsonSchema.of(body["response_format"]["json_schema"]["schema"])
    return Generate(prompt=prompt, decoding=decoding, n=body.get("n", 1), schema=schema, logprobs=bool(body.get("logprobs")))


def _json(answer: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(answer).encode(), "application/json"


def _with_choice(**changed: object) -> Callable[[dict[str, Any]], tuple[bytes, str]]:
    return lambda answer: _json({**answer, "choices": [{**answer["choices"][0], **changed}]})


_FAULTS: Mapping[str, Callable[[dict[str, Any]], tuple[bytes, str]]] = {
    "cut": _json,
    "slow": _json,
    "empty": lambda answer: _json({**answer, "choices": []}),
    "no choices": lambda answer: _json({"object": "made"}),
    "html": lambda answer: (b"<html>proxy</html>", "text/html"),
    "half": lambda answer: (_json(answer)[0][:40], "application/json"),
    "text/plain": lambda answer: (_json(answer)[0], "text/plain"),
    "null": _with_choice(finish_reason="content_filter", message={"role": "assistant", "content": None}, logprobs=None),
    "no logprobs": _with_choice(logprobs=None),
    "thinking": _with_choice(message={"role": "assistant", "content": "<think>\nParis? No.</think>\n\nRome"}),
    "thinking on": _with_choice(message={"role": "assistant", "content": "Paris? No.</think>\n\nRome"}),  # begun by the template
    "endless thinking": _with_choice(message={"role": "assistant", "content": "<think>\nParis? No."}, finish_reason="length"),
    "surrogate": _with_choice(message={"role": "assistant", "content": "caf\u00e9 \ud83d!"}),
}


class _Handler(http.server.BaseHTTPRequestHandler):
    endpoint: Endpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_GET(self) -> None:
        about = {"id": self.endpoint.model, "object": "model", "owned_by": self.endpoint.owner}
        if self.endpoint.context is not None:
            about["max_model_len"] = self.endpoint.context
        found = self.path in self.endpoint.paths
        self.send(200 if found else 404, {"object": "list", "data": [about]} if found else {"detail": "Not Found"})

    def do_POST(self) -> None:
        endpoint = self.endpoint
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.endswith("/completions"):
            self.send(404, {"detail": "Not Found"})
            return
        with endpoint.lock:
            endpoint.bodies.append(body)
            endpoint.keys.append(self.headers["authorization"])
            endpoint.times.append(time.monotonic())
            fault = endpoint.faults.popleft() if endpoint.faults else ""
            endpoint.busy += 1
            endpoint.busiest = max(endpoint.busiest, endpoint.busy)
        try:
            time.sleep(endpoint.seconds)
            if self.path not in endpoint.paths:
                self.send(404, {"detail": "Not Found"})
            elif fault:
                self.fail(fault, body)
            elif body["model"] != endpoint.model:
                self.send(404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": "model_not_found"}})
            else:
                self.send(*endpoint.complete(body))
        finally:
            with endpoint.lock:
                endpoint.busy -= 1

    def fail(self, fault: str, body: Mapping[str, Any]) -> None:
        status, _, after = fault.partition(" ")
        if status.isdigit():
            self.send(int(status), {"error": {"message": "made to fail"}}, {"retry-after": after} if after else {})
            return
        answer = self.endpoint.complete(body)[1]
        if fault == "slow":
            time.sleep(2.5)
        if fault == "slow headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
            for _ in range(80):  # 8 seconds, unless the client has gone
                self.wfile.write(b"x")
                time.sleep(0.1)
            self.close_connection = True
            return
        if fault in ("trickle", "endless"):
            self.write(200, b" ", announced=1 << 40)
            for _ in range(80):  # 8 seconds or 80 MB, unless the client has gone
                self.wfile.write(b" " if fault == "trickle" else b" " * 1_000_000)
                time.sleep(0.1 if fault == "trickle" else 0)
            self.close_connection = True
            return
        content, kind = _FAULTS[fault](answer)
        if fault != "cut":
            self.write(200, content, kind)
            return
        self.write(200, content, kind, announced=10_000)  # more than comes before the connection ends
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> None:
        self.write(status, json.dumps(body).encode(), headers=headers)

    def write(
        self,
        status: int,
        content: bytes,
        kind: str = "application/json",
        *,
        announced: int | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(announced or len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[str]:
    """Serve an endpoint on the loopback address; yield its URL."""
    with listening(type("Handler", (_Handler,), {"endpoint": endpoint})) as url:
        yield f"{url}/v1"


def tiny_endpoint(engine: TransformersEngine) -> Endpoint:
    """Return an endpoint over a local checkpoint, with its logprobs."""

    def alternatives(prompt: Prompt, top: int) -> list[tuple[str, float]]:
        ((_, probabilities),) = engine._model.next_token_probabilities([engine._encode_prompt(prompt, "off")[0]])
        best = probabilities.topk(top)
        return [(engine._tokenizer.decode([token]), float(p.log())) for p, token in zip(best.values, best.indices.tolist(), strict=True)]

    def echo(text: str) -> Echo:
        read = engine._tokenizer(text, return_offsets_mapping=True)
        ids = read["input_ids"]
        with torch.inference_mode():
            logprobs = engine._model._logits(engine._model._pad([ids]), len(ids))[0][0].log_softmax(-1)
        scored = [None, *(float(logprobs[place - 1, token]) for place, token in enumerate(ids) if place)]
        return Echo([text[start:end] for start, end in read["offset_mapping"]], scored, [start for start, _ in read["offset_mapping"]])

    return Endpoint(engine, alternatives=alternatives, echo=echo)
