"""All methods with a small model on a CPU: accuracy, cost, and what of the model's replies could not be read.

    python -m benchmarks.embedded_methods runs                        # everything: the sample's questions, then 200 of NQ
    python -m benchmarks.embedded_methods runs --dry-run              # commands and estimated cost
    python -m benchmarks.embedded_methods runs --parts sample --methods direct rag --limit 10

Every run is an ``idx run`` with the folder ``runs/PART/METHOD``: the same command resumes it, and what is finished is only read. The
options that differ from the methods' defaults fit two cores, and stand in the table. All questions of a part are in flight together.

accuracy      share of questions whose answer contains a golden answer (``flashrag_acc``), with its 95 % interval
- direct      paired difference from the method direct, with interval and p-value
cut, empty    share of the generated texts that the token limit cut, and that hold nothing
unread        share of questions with a reply that was not read: not in the form that the prompt asks for, or cut before its answer ended
of these cut  share of questions that are unread and have a cut text
still unread  share of questions that are unread with four times the token limits, too: the model does not come to an end (``--longer``)
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import Figure, environment, print_table
from benchmarks.synthetic import data_folder
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.questions import Question

_IDX = (sys.executable, "-c", "from wikidx.runtimes.cli import main; main()")
_PROMPT_TOKENS_PER_S, _TEXT_TOKENS_PER_S = 900, 80  # of a processor, with bfloat16
_BOOTSTRAP = Bootstrap()
_LONGER = 4  # factor of the token limits with which unread questions are asked again


class _Trial(NamedTuple):
    """Options of a method, and tokens of a question (prompts, texts) as measured with them."""

    options: str
    prompt_tokens: int
    text_tokens: int


_TRIALS = {
    "direct": _Trial("", 60, 25),
    "rag": _Trial("k=3", 436, 16),
    "cot": _Trial("max_tokens=128", 370, 55),
    "genread": _Trial("document_tokens=96 max_tokens=64", 190, 60),
    "least_to_most": _Trial("shots=2 max_sub_questions=3 list_tokens=96 max_tokens=64", 600, 70),
    "iter_retgen": _Trial("rounds=2 k=2 shots=2", 1500, 150),
    "ircot": _Trial("k=2 max_passages=4 max_sentences=2 shots=2", 2600, 220),
    "self_ask": _Trial("k=2 max_follow_ups=2 max_tokens=96", 1120, 42),
    "react": _Trial("max_steps=4 at_limit=answer", 3600, 65),
    "refeed": _Trial("samples=3 k=3", 630, 75),
    "self_reasoning": _Trial("k=2 max_tokens=192 reader_tokens=64", 1830, 115),
    "ra_isf": _Trial("k=2 shots=2 max_depth=1 depth_test=leaf max_sub_questions=2 max_tokens=96", 2200, 80),
    "retrorag": _Trial(
        "max_rounds=2 k=2 n_source=2 max_inferences=2 shots=2 reason_tokens=96 answer_tokens=48 inference_tokens=48", 5800, 260
    ),
}


class _Part(NamedTuple):
    """Questions and corpus: arguments of ``idx build`` and ``idx run``, number of questions."""

    build: tuple[str, ...]
    run: tuple[str, ...]
    n: int


def parts() -> dict[str, _Part]:
    """Return the parts by name."""
    union = data_folder() / "dpr_union"
    questions = ("--questions", str(union / "queries.nq_oracle.jsonl.gz"), "--sample", "200")
    return {
        "sample": _Part(("sample",), ("--questions", "sample", "--corpus", "sample"), 107),
        "nq": _Part((str(union / "passages.jsonl.gz"), "--name", "dpr-union"), (*questions, "--corpus", "dpr-union"), 200),
    }


def run_command(
    part: _Part, method: str, folder: Path, arguments: argparse.Namespace, limits: Mapping[str, int] | None = None
) -> list[str]:
    """Return the arguments of ``idx`` that answer a part's questions by a method, with the trial's options and other limits."""
    values = dict(option.split("=") for option in _TRIALS[method].options.split()) | {key: str(n) for key, n in (limits or {}).items()}
    options = [argument for key, value in values.items() for argument in ("--set", f"{key}={value}")]
    models = ["--llm", arguments.llm, *(argument for option in arguments.llm_option for argument in ("--llm-option", option))]
    limit = ["--limit", str(arguments.limit)] if arguments.limit else []
    corpus = () if method in ("direct", "cot", "genread", "least_to_most") else ("--retriever", "bm25")
    questions = part.run if corpus else part.run[: part.run.index("--corpus")]
    return ["run", method, *questions, *corpus, *limit, *options, *models, "--in-flight", str(part.n), "--out", str(folder)]


def ask_longer(name: str, part: _Part, method: str, arguments: argparse.Namespace) -> None:
    """Ask the unread questions of a finished run again with longer token limits, into the folder ``METHOD-longer``."""
    folder = arguments.out / name / method
    unread = [record for record in _read(folder) if record["detail"].get("parse_ok") is False]
    if not unread:
        return
    asked = folder.with_name(f"{method}-longer.jsonl")
    lines = [{"id": record["id"], "question": record["question"], "golden_answers": record["golden_answers"]} for record in unread]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    options = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]["options"]
    limits = {key: _LONGER * option["value"] for key, option in options.items() if key.endswith("_tokens") and option["value"]}
    again = _Part(part.build, ("--questions", str(asked), *part.run[part.run.index("--corpus") :]), len(unread))
    subprocess.run([*_IDX, *run_command(again, method, folder.with_name(f"{method}-longer"), arguments, limits)], check=False)


def summarize(
    records: Sequence[Mapping[str, Any]], direct: Sequence[Mapping[str, Any]], longer: Sequence[Mapping[str, Any]]
) -> dict[str, Figure]:
    """Return a method's row of the table from its lines of ``predictions.jsonl``, those of direct, and those with longer limits."""
    texts = [text for record in records for text in _texts(record)]
    unread = [record for record in records if record["detail"].get("parse_ok") is False]
    is_cut = [any(text["finish"] == "length" for text in _texts(record)) for record in unread]
    own, other = accuracies(records), accuracies(direct)
    common = sorted(own.keys() & other.keys())
    test = _BOOTSTRAP.paired_test(np.array([own[name] for name in common]), np.array([other[name] for name in common]))
    mean, low, high, n = _BOOTSTRAP.interval(np.array(list(own.values())))
    return {
        "questions": n,
        "accuracy": f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]",
        "- direct": f"{100 * test.difference:+.1f} [{100 * test.low:+.1f}, {100 * test.high:+.1f}] p={test.p:.3f}",
        "calls": round(_mean_cost(records, "calls"), 1),
        "tokens": f"{_mean_cost(records, 'prompt_tokens'):,.0f}+{_mean_cost(records, 'completion_tokens'):,.0f}",
        "cut %": _percent(sum(text["finish"] == "length" for text in texts), len(texts)),
        "empty %": _percent(sum(not text["text"].strip() for text in texts), len(texts)),
        "unread %": _percent(len(unread), len(records)),
        "of these cut %": _percent(sum(is_cut), len(records)),
        "still unread %": _percent(sum(record["detail"].get("parse_ok") is False for record in longer), len(records))
        if longer or not unread
        else "not asked",
        "failed": sum(record["error"] is not None for record in records),
    }


