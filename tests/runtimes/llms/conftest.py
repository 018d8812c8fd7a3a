"""The tiny Llama, once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.runtimes.llms.tiny import save_tiny_llama
from tests.runtimes.llms.tiny_gguf import save_tiny_gguf
from wikidx.runtimes.llms.transformers_engine import TransformersEngine


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slowed down by torch's threads, the more so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Llama with random weights."""
    return save_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="session")
def tiny(tiny_llama: Path) -> Iterator[TransformersEngine]:
    """A tiny Llama with random weights, loaded."""
    engine = TransformersEngine(str(tiny_llama))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def tiny_gguf(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Llama as a GGUF file."""
    return save_tiny_gguf(tiny_llama, tmp_path_factory.mktemp("gguf") / "tiny.gguf")
