"""Backends that are plug-ins: named, opened, answering, recorded, and checked by their contract."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.llms.calling import TURNS, error_of, gens, result_of
from wikidx.base.errors import IdxError, InputError
from wikidx.base.plugins import VARIABLE
from wikidx.runtimes.execution.identity import model_identity
from wikidx.runtimes.llms.base import LLM, AskYesNo, Generate, MeanNll, Nll, Reply, YesNo
from wikidx.runtimes.llms.naming import ModelSpec, Settings, assign_models, open_llms, parse_spec
from wikidx.runtimes.llms.prompts import Choice, Decoding, Message
from wikidx.testing import check_backend

BACKEND = """
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.base import Gen, Nll
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.llms.plugged import OwnBackend


class Echo:
    def __init__(self, model, device):
        self.words = [model or "nobody", device]

    def generate(self, call):
        text = prompt_text(call.prompt)
        if text == "fail":
            return 1 / 0
        if text == "refuse":
            raise LLMError("no more today")
        if text == "number":
            return 7
        if text == "yes?":
            return "Yes, so it is"
        if call.decoding.seed is not None:
            return f"<think>hm</think>draw {call.decoding.seed}"
        return " ".join([*self.words, text[-20:], "END", "more"])


class Scored(Echo):
    def nll(self, call):
        return Nll(total=2.5, n_tokens=len(call.continuation))

    def count_tokens(self, text):
        return len(text)


