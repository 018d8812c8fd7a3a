"""Identities of models, indexes and commands in the record of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wikidx.base.artifacts.building import redact_command
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index
from wikidx.runtimes.execution import identity
from wikidx.runtimes.llms.naming import assign_models


def test_a_checkpoint_is_told_apart_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(4_000_000))
    seen = [identity.folder_digest(tmp_path)]
    assert identity.folder_digest(tmp_path) == seen[0]
    for name, content in (
        ("config.json", b'{"a": 1}'),
        ("model.safetensors", b"x" + bytes(3_999_999)),
        ("model.safetensors", bytes(2_000_000) + b"x" + bytes(1_999_999)),
        ("model.safetensors", bytes(3_999_999) + b"x"),
        ("model.safetensors", bytes(4_000_001)),
        ("tokenizer.json", b""),
    ):
        (tmp_path / name).write_bytes(content)
        seen.append(identity.folder_digest(tmp_path))
    assert len(set(seen)) == 7


def test_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that affect results are part of a model's identity; passwords and those of speed are not."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:secret@host/v1")
    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    for revision, commit in (("main", "0123abc\n"), ("v2", "456")):
        (refs / revision).write_text(commit)

    def identify(name: str, *options: str) -> dict[str, Any]:
        return identity.model_identity(assign_models([name], ["answer"], options=options)["answer"], "cuda")

    local = {"backend": "hf", "model": "org/name", "commit": "0123abc", "device": "cuda"}
    assert identify("hf:org/name") == identify("hf:org/name", "batch_tokens=7") == local
    assert identify("vllm:org/other")["commit"] is None
    assert identify("openai:m") == {"backend": "openai", "model": "m", "url": "http://host/v1"}
    assert identify("openai:m@https://me:secret@cloud/v1")["url"] == "https://cloud/v1"
    changed = identify("hf:org/name", "revision=v2", "dtype=bfloat16")
    assert (changed["commit"], changed["options"]) == ("456", {"dtype": "bfloat16", "revision": "v2"})
    of_vllm = identify("vllm:org/name", "quantization=fp8", "max_model_len=4096", "tensor_parallel_size=2")
    assert of_vllm["options"] == {"quantization": "fp8", "max_model_len": 4096}


def test_an_index_of_other_passages_is_another_one(build: Callable[..., PassageStore]) -> None:
    found = []
    for text in ("red fox", "red fox", "blue fox"):
        build_index("made", "bm25", build([Passage("a", "t", text)]), force=True)
        found.append(identity.local_fingerprints("made", "bm25"))
    assert found[0] == found[1]
    assert found[0]["passages"] != found[2]["passages"]
    assert found[0]["bm25"] != found[2]["bm25"]


def test_a_command_is_shown_without_its_secrets() -> None:
    given = ["run", "rag", "--api-key", "geheim", "--api-key=geheim", "--llm", "openai:m@http://u:p@host:1/v1", "--url", "http://u@host"]
    shown = "run rag --api-key … --api-key=… --llm openai:m@http://host:1/v1 --url http://host"
    assert redact_command(given) == shown.split()
