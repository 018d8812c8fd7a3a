"""Duration of runs at an endpoint whose latency varies, beside their work, and beside an earlier commit.

    python -m benchmarks.execution --methods ircot ra_isf --concurrency 32 --commit ../before

A fake endpoint answers each prompt after a latency that depends on the prompt alone, and so that methods take steps as with a good
model: 0.8 s, or lognormal with a median of 0.8 s and sigma 0.8, cut to 0.2 to 5 s. "work" is the sum of the latencies divided by the
number of calls at a time. No call waits with ``--concurrency 4096``, which so gives the longest chain of calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import math
import os
import random
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.processes import ROOT, Process, idx
from benchmarks.report import Figure, environment, parser, print_table, run

MEDIAN_S, SIGMA, SHORTEST_S, LONGEST_S = 0.8, 0.8, 0.2, 5.0
KINDS = ("lognormal", "constant")
METHODS = ("ircot", "ra_isf", "retrorag", "react", "rag")


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
    """Serve the fake endpoint; print its port. A GET returns the number of calls, and the sum of their latencies."""
    totals = {"calls": 0, "seconds": 0.0}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
                content: dict[str, Any] = dict(totals)
                if head.startswith("post"):
                    body = json.loads(await reader.readexactly(length))
                    prompt = json.dumps(body.get("messages") or body.get("prompt"))
                    seconds, content = latency(prompt, kind), answer(body, prompt)
                    totals["calls"] += 1
                    totals["seconds"] += seconds
                    await asyncio.sleep(seconds)
                text = json.dumps(content).encode()
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def measure(source: Path, method: str, kind: str, options: argparse.Namespace, concurrency: int) -> tuple[float, dict[str, float]]:
    """Run a method in a checkout over questions of the sample; return its seconds, and the endpoint's totals."""
    home = options.work / source.name
    env = {**os.environ, "IDX_HOME": str(home), "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    idx("build", "sample", "--bm25", cwd=source, env=env)
    with Process(["-m", "benchmarks.execution", "--serve", kind]) as endpoint:
        url = f"http://127.0.0.1:{endpoint.answer()}"
        searched = ("--questions", "sample", "--limit", str(options.questions), "--corpus", "sample", "--retriever", "bm25")
        model = ("--concurrency", str(concurrency), "--llm", f"openai:{method}@{url}/v1")
        with TemporaryDirectory() as out:
            ran = json.loads(idx("run", method, *searched, *model, "--out", f"{out}/run", "--json", cwd=source, env=env).stdout)
        with urllib.request.urlopen(f"{url}/totals") as response:
            return ran["seconds"], json.load(response)


def rows(options: argparse.Namespace) -> Iterator[dict[str, Figure]]:
    """Yield a row for each method, latency and number of concurrent calls."""
    for method, kind in ((method, kind) for method in options.methods for kind in options.latency):
        for concurrency in options.concurrency:
            before = measure(options.commit.resolve(), method, kind, options, concurrency) if options.commit else None
            now, totals = measure(ROOT, method, kind, options, concurrency)
            work = totals["seconds"] / concurrency
            yield {
                "method": method,
                "latency": kind,
                "at a time": concurrency,
                "calls": int(totals["calls"]),
                "work s": work,
                "now s": now,
                "now / work": now / work,
                "calls before": int(before[1]["calls"]) if before else "",
                "before s": before[0] if before else "",
                "before / now": before[0] / now if before else "",
            }


def _run(options: argparse.Namespace) -> None:
    if options.serve:
        asyncio.run(serve(options.serve))
    print_table(f"Runs over {options.questions} questions of the sample", rows(options), environment(), options.json)


def main() -> int:
    """Run the command line."""
    made = parser("execution", __doc__)
    made.add_argument("--methods", nargs="+", default=METHODS)
    made.add_argument("--latency", nargs="+", choices=KINDS, default=KINDS)
    made.add_argument("--concurrency", nargs="+", type=int, default=[8, 32, 128], help="numbers of calls at a time")
    made.add_argument("--questions", type=int, default=107, help="only the first questions of the sample")
    made.add_argument("--commit", type=Path, help="also measure the version in this folder, a worktree of an earlier commit")
    made.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
