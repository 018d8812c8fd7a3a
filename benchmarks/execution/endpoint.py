"""A fake endpoint whose latency depends on the prompt alone, and whose answers make methods take steps as a good model does.

The latency is constant, 0.8 s, or lognormal with a median of 0.8 s and sigma 0.8, cut to 0.2 to 5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEDIAN_S, SIGMA, SHORTEST_S, LONGEST_S = 0.8, 0.8, 0.2, 5.0
KINDS = ("lognormal", "constant")


def text_of(body: dict[str, Any]) -> str:
    """Return the prompt of a request as one text."""
    return json.dumps(body.get("messages") or body.get("prompt"))


def latency(prompt: str, kind: str) -> float:
    """Return the latency of a prompt, in seconds."""
    if kind == "constant":
        return MEDIAN_S
    drawn = random.Random(prompt).lognormvariate(math.log(MEDIAN_S), SIGMA)
    return min(max(drawn, SHORTEST_S), LONGEST_S)


def reply(body: dict[str, Any], prompt: str) -> str:
    """Return the answer to a prompt; the method is the name of the model."""
    n = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big")
    word = ("mercury", "gold", "iron", "helium")[n % 4]
    if "response_format" in body or "structured_outputs" in body:
        return json.dumps({"reason": f"It is {word}.", "answer": word})
    if body["model"] == "ra_isf":
        return ("yes" if n % 3 else "no") if body.get("max_tokens", 64) <= 16 else f"1. Who found {word}?\n2. Where is {word} found?"
    if body["model"] == "react":
        return f"I need {word}.\nAction 1: Search[{word}]" if n % 3 else f"I know.\nAction 1: Finish[{word}]"
    return f"So the answer is: {word}." if body["model"] == "rag" or n % 4 == 0 else f"The {word} of number {n} is known."


def answer(body: dict[str, Any], prompt: str) -> dict[str, Any]:
    """Return the body of an answer."""
    text, p_yes = reply(body, prompt), random.Random(f"p{prompt}").uniform(0.05, 0.95)
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    if body.get("top_logprobs"):
        likeliest = [{"token": token, "logprob": math.log(p)} for token, p in (("yes", p_yes), ("no", 1 - p_yes))]
        choice["logprobs"] = {"content": [{"token": "yes", "logprob": math.log(p_yes), "top_logprobs": likeliest}]}
    return {"model": body["model"], "choices": [choice] * body.get("n", 1), "usage": {"prompt_tokens": 9, "completion_tokens": 3}}


async def serve(kind: str) -> None:
    """Serve the fake endpoint; print its port."""
    totals = {"calls": 0, "seconds": 0.0}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
                status, content = 200, dict(totals)
                if head.startswith("post") and "/completions" in head.split("\r\n")[0]:
                    body = json.loads(await reader.readexactly(length))
                    prompt = text_of(body)
                    seconds, content = latency(prompt, kind), answer(body, prompt)
                    totals["calls"] += 1
                    totals["seconds"] += seconds
                    await asyncio.sleep(seconds)
                elif not head.startswith("get /totals"):
                    await reader.readexactly(length)
                    status, content = 404, {}
                text = json.dumps(content).encode()
                writer.write(
                    f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text
                )
                await writer.drain()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def serving(kind: str) -> Iterator[str]:
    """Start the fake endpoint in a process of its own; yield its URL."""
    command = [sys.executable, "-m", "benchmarks.execution.endpoint", kind]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
