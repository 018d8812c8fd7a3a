"""The lines of training files: the stated schema, and the package ``datasets``, by which TRL and LLaMA-Factory read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wikidx.runtimes.llms.base import Message
from wikidx.runtimes.training.base import Example, Provenance
from wikidx.runtimes.training.chat import check_lines, conversation, line_of, written

PROMPT = (Message("system", "Be brief."), Message("user", "Who? “Ähre”\n", ((0, 3),)))


def example(name: str = "nq/1", provenance: Provenance | None = None) -> Example:
    return Example(
        name, conversation(PROMPT, '{"a": 1}'), {"set": "nq", "n": 1, "documents": ["1", "2"]} if provenance is None else provenance
    )


def test_a_line() -> None:
    assert line_of(example()) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who? “Ähre”\n"},
            {"role": "assistant", "content": '{"a": 1}'},
        ],
        "id": "nq/1",
        "provenance": {"set": "nq", "n": 1, "documents": ["1", "2"]},
    }


def test_a_file_is_one_object_a_line() -> None:
    content = written([example(), example("nq/2")])
    assert [json.loads(line)["id"] for line in content.decode().split("\n")[:-1]] == ["nq/1", "nq/2"]
    assert "“Ähre”".encode() in content
    assert written([]) == b""


def changed(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    return {**line_of(example()), **changes}


def turns(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": "x"} for role in roles]


@pytest.mark.parametrize("roles", [("user", "assistant"), ("system", "user", "assistant"), ("user", "assistant", "user", "assistant")])
def test_turns_that_may_be(roles: tuple[str, ...]) -> None:
    line = changed(messages=turns(*roles))
    check_lines([line])
    assert [message["role"] for message in line["messages"]] == list(roles)


@pytest.mark.parametrize(
    "roles",
    [
        (),
        ("system",),
        ("user",),
        ("assistant",),
        ("user", "user", "assistant"),
        ("user", "system", "assistant"),
        ("user", "assistant", "user"),
    ],
)
def test_turns_that_may_not_be(roles: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="line 1 has the turns"):
        check_lines([changed(messages=turns(*roles))])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"messages": turns("user", "assistant"), "id": "1"}, r"the fields \['id', 'messages'\]"),
        (changed(more=1), "the fields"),
        (changed(id=7), "the id 7"),
        (changed(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": " "}]), "a content that is not blank"),
        (changed(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": None}]), "a content that is not blank"),
        (changed(messages=[{"role": "user", "content": "x", "name": "u"}, *turns("assistant")]), "a role and a content"),
        (changed(provenance={"set": None}), "provenance has the value None"),
        (changed(provenance={"set": {"deep": 1}}), "provenance has the value"),
        (changed(provenance={"set": [1]}), "provenance has the value"),
    ],
)
def test_lines_that_may_not_be(line: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_lines([line])


def test_ids_and_provenance_over_lines() -> None:
    with pytest.raises(ValueError, match="line 2 has the id 'nq/1', which is no text or is that of line 1 too"):
        check_lines([changed(), changed()])
    with pytest.raises(ValueError, match="line 2 has the provenance .*, and lines before it"):
        written([example(), example("nq/2", {"set": "nq", "n": 1.5, "documents": []})])


def test_the_package_datasets_reads_a_file(tmp_path: Path) -> None:
    """TRL takes a dataset with a column "messages", LLaMA-Factory the file by the same package."""
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    file = tmp_path / "data.jsonl"
    file.write_bytes(written([example(f"nq/{number}") for number in range(3)]))
    read = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert read.column_names == ["messages", "id", "provenance"]
    assert [row["messages"] for row in read] == [line_of(example())["messages"]] * 3
    assert read[2]["provenance"] == {"set": "nq", "n": 1, "documents": ["1", "2"]}
