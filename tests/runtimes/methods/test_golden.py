"""Golden transcripts: options and made-up replies -> the whole trace, as its checksum, with a line for each question for the reader.

After a change that is meant, ``python -m tests.runtimes.methods.test_golden`` writes ``golden.json`` anew; the difference shows which
methods, seeds and questions it concerns. Transcripts with replies that lead somewhere are in ``transcripts.py``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.methods.made_up import transcripts
from wikidx.runtimes.methods import METHODS

_FILE = Path(__file__).with_name("golden.json")
_SEEDS = range(8)


def summary(record: dict[str, Any]) -> str:
    """Return cost, depth, answer or error, and the checksum of everything else."""
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
    cost = record["cost"]
    shown = record["error"] or record["answer"]
    return f"{cost['calls']} calls, {cost['searches']} searches, depth {cost['depth']}, {digest}: {shown[:40]!r}"


def golden(name: str) -> dict[str, list[str]]:
    return {str(seed): [summary(record) for record in transcripts(name, seed)] for seed in _SEEDS}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_asks_and_answers_as_before(name: str) -> None:
    assert golden(name) == json.loads(_FILE.read_text())[name]


if __name__ == "__main__":
    _FILE.write_text(json.dumps({name: golden(name) for name in METHODS}, indent=1, ensure_ascii=False) + "\n")
