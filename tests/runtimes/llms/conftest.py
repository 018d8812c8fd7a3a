"""The tiny Llama, once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.runtimes.llms.calling import FAST, Open
from tests.runtimes.llms.endpoint import Endpoint, serving, tiny_endpoint
from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
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


@pytest.fixture
def endpoint(tiny: TransformersEngine) -> Endpoint:
    return tiny_endpoint(tiny)


@pytest.fixture
def url(endpoint: Endpoint) -> Iterator[str]:
    with serving(endpoint) as address:
        yield address


@pytest.fixture
def opened(url: str) -> Iterator[Open]:
    """Open the endpoint, once for each call; closed at the end."""
    models: list[OpenAIHttp] = []

    def open_model(options: ConnectionOptions = FAST, *, model: str = "tiny") -> OpenAIHttp:
        models.append(OpenAIHttp(model, url, options=options))
        return models[-1]

    yield open_model
    for model in models:
        model.close()
