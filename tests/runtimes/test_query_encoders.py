"""The precision in which queries were encoded: recorded as it took effect, and kept by a run that resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import corpus_of
from tests.runtimes.command_line import Command
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index
from wikidx.indexer.encoders import model


def test_the_precision_in_effect_is_recorded_and_kept_by_a_run_that_resumes(
    idx: Command, script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default of a large encoder on a GPU is replaced in place of the device."""
    build_store(corpus_of([Passage("1", "Mercury", "a liquid metal"), Passage("2", "Iron", "a metal")]), StoreOptions())
    build_index("made", "minilm", open_store("made"))
    out, file = tmp_path / "out", tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"id": f"q{n}", "question": "Which metal?", "golden_answers": ["iron"]}) + "\n" for n in range(2)))
    given = ("--corpus", "made", "--questions", file, "-r", "minilm")
    asked = ("run", "rag", *given, "--set", "k=1", "--llm", script({"match": "", "text": "Iron"}), "--out", out)

    def encoders() -> list[Any]:
        return [session["query_encoders"] for session in json.loads((out / "run.json").read_text(encoding="utf-8"))["sessions"]]

    idx(*asked, "--limit", "1")
    single = {"minilm": {"dtype": "float32", "device": "cpu"}}
    assert encoders() == [single]
    monkeypatch.setattr(model, "default_dtype", lambda *_, on_gpu: "bfloat16")  # noqa: ARG005
    half = {"minilm": {"dtype": "bfloat16", "device": "cpu"}}
    assert json.loads(idx("eval", "retrieval", *given, "--json"))["query_encoders"] == half
    refused = idx(*asked, status=2)
    assert "a run with queries for 'minilm' in float32 (on cpu), and here they are in bfloat16 (on cpu): resume it with" in refused
    assert "2 answered" in idx(*asked, "--query-dtype", "float32")
    assert encoders() == [single, single]
