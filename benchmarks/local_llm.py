"""Speed of backend ``hf`` with a real checkpoint: RAG prompts, few-shot prompts with a common beginning, and samples.

Usage: ``python -m benchmarks.local_llm CHECKPOINT [--dtype bfloat16] [--tokens 32] [--only few-shot]``

Seconds are of the processor (of all threads), so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from importlib.resources import files

from wikidx.runtimes.llms.base import Decoding, Generate, Message, Reply
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

_SYSTEM = "Answer the question with a few words."
_COMMON_TOKENS = 1_000


def main() -> None:
    """Print a line of figures for each kind of prompt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tokens", type=int, default=32, help="generated tokens of each text")
    parser.add_argument("--only", help="one kind of prompt")
    arguments = parser.parse_args()
    engine = TransformersEngine(arguments.checkpoint, options=EngineOptions(device="cpu", dtype=arguments.dtype))
    for name, calls in _kinds(engine, arguments.tokens).items():
        if arguments.only in (None, name):
            _measure(name, engine, calls)


def _measure(name: str, engine: TransformersEngine, calls: list[Generate]) -> None:
    start, start_cpu = time.perf_counter(), time.process_time()
    replies = [reply for reply in engine.run(calls) if isinstance(reply, Reply)]
    wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    n_read, n_written = (sum(getattr(reply, field) for reply in replies) for field in ("prompt_tokens", "completion_tokens"))
    print(
        f"{name:9} {len(replies):3} prompts, {n_read:6} tokens read, {n_written:5} written: {cpu:6.1f} processor seconds "
        f"({wall:.1f} elapsed), {len(replies) / cpu:5.2f} prompts/s, {n_read / cpu:6.0f} tokens/s read, {n_written / cpu:6.1f} written",
        flush=True,
    )


def _kinds(engine: TransformersEngine, n_tokens: int) -> dict[str, list[Generate]]:
    greedy, sampled = Decoding(max_tokens=n_tokens), Decoding(max_tokens=n_tokens, temperature=0.8, seed=1)
    texts = _passages()
    rag = [_chat("\n\n".join(itertools.islice(texts, 5)), greedy) for _ in range(64)]
    common = engine.truncate(" ".join(itertools.islice(texts, 20)), _COMMON_TOKENS)
    few_shot = [_chat(f"{common}\n\n{next(texts)}", greedy) for _ in range(64)]
    samples = [_chat("\n\n".join(itertools.islice(texts, 5)), sampled, n=10) for _ in range(8)]
    return {"rag": rag, "few-shot": few_shot, "samples": samples}


def _chat(text: str, decoding: Decoding, n: int = 1) -> Generate:
    return Generate(prompt=(Message("system", _SYSTEM), Message("user", f"{text}\n\nWhat is it about?")), decoding=decoding, n=n)


def _passages() -> Iterator[str]:
    lines = (files("wikidx") / "corpora" / "known" / "sample" / "passages.jsonl").read_text(encoding="utf-8").splitlines()
    return itertools.cycle(json.loads(line)["text"] for line in lines)


if __name__ == "__main__":
    main()
