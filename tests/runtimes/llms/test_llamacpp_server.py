"""GGUF files in llama.cpp: errors without a model, and the embedded model in its engine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtimes.llms.calling import TURNS, gens
from tests.runtimes.llms.tiny import CONTEXT
from tests.runtimes.llms.tiny_gguf import save_tiny_gguf
from wikidx.base.errors import InputError, MissingExtraError
from wikidx.runtimes.llms.base import AskYesNo, Choice, Decoding, Gen, Generate, JsonSchema, Message, Regex, Reply, Schema, TokenIds, YesNo
from wikidx.runtimes.llms.llamacpp_server import LlamaCpp
from wikidx.runtimes.llms.naming import assign_models
from wikidx.runtimes.llms.options import LlamaCppOptions
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

ASKED = (Message("user", "Which metal is liquid at room temperature? Answer in one word."),)
SHORT = Decoding(max_tokens=16)


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


def test_a_file_s_texts_are_those_of_the_same_weights_in_transformers(tiny_llama: Path, tiny: TransformersEngine, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    call = Generate(prompt=TURNS, decoding=Decoding(max_tokens=12))
    (tmp_path / "folder").mkdir()
    save_tiny_gguf(tiny_llama, tmp_path / "folder" / "tiny.gguf")
    model = LlamaCpp(str(tmp_path / "folder"), options=LlamaCppOptions(slots=3))
    try:
        (reply,) = model.run([call])
        assert isinstance(reply, Reply)
        assert reply.model == str(tmp_path / "folder")  # as the user named it
        here, there = gens(reply)[0].text, gens(tiny.run([call])[0])[0].text
        assert here == there.rstrip("\ufffd")  # llama.cpp leaves the beginning of a character out
        assert model.capabilities.context == CONTEXT
    finally:
        model.close()


@pytest.fixture(scope="module")
def smollm2() -> Iterator[LlamaCpp]:
    """The embedded model."""
    model = LlamaCpp("smollm2", options=LlamaCppOptions(context=1024, slots=2))
    yield model
    model.close()


def one(model: LlamaCpp, call: Generate) -> Gen:
    return gens(model.run([call])[0])[0]


@pytest.mark.slow
def test_texts_are_constrained_to_choices_patterns_and_schemas(smollm2: LlamaCpp) -> None:
    schemas: list[Schema] = [
        Choice(("mercury", "iron")),
        Regex(r"[a-z]{3,5}/\d"),
        JsonSchema.of_fields({"answer": {"type": "string", "maxLength": 8}}),
    ]
    chosen, matched, structured = (one(smollm2, Generate(prompt=ASKED, schema=schema, decoding=SHORT)) for schema in schemas)
    assert chosen.text in ("mercury", "iron")
    assert matched.text[-2] == "/"
    assert matched.text[-1].isdigit()
    assert structured.text.startswith('{"answer": "')
    assert (chosen.degraded, matched.degraded, structured.degraded) == ((), (), ())


@pytest.mark.slow
def test_a_beginning_is_continued_and_not_repeated(smollm2: LlamaCpp) -> None:
    gen = one(smollm2, Generate(prompt=(*ASKED, Message("assistant", "The metal is")), decoding=SHORT))
    assert gen.text
    assert "The metal is" not in gen.text
    assert gen.degraded == ()


@pytest.mark.slow
def test_tokens_and_context_are_the_model_s(smollm2: LlamaCpp) -> None:
    words = " ".join(f"number {number}" for number in range(1000))
    long = Generate(prompt=(Message("user", f"{words}\n\nWhich is last?", ((0, len(words)),)),), decoding=SHORT)
    reply = smollm2.run([long])[0]
    assert smollm2.capabilities.context == 1024
    assert smollm2.count_tokens("hello world") == 2
    assert smollm2.truncate("one two three four", 3) == "one two three"
    assert isinstance(reply, Reply)
    assert 700 < reply.prompt_tokens <= 1008
    assert gens(reply)[0].degraded[0].startswith("prompt cut: ")


@pytest.mark.slow
def test_samples_repeat_with_their_seeds_and_have_logprobs(smollm2: LlamaCpp) -> None:
    draw = Generate(prompt=ASKED, decoding=Decoding(max_tokens=8, temperature=1.0, seed=3), n=3, logprobs=True)
    first, second = (gens(smollm2.run([draw])[0]) for _ in range(2))
    assert [gen.text for gen in first] == [gen.text for gen in second]
    assert len({gen.text for gen in first}) > 1
    assert all(gen.mean_nll is not None for gen in first)


@pytest.mark.slow
def test_yes_and_no_are_scored_and_other_prompts_are_taken(smollm2: LlamaCpp) -> None:
    asked = (Message("user", "Answer yes or no: is Paris in France?"), Message("assistant", "Answer:"))
    scored, text, ids = smollm2.run(
        [
            AskYesNo(prompt=asked),
            Generate(prompt="The capital of France is", decoding=SHORT),
            Generate(prompt=TokenIds((28120, 905)), decoding=SHORT),
        ]
    )
    assert isinstance(scored, Reply)
    assert isinstance(scored.result, YesNo)
    assert 0 < scored.result.mass <= 1
    assert gens(text)[0].text
    assert gens(ids)[0].text


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
