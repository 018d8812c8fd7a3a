"""GGUF files: found by several names, and converted once."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from tests.runtimes.llms.calling import one
from tests.runtimes.llms.tiny import CHAT, CONTEXT
from tests.runtimes.llms.tiny_gguf import save_tiny_gguf
from wikidx.base.artifacts.building import ArtifactSpec, build_artifact
from wikidx.base.artifacts.home import home
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import InputError, LockedError, MissingExtraError, StorageError
from wikidx.runtimes.llms import gguf_files
from wikidx.runtimes.llms.gguf_files import checkpoint_folder, convert_gguf, find_gguf
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

TEXT = "The river flows through the country. Yes or no?"


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
    assert one(engine).text == one(tiny).text
    engine.close()


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


def test_an_interruption_leaves_nothing(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(file: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf_files, "_read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert_gguf(tiny_gguf)
    assert list((home() / "checkpoints" / "gguf").glob("*")) == []


def test_a_conversion_by_another_process_is_waited_for(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    n_tries = itertools.count(1)

    def locked_at_first(folder: Path, spec: ArtifactSpec) -> Manifest:
        if next(n_tries) < 3:
            raise LockedError("another process builds it")
        return build_artifact(folder, spec)

    monkeypatch.setattr(gguf_files, "build_artifact", locked_at_first)
    monkeypatch.setattr(gguf_files, "_PAUSE_S", 0.0)
    assert torch.equal(logits(convert_gguf(tiny_gguf), TEXT), direct_logits(tiny_gguf, TEXT))
    assert caplog.messages[0] == "waiting for another process that converts tiny.gguf"
    assert len(caplog.messages) == 2