ECHO = OwnBackend(name="echo-1", open=Echo, concurrency=3)
SCORED = OwnBackend(name="scored", open=Scored, context=100)
OTHER = 5
"""


@pytest.fixture(autouse=True)
def no_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(BACKEND)
    return tmp_path / "mine.py"


def opened(text: str) -> LLM:
    (llm,) = open_llms({"answer": parse_spec(text)}, Settings(device="cpu")).values()
    return llm


def test_a_backend_is_named_by_its_file_or_module_and_then_by_its_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IdxError, match="unknown backend 'echo-1': known: hf, llamacpp, openai, scripted, vllm"):
        parse_spec("echo-1:m")
    assert parse_spec(f"know={file}:ECHO:org/m:7b") == ModelSpec("know", "echo-1", "org/m:7b", None)
    assert parse_spec(f"{file}:ECHO") == parse_spec("echo-1") == ModelSpec(None, "echo-1", "", None)
    assert parse_spec("echo-1:m") == ModelSpec(None, "echo-1", "m", None)
    assert [str(parse_spec(text)) for text in ("echo-1", "echo-1:m")] == ["echo-1", "echo-1:m"]
    monkeypatch.syspath_prepend(str(file.parent))
    monkeypatch.setenv(VARIABLE, "")
    assert parse_spec("mine:SCORED:m") == ModelSpec(None, "scored", "m", None)


OTHER_KIND = "class Other:\n    plugin_kind, name = 'backend', 'other'\nVALUE = Other()\n"
NO_CALLS = "from wikidx.runtimes.llms.plugged import OwnBackend\nVALUE = OwnBackend(name='echo-1', open=list, concurrency=0)\n"


@pytest.mark.parametrize(
    ("code", "value", "message"),
    [
        (BACKEND, "OTHER", "is 'int', no plug-in"),
        (BACKEND, "NONE", "has no 'NONE': its plug-ins are ECHO, SCORED"),
        (OTHER_KIND, "VALUE", r"other\.py:VALUE is a Other: a backend is an OwnBackend"),
        (NO_CALLS, "VALUE", r"other\.py fails, line 2: InputError: concurrency is 0"),
    ],
)
def test_what_is_no_backend_is_refused(tmp_path: Path, code: str, value: str, message: str) -> None:
    (tmp_path / "other.py").write_text(code)
    with pytest.raises(InputError, match=message):
        opened(f"{tmp_path / 'other.py'}:{value}")


def test_a_backend_takes_neither_an_address_nor_options(file: Path) -> None:
    with pytest.raises(InputError, match="echo-1 has no options: leave --llm-option threads out"):
        assign_models([f"{file}:ECHO"], ["answer"], options=["threads=2"])
    with pytest.raises(InputError, match="the backend echo-1 takes none"):
        parse_spec("echo-1:m@http://host/v1")


def test_texts_are_cut_numbered_and_counted(file: Path) -> None:
    llm = opened(f"{file}:ECHO:m")
    greedy, drawn, chosen = llm.run(
        [
            Generate(prompt=TURNS, decoding=Decoding(stop=("END",))),
            Generate(prompt="x", n=3, decoding=Decoding(temperature=1.0, seed=5)),
            Generate(prompt="x", schema=Choice(("a",))),
        ]
    )
    assert (llm.name, llm.capabilities.concurrency) == ("echo-1:m", 3)
    assert gens(greedy)[0].text == "m cpu es or No.\n\nThe river "
    assert [(gen.text, gen.reasoning) for gen in gens(drawn)] == [(f"draw {seed}", "hm") for seed in (5, 6, 7)]
    assert gens(chosen)[0].degraded == ("no structured output: the text is unconstrained",)
    assert isinstance(greedy, Reply)
    assert (greedy.prompt_tokens, greedy.completion_tokens) == (6, 7)  # of 21 and 28 characters, four each


def test_answers_are_scored_by_a_word_and_texts_by_the_plug_in(file: Path) -> None:
    asked, scored = AskYesNo(prompt=(Message("user", "yes?"),)), MeanNll(prompt="x", continuation="abc")
    by_word, unknown = opened(f"{file}:ECHO").run([asked, scored])
    assert (result_of(by_word, YesNo).score, len(result_of(by_word, YesNo).degraded)) == (1.0, 1)
    assert (result_of(unknown, Nll).mean, len(result_of(unknown, Nll).degraded)) == (None, 1)
    llm = opened(f"{file}:SCORED")
    assert result_of(llm.run([scored])[0], Nll) == Nll(total=2.5, n_tokens=3)
    assert (llm.count_tokens("abcd"), llm.truncate("ab cd ef", 5), llm.capabilities.context) == (4, "ab cd", 100)


def test_a_call_fails_alone_and_the_line_is_told(file: Path) -> None:
    failed, refused, number, fine = opened(f"{file}:ECHO").run([Generate(prompt=text) for text in ("fail", "refuse", "number", "fine")])
    line = BACKEND[: BACKEND.index("1 / 0")].count("\n") + 1
    assert f"mine.py fails on the prompt 'fail', line {line}: ZeroDivisionError: division by zero" in error_of(failed)
    assert error_of(refused) == "no more today"
    assert "TypeError: it returns 7, not a Gen" in error_of(number)
    assert gens(fine)[0].text.startswith("nobody cpu fine")


def test_a_run_records_the_file_and_is_not_resumed_by_another(file: Path, idx: Command, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(BACKEND.encode()).hexdigest()
    assert model_identity(parse_spec(f"{file}:ECHO:m"), "cpu") == {
        "backend": "echo-1",
        "model": "m",
        "backend_sha256": sha256,
        "device": "cpu",
    }
    (tmp_path / "questions.jsonl").write_text('{"id": "1", "question": "Which city?"}\n')
    command = ("run", "direct", "--questions", tmp_path / "questions.jsonl", "--llm", f"{file}:ECHO", "--out", tmp_path / "out")
    idx(*command)
    assert json.loads((tmp_path / "out" / "run.json").read_text())["settings"]["models"]["answer"]["backend_sha256"] == sha256
    idx(*command)
    os.environ[VARIABLE] = ""
    file.write_text(f"{BACKEND}\n# another version\n")
    assert "backend_sha256" in idx(*command, status=2)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return 'gold'", None),
        ("self.n = getattr(self, 'n', 0) + 1\n        return str(self.n)", "another text the second time, at temperature 0"),
        ("return str(id(call)) if call.decoding.seed else 'a'", "the second time, at temperature 1"),
        ("raise ValueError('no')", "fails: the plug-in"),
        (
            "return 'gold'\n    def yes_no(self, call):\n        return YesNo(p_positive=0.9, p_negative=0.3)",
            "no probabilities of yes and no",
        ),
        ("return 'gold'\n    def nll(self, call):\n        return Nll(total=-1.0, n_tokens=1)", "no likelihood"),
    ],
)
def test_the_contract_finds_what_is_wrong(tmp_path: Path, code: str, message: str | None) -> None:
    file = tmp_path / "checked.py"
    file.write_text(
        "from wikidx.runtimes.llms.base import Nll, YesNo\nfrom wikidx.runtimes.llms.plugged import OwnBackend\nclass Model:\n"
        f"    def generate(self, call):\n        {code}\nMODEL = OwnBackend(name='checked', open=lambda model, device: Model())\n"
    )
    if message is None:
        check_backend(f"{file}:MODEL")
        return
    with pytest.raises(AssertionError, match=message):
        check_backend(f"{file}:MODEL")
