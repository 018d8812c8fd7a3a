"""A fake of a server over a model, for tests: its texts and scores in the form of OpenAI's API, whole or streamed."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tests.runtimes.llms.fake_server import WIRES, Answer, FakeServer, Stream, Wire, fake_serving, refusal, streamed
from wikidx.runtimes.errors import PromptTooLong
from wikidx.runtimes.llms.base import LLM, Gen, Generate, Reply
from wikidx.runtimes.llms.prompts import Choice, Decoding, JsonSchema, Message, Prompt, Schema, TokenIds
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

serving = fake_serving


class Scores(NamedTuple):
    """Scores and tokens of a model, as its server knows them.

    Attributes:
        likeliest: a prompt and a number -> the likeliest next tokens with their log-probabilities.
        split: a text, and whether special tokens are added -> ids.
        ids: a prompt -> ids.
        join: ids -> text.
        logprobs: ids -> the log-probability of each but the first.
    """

    likeliest: Callable[[Prompt, int], list[tuple[str, float]]]
    split: Callable[[str, bool], list[int]]
    ids: Callable[[Prompt], Sequence[int]]
    join: Callable[[Sequence[int]], str]
    logprobs: Callable[[Sequence[int]], list[float]]


class Endpoint(FakeServer):
    """A server over a model.

    Attributes:
        llm: the model that answers.
        model: the model's name.
        scores: source of logprobs; None: no logprobs and no tokenizer.
        wire: form of its streams; None: it answers at once.
        faults: answers to the next requests, in place of the model's.
        refuses: fields of a body that are answered with 400.
        paths: available paths.
        top: maximum number of alternatives.
        seconds: duration of an answer.
    """

    def __init__(self, llm: LLM, scores: Scores | None = None, wire: Wire | None = None) -> None:
        super().__init__(self._answer, wire.pages if wire else {"/v1/models": {"data": [{"id": "tiny", "owned_by": "vllm"}]}})
        self.llm, self.scores, self.wire = llm, scores, wire
        self.model = "fake" if wire else "tiny"
        self.faults: deque[Answer] = deque()
        self.refuses: set[str] = set()
        self.paths = {"/v1/chat/completions", "/v1/completions"}
        self.top, self.seconds = 20, 0.0
        self._lock, self._model_lock = threading.Lock(), threading.Lock()

    def _answer(self, path: str, body: dict[str, Any]) -> Answer | Stream:
        if not path.endswith("/completions"):
            return self._convert(path, body)
        time.sleep(self.seconds)
        if path not in self.paths:
            return refusal("Not Found", 404)
        with self._lock:
            if self.faults:
                return self.faults.popleft()
        if body["model"] != self.model:
            return refusal(f"The model `{body['model']}` does not exist.", 404)
        status, answer = self.complete(body)
        return streamed(answer, self.wire) if self.wire and status == 200 and body.get("stream") else (status, answer)

    def _convert(self, path: str, body: dict[str, Any]) -> Answer:
        """Answer a request for ids or for their text, of vLLM, SGLang or llama.cpp."""
        if self.scores is None or not path.endswith("tokenize"):
            return refusal("Not Found", 404)
        if path == "/detokenize":
            return 200, dict.fromkeys(("prompt", "text", "content"), self.scores.join(body["tokens"]))
        if "messages" in body:
            return 200, {"tokens": list(self.scores.ids(call_of(body).prompt))}
        is_whole = "content" not in body and body.get("add_special_tokens", True)
        return 200, {"tokens": self.scores.split(body["content"] if "content" in body else body["prompt"], is_whole)}

    def complete(self, body: Mapping[str, Any]) -> Answer:
        """Answer a body with a status and another body."""
        for name in self.refuses & set(body):
            return 400, {"error": {"message": f"Unrecognized request argument supplied: '{name}'", "param": name, "code": None}}
        top = body.get("top_logprobs") if "messages" in body else body.get("logprobs")
        if top and top > self.top:
            return 400, {"error": {"message": f"top_logprobs must be at most {self.top}", "param": "top_logprobs", "code": None}}
        call = call_of(body)
        with self._model_lock:
            (reply,) = self.llm.run([call])
            if isinstance(reply, PromptTooLong):
                said = f"This model's maximum context length is {self.llm.capabilities.context} tokens. Please send fewer."
                return 400, {"error": {"message": said, "code": "context_length_exceeded", "param": "messages"}}
            assert isinstance(reply, Reply), reply
            assert isinstance(reply.result, tuple)
            choices = [self._choice(body, call, gen, index) for index, gen in enumerate(reply.result)]
        usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
        return 200, {"id": "made", "object": "made", "model": self.model, "choices": choices, "usage": usage}

    def _choice(self, body: Mapping[str, Any], call: Generate, gen: Gen, index: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": gen.finish, "logprobs": self._logprobs(body, call, gen)}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": gen.text}
        else:
            choice["text"] = gen.text
        if "prompt_logprobs" in body and self.scores:
            scored = zip(body["prompt"][1:], self.scores.logprobs(body["prompt"]), strict=True)
            choice["prompt_logprobs"] = [None, *({str(number): {"logprob": logprob}, "-1": {"logprob": 0.0}} for number, logprob in scored)]
        return choice

    def _logprobs(self, body: Mapping[str, Any], call: Generate, gen: Gen) -> dict[str, Any] | None:
        if not body.get("logprobs") or self.scores is None or gen.logprobs is None:
            return None
        if body.get("echo"):
            return echo(body["prompt"], self.scores)
        top = body.get("top_logprobs", 0) if "messages" in body else body["logprobs"]
        others = self.scores.likeliest(call.prompt, top) if top else []
        if "messages" in body:
            tokens = zip(pieces(gen), gen.logprobs, strict=True)
            content = [{"token": token, "logprob": logprob, "top_logprobs": []} for token, logprob in tokens]
            content[0]["top_logprobs"] = [{"token": token, "logprob": logprob} for token, logprob in others]
            return {"content": content}
        return {"tokens": pieces(gen), "token_logprobs": list(gen.logprobs), "top_logprobs": [dict(others)], "text_offset": [0]}


def echo(text: str, scores: Scores) -> dict[str, Any]:
    """Return the log-probabilities of a text's own tokens, in the form of completions."""
    ids = scores.split(text, True)
    parts = ["", *map(scores.join, ([number] for number in ids[1:]))]  # the first one is special
    offsets = [0, *itertools.accumulate(map(len, parts[:-1]))]
    return {"tokens": parts, "token_logprobs": [None, *scores.logprobs(ids)], "text_offset": offsets, "top_logprobs": None}


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
    if "response_format" in body:
        schema = JsonSchema.of(body["response_format"]["json_schema"]["schema"])
    elif choices := choices_of(body):
        schema = Choice(choices)
    return Generate(prompt=prompt, decoding=decoding, n=body.get("n", 1), schema=schema, logprobs=bool(body.get("logprobs")))