def accuracies(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return question id -> 1.0 if the answer contains a golden answer, else 0.0."""
    score = METRICS["flashrag_acc"].score
    values = {
        record["id"]: score(record["answer"], Question(record["id"], record["question"], tuple(record["golden_answers"])))
        for record in records
    }
    return {name: value for name, value in values.items() if value is not None}


def _texts(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the generated texts of a prediction."""
    for step in record["steps"]:
        if step.get("request") == "generate":  # notes have none
            yield from step["result"] or ()


def _mean_cost(records: Sequence[Mapping[str, Any]], name: str) -> float:
    values: FloatArray = np.array([record["cost"][name] for record in records], dtype=np.float64)
    return float(values.mean())


def _percent(n: int, total: int) -> float:
    return round(100 * n / total, 1) if total else 0.0


def _read(folder: Path) -> list[Mapping[str, Any]]:
    return list(dict(read_predictions(folder)).values()) if (folder / PREDICTIONS).is_file() else []


def _print_estimate(name: str, part: _Part, arguments: argparse.Namespace) -> None:
    n, total = min(part.n, arguments.limit or part.n), 0.0
    for method in arguments.methods:
        trial = _TRIALS[method]
        seconds = n * (trial.prompt_tokens / _PROMPT_TOKENS_PER_S + trial.text_tokens / _TEXT_TOKENS_PER_S)
        total += seconds
        print(f"{seconds:6,.0f} s  idx {' '.join(run_command(part, method, arguments.out / name / method, arguments))}")
    print(f"{total:6,.0f} processor seconds for {name} if no prompts share a beginning")


def _answer(name: str, part: _Part, arguments: argparse.Namespace) -> None:
    subprocess.run([*_IDX, "build", *part.build, "--bm25"], check=True)
    for method in arguments.methods:
        if arguments.longer:
            ask_longer(name, part, method, arguments)
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*_IDX, *run_command(part, method, arguments.out / name / method, arguments)], check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{name} {method}: {seconds:,.0f} processor seconds", file=sys.stderr, flush=True)


def _print_part(name: str, arguments: argparse.Namespace) -> None:
    runs = {method: _read(arguments.out / name / method) for method in arguments.methods}
    direct = _read(arguments.out / name / "direct")
    rows: list[dict[str, Figure]] = [
        {
            "method": method,
            "options": _TRIALS[method].options or "defaults",
            **summarize(records, direct, _read(arguments.out / name / f"{method}-longer")),
        }
        for method, records in runs.items()
        if records and direct
    ]
    if rows:
        print_table(f"{name}, {arguments.llm} {' '.join(arguments.llm_option)}".rstrip(), rows, environment("torch", "transformers"), None)
        (arguments.out / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedded_methods", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the runs")
    parser.add_argument("--parts", nargs="+", choices=("sample", "nq"), default=["sample", "nq"])
    parser.add_argument("--methods", nargs="+", choices=tuple(_TRIALS), default=list(_TRIALS))
    parser.add_argument("--llm", default="smollm2", help="model, as in idx run")
    parser.add_argument("--llm-option", action="append", default=[], help="such as dtype=bfloat16; may be repeated")
    parser.add_argument("--limit", type=int, help="only the first questions of each part")
    parser.add_argument("--longer", action="store_true", help="ask the unread questions of finished runs again with longer limits")
    parser.add_argument("--dry-run", action="store_true", help="print commands and estimated cost")
    parser.add_argument("--table", action="store_true", help="print the tables of finished runs only")
    arguments = parser.parse_args()
    for name in arguments.parts:
        if arguments.dry_run:
            _print_estimate(name, parts()[name], arguments)
        elif not arguments.table:
            _answer(name, parts()[name], arguments)
    for name in arguments.parts if not arguments.dry_run else ():
        _print_part(name, arguments)


if __name__ == "__main__":
    main()
