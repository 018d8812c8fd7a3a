"""Small made-up files of every format and of other sets' fields, and the questions they hold, from ``tests/data/questions``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.runtimes.questions import Question

FOLDER = Path(__file__).parents[2] / "data" / "questions"


class FormatFile(NamedTuple):
    """The content of a file in a format, and the questions expected from it; ``file`` distinguishes two files of one format."""

    format: str
    file: str
    content: str
    questions: list[Question]

    def __str__(self) -> str:
        return f"{self.format} {self.file}".strip()


def lines(*records: object) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def array(*records: object) -> str:
    return json.dumps(records, indent=2)


def read_table(name: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def _content(case: Mapping[str, Any]) -> str:
    if "lines" in case:
        return lines(*case["lines"])
    if "array" in case:
        return array(*case["array"])
    return json.dumps(case["object"], indent=2) if "object" in case else "".join(case["text"])


def _files(name: str) -> tuple[FormatFile, ...]:
    return tuple(
        FormatFile(
            case["format"],
            case["file"],
            _content(case),
            [Question(one["id"], one["text"], tuple(one["answers"]), one.get("gold", {})) for one in case["questions"]],
        )
        for case in read_table(name)
    )


FORMAT_FILES = _files("formats")
FIELD_FILES = _files("fields")
