"""``--llm-option``: options of models that idx runs."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

from tests.runtimes.command_line import Command
from tests.runtimes.llms.tiny import save_tiny_llama


def test_options_of_a_local_model_are_settings_of_the_run_unless_they_only_set_speed(idx: Command, tmp_path: Path) -> None:
    model, out = ("--llm", f"hf:{save_tiny_llama(tmp_path / 'llama')}", "--device", "cpu"), tmp_path / "out"
    asked = ("run", "direct", "--questions", "sample", "--limit", "2", *model, "--set", "max_tokens=2", "--out", out)
    idx(*asked, "--llm-option", "dtype=bfloat16", "--llm-option", "batch_tokens=100")
    settings = json.loads((out / "run.json").read_text(encoding="utf-8"))["settings"]
    assert settings["models"]["answer"]["options"] == {"dtype": "bfloat16"}
    assert idx.json(*asked, "--llm-option", "answer.dtype=bfloat16")["cost"]["calls"] == 0
    assert "dtype" in idx(*asked, "--llm-option", "dtype=float32", status=2)
    assert "unknown option of hf 'dtipe'" in idx(*asked, "--llm-option", "dtipe=float32", "--dry-run", status=2)


def test_replies_of_a_local_model_are_kept_for_its_weights_and_options(idx: Command, tmp_path: Path) -> None:
    folder, cache = save_tiny_llama(tmp_path / "llama"), tmp_path / "replies.sqlite"
    asked = ("run", "direct", "--questions", "sample", "--limit", "3", "--llm", f"hf:{folder}", "--device", "cpu", "--set", "max_tokens=2")

    def run(name: str, *options: str) -> tuple[int, list[str]]:
        idx(*asked, "--cache", cache, "--out", tmp_path / name, *options)
        answers = [json.loads(line)["answer"] for line in (tmp_path / name / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
        with contextlib.closing(sqlite3.connect(cache)) as database:
            return database.execute("SELECT count(*) FROM replies").fetchone()[0], answers

    first = run("first")
    assert first[0] == 3
    assert run("again", "--llm-option", "batch_tokens=100") == first
    assert run("bfloat16", "--llm-option", "dtype=bfloat16")[0] == 6
    assert run("thinking", "--thinking", "on")[0] == 9
    save_tiny_llama(folder, context=600)
    assert run("other")[0] == 12
