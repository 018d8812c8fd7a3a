"""The golden cases: inputs, and the original evaluators' output (tests/data/golden_metrics/README.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from wikidx.runtimes.questions import Question
from wikidx.runtimes.questions.multi_hop import add_aliases

HAND_MADE = Path(__file__).parents[2] / "data" / "golden_metrics"


class Case(NamedTuple):
    name: str
    kind: str
    inputs: dict[str, Any]
    expected: Any

    @property
    def raises(self) -> bool:
        return isinstance(self.expected, dict) and "raises" in self.expected


def read_cases(folder: Path, name: str) -> list[Case]:
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:  # texts may hold U+2028, where str.splitlines would cut
        return [Case(line["case"], line["kind"], line["inputs"], line["expected"]) for line in map(json.loads, lines)]


def alias_question(name: str, inputs: Mapping[str, Any]) -> Question:
    """Return the question of a case of 2WikiMultihopQA, with its aliases read from a table as the authors' is."""
    gold = {} if inputs["answer_id"] is None else {"answer_id": inputs["answer_id"]}
    with TemporaryDirectory() as folder:
        (Path(folder) / "id_aliases.json").write_text("".join(json.dumps(row) + "\n" for row in inputs["alias_rows"]))
        return add_aliases(Path(folder) / "dev.json", [Question(name, "?", (inputs["answer"],), gold)])[0]


def read_aggregate(folder: Path, name: str) -> Any:  # noqa: ANN401
    """Return the original's result for all cases of a file together."""
    return json.loads((folder / f"{name}.header.json").read_text())["aggregate"]
