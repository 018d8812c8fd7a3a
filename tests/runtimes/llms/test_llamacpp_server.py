"""GGUF files in llama.cpp: what is refused, constraints and streams of its server, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.llms.calling import TURNS, gens
from tests.runtimes.llms.tiny import CONTEXT
from wikidx.base.errors import InputError, MissingExtraError
from wikidx.runtimes.llms.base import Generate, Reply
from wikidx.runtimes.llms.llamacpp_server import LlamaCpp
from wikidx.runtimes.llms.naming import assign_models
from wikidx.runtimes.llms.options import LlamaCppOptions
from wikidx.runtimes.llms.prompts import Choice, Decoding, JsonSchema, Regex, Schema


def test_a_missing_file_another_format_and_a_corrupt_file_are_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xllamacpp")
    (tmp_path / "text.gguf").write_text("no weights")
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(40))
    (tmp_path / "foreign.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(16))
    messages = {"none": "there is no file", "text": "is no GGUF file", "cut": "cannot load", "foreign": "cannot load"}
    for name, message in messages.items():
        with pytest.raises(InputError, match=message) as error:
            LlamaCpp(str(tmp_path / f"{name}.gguf"))
        assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match="needs the extra 'llm'"):
        LlamaCpp(str(tmp_path / "model.gguf"))


def test_options_are_checked_before_a_model_is_opened() -> None:
    assign_models(["llamacpp:model.gguf"], ["answer"], options=["context=2048", "slots=3"])
    with pytest.raises(InputError, match="slots of a model in llama.cpp is 0"):
        assign_models(["llamacpp:model.gguf"], ["answer"], options=["slots=0"])
    with pytest.raises(InputError, match="'context'"):
        assign_models(["llamacpp:model.gguf"], ["answer"], options=["context=long"])


@pytest.fixture(scope="module")
def llama(tiny_gguf: Path) -> Iterator[LlamaCpp]:
    """The tiny Llama, whose folder is named; its texts and scores are in ``tests/contracts/test_backend.py``."""
    with closing(LlamaCpp(str(tiny_gguf.parent), options=LlamaCppOptions(slots=3))) as model:
        yield model


def test_texts_are_constrained_to_choices_patterns_and_schemas(llama: LlamaCpp, tiny_gguf: Path) -> None:
    schemas: list[Schema] = [
        Choice(("mercury", "iron")),
        Regex(r"[a-z]{3,5}/\d"),
        JsonSchema.of_fields({"answer": {"type": "string", "maxLength": 8}}),
    ]
    replies = llama.run([Generate(prompt=TURNS, schema=schema, decoding=Decoding(max_tokens=40)) for schema in schemas])
    chosen, matched, structured = (gens(reply)[0] for reply in replies)
    assert chosen.text in ("mercury", "iron")
    assert re.fullmatch(r"[a-z]{3,5}/\d", matched.text)
    assert len(json.loads(structured.text)["answer"]) <= 8
    assert structured.text.startswith('{"answer": "')
    assert (chosen.degraded, matched.degraded, structured.degraded) == ((), (), ())
    assert [reply.model for reply in replies if isinstance(reply, Reply)] == [str(tiny_gguf.parent)] * 3  # as the user named it
    assert llama.capabilities.context == CONTEXT


ASKED = [{"role": "user", "content": "The river flows through the country."}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": ASKED, "logprobs": True, "top_logprobs": 3}),
        ("/chat/completions", {"messages": ASKED, "n": 2, "temperature": 1.0, "seed": 3}),
        ("/chat/completions", {"messages": ASKED, "stop": ["a", "e"]}),
        ("/completions", {"prompt": "The river", "logprobs": 2}),
        ("/completions", {"prompt": "x", "grammar": 'root ::= ""'}),
    ],
)
def test_a_streamed_answer_of_the_server_is_the_one_without_streaming(llama: LlamaCpp, path: str, body: dict[str, Any]) -> None:
    common = {"model": str(llama._model), "max_tokens": 24, "temperature": 0.0, "top_k": 0, "cache_prompt": False, **body}
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    whole, streamed = (llama._connection.post(path, {**common, **fields}) for fields in ({}, streaming))
    assert (streamed["object"] == "chat.completion.chunk") == ("messages" in body)  # parts of a completion are named like the whole
    assert [{"logprobs": None, **choice} for choice in whole["choices"]] == streamed["choices"]
    assert streamed["model"] == whole["model"]
    assert [streamed["usage"][name] for name in ("prompt_tokens", "completion_tokens")] == [
        whole["usage"][name] for name in ("prompt_tokens", "completion_tokens")
    ]


@pytest.mark.slow
def test_closing_ends_calls_in_progress() -> None:
    model = LlamaCpp("smollm2", options=LlamaCppOptions(slots=2))
    endless = Generate(prompt="Once", decoding=Decoding(max_tokens=7000, temperature=1.0))
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        model.run([endless] * 4)
    start = time.monotonic()
    model.close()
    assert time.monotonic() - start < 20  # of minutes that the texts would take
