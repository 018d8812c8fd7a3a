"""FLARE's doubt, masks and spans on fixed probabilities, beside plain numpy. Whole courses stand in ``transcripts/``."""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
import pytest

from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.llms.base import Gen, Generate
from wikidx.runtimes.methods.flare import FlareOptions, flare, improbable_spans, is_doubtful, mask, tokens_of

FOUND = passages("one")


def written(*tokens: tuple[str, float], finish: str = "stop") -> Gen:
    """A text of tokens with their probabilities, and an improbable end of text."""
    texts = [text for text, _ in tokens]
    ends = (*accumulate(map(len, texts)), len("".join(texts)))
    logprobs = tuple(float(value) for value in np.log([*(probability for _, probability in tokens), 0.01]))
    return Gen(text="".join(texts), finish=finish, logprobs=logprobs, ends=ends)  # type: ignore[arg-type]


def test_doubt_and_query_are_those_of_numpy() -> None:
    rng = random.Random(1)
    for _ in range(300):
        theta, beta = rng.choice([0.0, 0.4, 0.8, 1.0]), rng.choice([0.0, 0.2, 0.4])
        texts = [rng.choice([" a", " bee", "c", ","]) for _ in range(rng.randrange(1, 9))]
        p = np.array([rng.choice([1e-9, 0.2, 0.4 - 1e-6, 0.4 + 1e-6, 0.8 - 1e-6, 0.8 + 1e-6, 1.0]) for _ in texts])
        tokens = tokens_of(written(*zip(texts, p.tolist(), strict=True)))
        assert tokens is not None
        np.testing.assert_allclose([token.probability for token in tokens], p, rtol=1e-6)
        assert is_doubtful(tokens, theta) == bool((p <= theta).any())
        assert mask(tokens, beta) == "".join(np.where(p > beta, texts, " ")).strip()


@pytest.mark.parametrize("places", [[0], [1, 2], [0, 4], [0, 5], [0, 4, 8, 13], [2, 9], []])
def test_spans_end_where_the_next_improbable_token_is_five_away(places: list[int]) -> None:
    tokens = tokens_of(written(*((f" w{place}", 0.1 if place in places else 0.9) for place in range(14))))
    assert tokens is not None
    cuts = np.flatnonzero(np.diff(places) >= 5) + 1
    spans = [(part[0], part[-1]) for part in np.split(np.array(places), cuts) if len(part)]
    assert improbable_spans(tokens, 0.4) == [" ".join(f"w{place}" for place in range(start, end + 1)) for start, end in spans]


def test_a_sentence_ends_before_the_tokens_of_the_next() -> None:
    """The end of text and what follows the sentence raise no doubt; "Hm." is too short to be a sentence."""
    text = written(("Hm.", 0.9), (" It is", 0.9), (" so.", 0.9), (" Or", 0.1), (" not.", 0.1))
    driven = drive(flare("Who?", FlareOptions(max_sentences=1)), [FOUND, text])
    assert driven.answer.detail["text"] == "Hm. It is so."
    assert driven.answer.detail["searches"] == []


@pytest.mark.parametrize(("theta", "searched"), [(0.0, 0), (0.5 - 1e-6, 0), (0.5 + 1e-6, 1), (1.0, 1)])
def test_theta_decides_how_often_is_searched(theta: float, searched: int) -> None:
    sentence = written(("So the answer is: Ann.", 0.5))
    driven = drive(flare("Who?", FlareOptions(theta=theta, beta=0.0)), [FOUND, sentence, *[FOUND, sentence] * searched])
    assert driven.queries == [("Who?",), *[("So the answer is: Ann.",)] * searched]
    assert all(call.logprobs for call in driven.requests if isinstance(call, Generate))
    assert driven.answer.text == "Ann"
