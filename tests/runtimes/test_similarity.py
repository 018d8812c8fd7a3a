"""The comparison of texts by an encoder, beside plain numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from wikidx.base.errors import InputError, UnknownNameError
from wikidx.indexer.encoders import transformer
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import prediction_to_json
from wikidx.runtimes.execution.similarity import EncoderSimilarity
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import compare
from wikidx.runtimes.questions import Question

TEXTS = ("gold", "lead", "tin", "")


class MadeEncoder:
    """An encoder of made-up vectors; the empty text has none."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode_queries(self, queries: Sequence[str]) -> NDArray[np.float32]:
        self.encoded += queries
        return np.stack([np.random.default_rng(list(text.encode())).normal(size=5) * bool(text) for text in queries]).astype(np.float32)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeEncoder:
    encoder = MadeEncoder()
    monkeypatch.setattr(transformer, "open_encoder", lambda spec, device: encoder)
    return encoder


def test_cosines_are_those_of_numpy(made: MadeEncoder) -> None:
    vectors = MadeEncoder().encode_queries(["zinc", *TEXTS]).astype(float)
    lengths = np.sqrt((vectors**2).sum(axis=1))
    expected = vectors[1:] @ vectors[0] / np.where(lengths[1:] == 0, 1, lengths[1:]) / lengths[0]
    similarity = EncoderSimilarity("cpu")
    for _ in range(2):
        zinc, empty, alone = similarity([("zinc", TEXTS), ("zinc", ()), ("gold", ("gold",))], "minilm")
        np.testing.assert_allclose(zinc, expected, rtol=0, atol=1e-6)
        assert empty == ()
        assert alone == pytest.approx((1,), abs=1e-6)
    assert made.encoded == ["zinc", "gold", "lead", "tin", "", "zinc", "gold"]  # others are encoded once, and nothing twice in a batch
    for n in range(9):
        similarity([("zinc", (str(n),))], "minilm")
    similarity([("zinc", ("8",)), ("zinc", ("0",))], "minilm")
    assert made.encoded[-2:] == ["zinc", "0"]  # the lists used last are kept


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown encoder 'minilmm'"):
        EncoderSimilarity("cpu")([("a", ("b",))], "minilmm")


def test_an_unknown_encoder_costs_its_own_question_alone(made: MadeEncoder) -> None:
    async def ask(question: str) -> Answer:
        return Answer(f"{len(await compare('zinc', TEXTS, question))}")

    questions = [Question(name, name) for name in ("minilm", "minilmm", "e5")]
    predictions = execute(ask, questions, Services(llms={}, similarity=EncoderSimilarity("cpu")))
    found = {each.id: each.answer or each.error for each in predictions}
    assert (found["minilm"], found["e5"]) == ("4", "4")
    assert "unknown encoder 'minilmm'" in (found["minilmm"] or "")


@pytest.mark.parametrize("n", [2, 9])
def test_a_comparison_stands_in_the_trace(n: int, made: MadeEncoder) -> None:
    async def ask(question: str) -> Answer:
        return Answer(f"{await compare(question, TEXTS[:1] * n, 'minilm')}")

    (record,) = execute(ask, [Question("1", "gold")], Services(llms={}, similarity=EncoderSimilarity("cpu")))
    (step,) = prediction_to_json(record)["steps"]
    assert (step["request"], step["text"], step["others"]) == ("compare", "gold", ["gold"] * 2 if n == 2 else 9)
    np.testing.assert_allclose(step["result"], [1] * n, atol=1e-6)
    assert record.cost.calls == 0


def test_without_an_encoder_the_question_fails() -> None:
    async def ask(question: str) -> Answer:
        try:
            await compare(question, TEXTS, "minilm")
        except InputError as error:
            return Answer(str(error))
        raise AssertionError

    (prediction,) = execute(ask, [Question("1", "gold")], Services(llms={}))
    assert prediction.answer == "the method compares texts, and there is no encoder"
