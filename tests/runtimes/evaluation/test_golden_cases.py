"""The committed golden cases are the hand-made ones of the shared data, to the byte."""

from __future__ import annotations

import json
from pathlib import Path

from tests.runtimes.evaluation.golden_cases import HAND_MADE


def test_committed_cases_are_the_shared_ones_made_by_hand(shared_data: Path) -> None:
    shared = {file.name: file.read_text().splitlines(keepends=True) for file in (shared_data / "golden_metrics").glob("*.jsonl")}
    by_hand = {name: "".join(line for line in lines if json.loads(line)["kind"] == "hand") for name, lines in shared.items()}
    committed = {file.name: file.read_text() for file in HAND_MADE.glob("*.jsonl")}
    assert {name: by_hand[name] for name in committed} == committed
