"""The table of all methods with a small model."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.embedded_methods import parts, run_command, summarize
from wikidx.runtimes.methods import METHODS, find_method


def prediction(name: str, answer: str, *finishes: str, parse_ok: bool = True) -> dict[str, Any]:
    result = [{"text": answer, "finish": finish} for finish in finishes]
    return {
        "id": name,
        "question": "Which moon?",
        "answer": answer,
        "error": None,
        "golden_answers": ["Titan"],
        "detail": {"parse_ok": parse_ok},
        "cost": {"calls": 2, "prompt_tokens": 1500, "completion_tokens": 20},
        "steps": [{"request": "retrieve", "result": []}, {"request": "generate", "result": result}],
    }


def test_a_row_tells_accuracy_cost_and_unread_replies() -> None:
    records = [
        prediction("1", "the moon Titan", "stop"),
        prediction("2", "Rhea and", "stop", "length", parse_ok=False),
        prediction("3", "", "stop", parse_ok=False),
        prediction("4", "Titan", "stop"),
    ]
    direct, longer = [prediction(name, "Rhea", "stop") for name in "1234"], [records[2], prediction("2", "Rhea and Titan", "stop")]
    row = summarize(records, direct, longer)
    assert (row["still unread %"], summarize(records, direct, ())["still unread %"]) == (25.0, "not asked")
    assert (row["questions"], row["accuracy"], row["- direct"]) == (4, "50.0 [0.0, 100.0]", "+50.0 [+0.0, +100.0] p=0.500")
    assert (row["calls"], row["tokens"], row["failed"]) == (2.0, "1,500+20", 0)
    assert (row["cut %"], row["empty %"], row["unread %"], row["of these cut %"]) == (20.0, 20.0, 50.0, 25.0)


def test_every_method_is_run_with_options_that_it_has() -> None:
    arguments = Namespace(llm="smollm2", llm_option=["dtype=bfloat16"], limit=None)
    for method in METHODS:
        command = run_command(parts()["sample"], method, Path("out"), arguments)
        options = dict(value.split("=") for flag, value in zip(command, command[1:], strict=False) if flag == "--set")
        find_method(method).options(**{name: int(value) if value.isdecimal() else value for name, value in options.items()})
        assert command[-2:] == ["--out", "out"]
        assert ("--corpus" in command) == ("--retriever" in command)
    longer = run_command(parts()["sample"], "cot", Path("out"), arguments, {"max_tokens": 512})
    assert [value for flag, value in zip(longer, longer[1:], strict=False) if flag == "--set"] == ["max_tokens=512"]
