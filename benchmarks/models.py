"""Models in this process: how fast they read and write, and what all methods make of one.

    python -m benchmarks.models speed --llm CHECKPOINT --llm-option dtype=bfloat16
    python -m benchmarks.models methods --llm-option dtype=bfloat16 --work FOLDER      # the same command resumes

speed     RAG prompts, few-shot prompts with a common beginning of 1,000 tokens, and samples. Seconds are of the processor (of all threads),
          so that other work on the machine does not count.
methods   ``idx run`` answers questions, of the sample unless others are named, with options that a small model can bear, and a table is
          printed. accuracy: the answer contains a golden answer, with 95 % intervals; cut: generated texts that ended at the token limit;
          unread: questions with a reply that is not in the form its prompt asks for, or that is cut before its answer ended; first, half:
          seconds until the first answer and half of the answers were on disk; processor s: 0 if the run had been finished before.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.monitoring import cpu_s
from benchmarks.processes import IDX, Process, idx, use_data_home
from benchmarks.report import Figure, environment, parser, print_table, run
from wikidx.base.errors import IdxError
from wikidx.corpora.known.sample import passages
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.uncertainty import Bootstrap
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.llms.base import Generate, Reply
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.prompts import Decoding, Message
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
from wikidx.runtimes.questions import Question

OPTIONS = {
    "direct": "",
    "rag": "k=3",
    "cot": "max_tokens=128",
    "genread": "document_tokens=96 max_tokens=64",
    "least_to_most": "shots=2 max_sub_questions=3 max_tokens=64",
    "iter_retgen": "rounds=2 k=2 shots=2",
    "ircot": "k=2 max_passages=4 max_sentences=2 shots=2",
    "self_ask": "k=2 max_follow_ups=2 max_tokens=96",
    "react": "max_steps=4 at_limit=answer",
    "refeed": "samples=3 k=3",
    "self_reasoning": "k=2 max_tokens=192",
    "ra_isf": "k=2 shots=2 max_depth=1 depth_test=leaf max_sub_questions=2 max_tokens=96",
    "retrorag": "max_rounds=2 k=2 n_source=2 max_inferences=2 shots=2 max_tokens=96",
}
_FROM_MEMORY = ("direct", "cot", "genread", "least_to_most")  # methods that do not search
_LOOK_S = 0.1
_COMMON_TOKENS = 1_000
_BOOTSTRAP = Bootstrap()

Record = Mapping[str, Any]


def prompts(engine: TransformersEngine, n_tokens: int) -> dict[str, list[Generate]]:
    """Return calls by kind."""
    greedy, sampled = Decoding(max_tokens=n_tokens), Decoding(max_tokens=n_tokens, temperature=0.8, seed=1)
    texts = itertools.cycle(passage.text for passage in passages())
    rag = [_chat("\n\n".join(itertools.islice(texts, 5)), greedy) for _ in range(64)]
    common = engine.truncate(" ".join(itertools.islice(texts, 20)), _COMMON_TOKENS)
    few_shot = [_chat(f"{common}\n\n{next(texts)}", greedy) for _ in range(64)]
    return {"rag": rag, "few-shot": few_shot, "samples": [_chat("\n\n".join(itertools.islice(texts, 5)), sampled, n=10) for _ in range(8)]}


def _chat(text: str, decoding: Decoding, n: int = 1) -> Generate:
    system = Message("system", "Answer the question with a few words.")
    return Generate(prompt=(system, Message("user", f"{text}\n\nWhat is it about?")), decoding=decoding, n=n)


def speed(options: argparse.Namespace) -> Iterator[dict[str, Figure]]:
    """Yield a row for each kind of prompt."""
    chosen = dict(option.split("=") for option in options.llm_option)
    engine = TransformersEngine(options.llm, options=EngineOptions(device="cpu", dtype=chosen.get("dtype", "float32")))
    for name, calls in prompts(engine, options.tokens).items():
        started, started_cpu = time.perf_counter(), time.process_time()
        replies = [reply for reply in engine.run(calls[: options.limit]) if isinstance(reply, Reply)]
        seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
        n_read, n_written = (sum(getattr(reply, field) for reply in replies) for field in ("prompt_tokens", "completion_tokens"))
        yield {
            "prompts": f"{len(replies)} {name}",
            "tokens read": n_read,
            "written": n_written,
            "processor s": cpu,
            "seconds": seconds,
            "tokens read/processor s": n_read / cpu,
            "written/processor s": n_written / cpu,
        }


def run_arguments(method: str, options: argparse.Namespace) -> list[str]:
    """Return the arguments of ``idx`` that answer the questions by a method."""
    pairs = [("--set", option) for option in OPTIONS[method].split()]
    pairs += [("--llm", options.llm), *(("--llm-option", option) for option in options.llm_option)]
    pairs += [("--limit", str(options.limit))] if options.limit else []
    pairs += [] if method in _FROM_MEMORY else [("--corpus", options.corpus), ("--retriever", "bm25")]
    return ["run", method, "--questions", options.questions, *itertools.chain(*pairs)]


def answer(arguments: Sequence[str], out: Path) -> dict[str, float]:
    """Run a command of idx; return the seconds until its first and half of its answers were on disk, and its processor seconds."""
    grown, before = list[tuple[float, int]](), cpu_s()
    with Process([*IDX, *arguments, "--out", str(out)]) as running:
        while running.process.poll() is None:
            time.sleep(_LOOK_S)
            grown.append((time.perf_counter() - running.started, _n_answers(out)))
    if running.process.returncode not in (0, 1):  # 1: questions have failed
        raise IdxError(f"idx {' '.join(arguments)} ended with status {running.process.returncode}: see above")
    n = _n_answers(out)
    first, half = (next((when for when, answered in [*grown, (0.0, n)] if answered >= least), 0.0) for least in (1, n / 2))
    return {"first s": first, "half s": half, "processor s": cpu_s() - before}


def methods(options: argparse.Namespace) -> Iterator[dict[str, Figure]]:
    """Yield a row for each method."""
    use_data_home(options.work)
    idx("build", options.corpus, "--bm25")
    direct: list[Record] = []
    for method in ("direct", *(method for method in options.methods if method != "direct")):
        times = answer(run_arguments(method, options), options.work / method)
        records = _read(options.work / method)
        direct = direct or records
        yield {"method": method, "options": OPTIONS[method] or "defaults", **summarize(records, direct), **times}


def summarize(records: Sequence[Record], direct: Sequence[Record]) -> dict[str, Figure]:
    """Return a method's figures from its lines of ``predictions.jsonl``, and those of direct."""
    texts = [text for record in records for text in _texts(record)]
    own, other = accuracies(records), accuracies(direct)
    common = sorted(own.keys() & other.keys())
    test = _BOOTSTRAP.paired_test(np.array([own[name] for name in common]), np.array([other[name] for name in common]))
    mean, low, high, n = _BOOTSTRAP.interval(np.array(list(own.values())))
    tokens = [f"{np.mean([record['cost'][name] for record in records]):,.0f}" for name in ("prompt_tokens", "completion_tokens")]
    return {
        "questions": n,
        "accuracy": f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]",
        "- direct": f"{100 * test.difference:+.1f} [{100 * test.low:+.1f}, {100 * test.high:+.1f}] p={test.p:.3f}",
        "calls": round(float(np.mean([record["cost"]["calls"] for record in records])), 1),
        "tokens": "+".join(tokens),
        "cut %": _percent([text["finish"] == "length" for text in texts]),
        "empty %": _percent([not text["text"].strip() for text in texts]),
        "unread %": _percent([_is_unread(record) for record in records]),
        "failed": sum(record["error"] is not None for record in records),
    }


