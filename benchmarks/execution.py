"""Duration of runs at an endpoint whose latency varies: this version, an earlier commit, and the ideal.

A fake endpoint in a process of its own answers each prompt after a latency that depends on the prompt alone: lognormal with a median of
0.8 s and sigma 0.8, cut to 0.2 to 5 s, or constant 0.8 s. Its answers make methods take steps as a good model does. The ideal is the larger
of two bounds: the sum of all latencies divided by the number of concurrent calls, and the longest chain of a question.

    python -m benchmarks.execution --methods ircot ra_isf --concurrency 32 --commit ../idx-b93c095
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
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MEDIAN_S, SIGMA, SHORTEST_S, LONGEST_S = 0.8, 0.8, 0.2, 5.0
IDX = """
import importlib, os, sys
sys.path.insert(0, sys.argv.pop(1))
package = "wikidx.runtimes.cli" if os.path.isdir(os.path.join(sys.path[0], "wikidx")) else "runtimes.cli"  # as it was once
importlib.import_module(package).main()
"""
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
                    prompt = json.dumps(body.get("messages") or body.get("prompt"))
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
    """Start the fake endpoint; yield its URL."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.execution", "--serve", kind], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


def idx(source: Path, *arguments: str) -> str:
    """Run a command of the version in a folder; return its output."""
    environment = {
        **os.environ,
        "IDX_HOME": f"{tempfile.gettempdir()}/idx-execution-{source.name}",
        "PYTHONPATH": str(source),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", IDX, str(source), *arguments]
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=True).stdout


def longest_chain(out: Path) -> float:
    """Return the longest duration of a question that never waits: of each of its waves, the slowest call."""
    longest = 0.0
    for line in (out / "predictions.jsonl").read_text().splitlines():
        waves = dict[int, float]()
        for step in json.loads(line)["steps"]:
            waves[step["wave"]] = max(waves.get(step["wave"], 0.0), step.get("seconds", 0.0))
        longest = max(longest, sum(waves.values()))
    return longest


def measure(source: Path, method: str, kind: str, concurrency: int) -> dict[str, float]:
    """Run a method over the sample's questions."""
    with serving(kind) as url, tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        options = ["--corpus", "sample", "--retriever", "bm25", "--concurrency", str(concurrency)]
        model = f"openai:{method}@{url}/v1"
        ran = json.loads(idx(source, "run", method, "--questions", "sample", *options, "--llm", model, "--out", str(out), "--json"))
        with urllib.request.urlopen(f"{url}/totals") as response:
            totals = json.load(response)
        work = totals["seconds"] / concurrency
        return {"seconds": ran["seconds"], "calls": totals["calls"], "work": work, "chain": longest_chain(out), "answered": ran["answered"]}


def main() -> None:
    """Print a line for each method, latency, number of concurrent calls and version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", choices=["lognormal", "constant"], help=argparse.SUPPRESS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--latency", nargs="+", default=["lognormal", "constant"])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[8, 32, 128])
    parser.add_argument("--commit", type=Path, help="also measure the version in this folder, a worktree of an earlier commit")
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
        return
    sources = [ROOT, *([arguments.commit.resolve()] if arguments.commit else [])]
    for source in sources:
        idx(source, "build", "sample", "--bm25")
        idx(source, "search", "sample", "gold")
    for method in arguments.methods:
        for kind in arguments.latency:
            for concurrency in arguments.concurrency:
                for source in sources:
                    ran = measure(source, method, kind, concurrency)
                    ideal = max(ran["work"], ran["chain"]) if source == ROOT else ran["work"]
                    figures = f"{ran['seconds']:.1f} s, work {ran['work']:.1f} s, longest chain {ran['chain']:.1f} s"
                    ratio = f", {ran['seconds'] / ideal:.2f} of the ideal" if source == ROOT else ""
                    print(f"{source.name}: {method}, {kind}, {concurrency} at a time, {ran['calls']} calls: {figures}{ratio}", flush=True)


if __name__ == "__main__":
    main()