def choices_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the choices of a body in the words of vLLM, SGLang or llama.cpp; empty: it has none."""
    if "regex" in body:
        return tuple(body["regex"].strip("()").split("|"))
    if "grammar" in body:
        return tuple(re.findall(r'"(.*?)"', body["grammar"]))
    return tuple(body.get("structured_outputs", {}).get("choice", ()))


def tiny_endpoint(engine: TransformersEngine, wire: str | None = None) -> Endpoint:
    """Return an endpoint over a local checkpoint, with its scores, in the form of a server's streams."""
    tokenizer = engine._tokenizer

    def ids(prompt: Prompt) -> Sequence[int]:
        return engine._encode_prompt(prompt, "off")[0]

    def likeliest(prompt: Prompt, top: int) -> list[tuple[str, float]]:
        ((_, probabilities),) = engine._model.next_token_probabilities([ids(prompt)])
        best = probabilities.topk(top)
        return [(tokenizer.decode([token]), float(p.log())) for p, token in zip(best.values, best.indices.tolist(), strict=True)]

    def logprobs(ids: Sequence[int]) -> list[float]:
        with torch.inference_mode():
            scores = engine._model._logits(engine._model._pad([ids]), len(ids))[0][0].log_softmax(-1)
        return [float(scores[place, token]) for place, token in enumerate(ids[1:])]

    def split(text: str, is_whole: bool) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=is_whole))

    return Endpoint(engine, Scores(likeliest, split, ids, tokenizer.decode, logprobs), WIRES[wire] if wire else None)