def accuracies(records: Sequence[Record]) -> dict[str, float]:
    """Return question id -> 1.0 if the answer contains a golden answer, else 0.0."""
    score = METRICS["flashrag_acc"].score
    values = {
        record["id"]: score(record["answer"], Question(record["id"], record["question"], tuple(record["golden_answers"])))
        for record in records
    }
    return {name: value for name, value in values.items() if value is not None}


def _texts(record: Record) -> Iterator[Record]:
    """Yield the generated texts of a prediction."""
    for step in record["steps"]:
        if step.get("request") == "generate":  # notes have none
            yield from step["result"] or ()


def _is_unread(record: Record) -> bool:
    return record["detail"].get("parse_ok") is False


def _percent(values: Sequence[bool]) -> float:
    return round(100 * sum(values) / len(values), 1) if values else 0.0


def _n_answers(folder: Path) -> int:
    """Return the number of answers on disk."""
    return (folder / PREDICTIONS).read_bytes().count(b"\n") if (folder / PREDICTIONS).is_file() else 0


def _read(folder: Path) -> list[Record]:
    return list(dict(read_predictions(folder)).values()) if (folder / PREDICTIONS).is_file() else []


def _run(options: argparse.Namespace) -> None:
    rows = {"speed": speed, "methods": methods}[options.part](options)
    title = f"{options.part}, {options.llm} {' '.join(options.llm_option)}".rstrip()
    print_table(title, rows, environment("torch", "transformers"), options.json)


def main() -> int:
    """Run the command line."""
    made = parser("models", __doc__)
    made.add_argument("part", choices=("speed", "methods"))
    made.add_argument("--methods", nargs="+", choices=tuple(OPTIONS), default=list(OPTIONS))
    made.add_argument("--llm", default="smollm2", help="methods: a model, as in idx run; speed: a checkpoint")
    made.add_argument("--llm-option", action="append", default=[], help="such as dtype=bfloat16; may be repeated")
    made.add_argument("--corpus", default="sample", help="a corpus that idx build knows")
    made.add_argument("--questions", default="sample", help="as in idx run")
    made.add_argument("--limit", type=int, help="only the first questions, or prompts")
    made.add_argument("--tokens", type=int, default=32, help="speed: generated tokens of each text")
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
