"""The lines of training files, and the package ``datasets``, by which TRL and LLaMA-Factory read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wikidx.runtimes.llms.prompts import Message
from wikidx.runtimes.training.base import Example
from wikidx.runtimes.training.pipeline import json_lines

PROMPT = (Message("system", "Be brief."), Message("user", "Who? “Ähre”\n", ((0, 3),)))


def example(name: str = "nq/1") -> Example:
    return Example(name, (*PROMPT, Message("assistant", '{"a": 1}')), {"set": "nq", "n": 1, "documents": ["1", "2"]})


def test_a_file_is_one_object_a_line() -> None:
    content = json_lines(one.to_json() for one in (example(), example("nq/2")))
    first, second = map(json.loads, content.decode().splitlines())
    assert first == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who? “Ähre”\n"},
            {"role": "assistant", "content": '{"a": 1}'},
        ],
        "id": "nq/1",
        "provenance": {"set": "nq", "n": 1, "documents": ["1", "2"]},
    }
    assert second["id"] == "nq/2"
    assert "“Ähre”".encode() in content
    assert content.endswith(b"\n")
    assert json_lines([]) == b""


def test_the_package_datasets_reads_a_file(tmp_path: Path) -> None:
    """TRL takes a dataset with a column "messages", LLaMA-Factory the file by the same package."""
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    file = tmp_path / "data.jsonl"
    file.write_bytes(json_lines(example(f"nq/{number}").to_json() for number in range(3)))
    read = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert read.column_names == ["messages", "id", "provenance"]
    assert [row["messages"] for row in read] == [example().to_json()["messages"]] * 3
    assert read[2]["provenance"] == {"set": "nq", "n": 1, "documents": ["1", "2"]}
