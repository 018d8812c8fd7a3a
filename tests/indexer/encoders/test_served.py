"""Encoders that a server computes: what is sent in which batches, what is made of each dialect, and which replies are refused."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from tests.indexer.encoders.fake_embeddings import FakeEmbeddings, fake_serving, hashed_vectors
from wikidx.base.errors import IdxError, InputError
from wikidx.base.net.endpoint import EndpointError
from wikidx.corpora.passage import Passage
from wikidx.indexer.encoders.recipes import RecipeOptions
from wikidx.indexer.encoders.served import ServedEncoder, served_recipe, spec_of_served
from wikidx.indexer.networks.checkpoints import ServedModel, parse_checkpoint

MODEL = "org/tiny"
PASSAGES = [Passage(f"p{n}", "" if n % 3 else f"Title {n}", "river " * (n * 7 % 40) + str(n)) for n in range(100)]
TEXTS = [f"{passage.title} {passage.text}".strip() for passage in PASSAGES]


@contextmanager
def encoding(fake: FakeEmbeddings, batch_tokens: int = 8192, **settings: Any) -> Iterator[ServedEncoder]:  # noqa: ANN401 - JSON
    with fake_serving(fake) as url:
        recipe = {"checkpoint": f"openai:{MODEL}", "url": url, "names_sides": False, "dim": 8, "normalize": False}
        with closing(ServedEncoder(spec_of_served("tiny", recipe | settings), batch_tokens)) as encoder:
            yield encoder


def recipe_of(source: str, choices: RecipeOptions) -> Mapping[str, Any]:
    model = parse_checkpoint(source)
    assert isinstance(model, ServedModel)
    return served_recipe(model, "tiny", choices)


DIALECTS: Mapping[str, Callable[[], FakeEmbeddings]] = {
    "OpenAI": FakeEmbeddings,
    "TEI with small batches": lambda: FakeEmbeddings(max_texts=5),
    "Ollama, without base64": lambda: FakeEmbeddings(takes_base64=None),
    "a server that refuses base64": lambda: FakeEmbeddings(takes_base64=False),
    "rows in another order": lambda: FakeEmbeddings(change=lambda rows: rows[::-1]),
    "a server that is busy": lambda: FakeEmbeddings(faults=[(429, "busy", {"Retry-After": "0.01"}), (503, "busy", {"Retry-After": "0"})]),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_vectors_are_the_server_s_in_the_order_of_the_texts(dialect: str) -> None:
    with encoding(DIALECTS[dialect]()) as encoder:
        np.testing.assert_array_equal(encoder.encode_passages(PASSAGES), hashed_vectors(TEXTS))
        np.testing.assert_array_equal(encoder.encode_queries(["who"]), hashed_vectors(["who"]))
        assert encoder.encode_queries([]).shape == (0, 8)


def test_base64_is_asked_for_until_it_is_refused() -> None:
    with encoding(fake := FakeEmbeddings(takes_base64=False)) as encoder:
        for query in ("a", "b"):
            encoder.encode_queries([query])
    assert [body.get("encoding_format") for body in fake.bodies] == ["base64", None, None]


def test_batches_have_limits_of_tokens_and_of_texts() -> None:
    fake = FakeEmbeddings()
    with encoding(fake, batch_tokens=200) as encoder:
        encoder.encode_passages(PASSAGES)
    assert sorted(text for batch in fake.batches for text in batch) == sorted(TEXTS)
    for batch in fake.batches:
        assert len(batch) <= 32
        assert len(batch) == 1 or len(batch) * max(1 + len(text) // 3 for text in batch) <= 200
    assert len(fake.batches) < len(TEXTS) / 2


def test_several_requests_are_under_way_at_once() -> None:
    all_there = threading.Barrier(8, timeout=20)
    with encoding(fake := FakeEmbeddings(before_answer=lambda body: all_there.wait())) as encoder:
        encoder.encode_queries([f"query {n}" for n in range(8 * 32)])
    assert fake.most_busy == 8


def test_a_refused_batch_is_halved_for_good() -> None:
    fake = FakeEmbeddings(max_texts=8)
    with encoding(fake) as encoder:
        encoder.encode_queries([f"query {n:02}" for n in range(32)])
        assert [len(batch) for batch in fake.batches] == [32, 16, 8, 8, 8, 8]
        fake.bodies.clear()
        encoder.encode_queries([f"query {n:02}" for n in range(32)])
        assert [len(batch) for batch in fake.batches] == [8, 8, 8, 8]


def test_prompts_dimension_and_side_are_sent() -> None:
    fake = FakeEmbeddings(embed=lambda texts: 2 * hashed_vectors(texts))
    settings: dict[str, Any] = {"query_prompt": "query: ", "passage_prompt": "passage: ", "truncate_dim": 4, "dim": 4, "names_sides": True}
    with encoding(fake, **settings) as encoder:
        passages = encoder.encode_passages([Passage("1", "T", "x\ud800")])
        encoder.encode_queries(["who"])
    np.testing.assert_array_equal(passages, 2 * hashed_vectors(["passage: T x\ufffd"])[:, :4])
    common = {"model": MODEL, "encoding_format": "base64", "dimensions": 4}
    assert fake.bodies == [
        common | {"input": ["passage: T x\ufffd"], "input_type": "passage"},
        common | {"input": ["query: who"], "input_type": "query"},
    ]


@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_text_over_the_limit_is_named_by_its_passage(status: int) -> None:
    fake = FakeEmbeddings(max_characters=500, too_long=status)
    passages = [*PASSAGES[:40], Passage("the-long-one", "", "x" * 501), *PASSAGES[40:]]
    message = r"passage 'the-long-one', of 501 characters, is refused: .* (length is 500 tokens|\(501 tokens\) is too large).*: if it"
    with encoding(fake) as encoder, pytest.raises(EndpointError, match=message):
        encoder.encode_passages(passages)
    assert all(batches == 1 for batches in Counter(map(tuple, fake.batches)).values())  # nothing is tried again


def first(embedding: object) -> dict[str, Any]:
    """Return a server's behaviour that answers something else as the vector of the first text."""
    return {"change": lambda rows: [rows[0] | {"embedding": embedding}, *rows[1:]]}


def rows(change: Callable[[list[dict[str, Any]]], Any]) -> dict[str, Any]:
    return {"change": change}


def without_dimensions(status: int, said: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return a server that refuses to shorten vectors, which is not blamed on the texts."""
    fake = {"refuse": lambda body: (status, {"error": {"message": said}}) if "dimensions" in body else None}
    return fake, {"truncate_dim": 4}, f"^'org/tiny' answers {status}: {said}: leave --dim out, or give one that the model has$"


OTHER, INDICES = "'org/tiny' answers something else than embeddings", "'org/tiny' answers 3 texts with the indices"
ZEROS, NOT_FINITE = {"embed": lambda texts: 0 * hashed_vectors(texts)}, "answers query 'a' by a vector of zeros, or one that is not finite"
NOT_FOUND: dict[str, Any] = {"faults": [(404, {"error": {"message": "model not found"}}, {})]}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (ZEROS, {"normalize": False}, NOT_FINITE),
    (ZEROS, {"normalize": True}, NOT_FINITE),
    (first([0.5, None] * 4), {}, NOT_FINITE),
    (first([1e39] * 8), {}, NOT_FINITE),
    (rows(lambda sent: sent[1:]), {}, f"{INDICES} 1, 2: none is used"),
    (rows(lambda sent: [*sent[:-1], sent[-1] | {"index": 0}]), {}, f"{INDICES} 0, 0, 1"),
    (rows(lambda sent: [row | {"index": row["index"] + 1} for row in sent]), {}, f"{INDICES} 1, 2, 3"),
    (rows(lambda sent: [*sent, sent[0] | {"index": 3}]), {}, f"{INDICES} 0, 1, 2, 3"),
    (first([0.5] * 7), {}, "'org/tiny' answers vectors of 7 components instead of 8"),
    (first([]), {}, "'org/tiny' answers vectors of 0 components instead of 8"),
    (first("AAAA"), {}, f"{OTHER} .buffer size must be a multiple"),
    (first("not base64"), {}, OTHER),
    (first(None), {}, f"{OTHER} .an embedding is no list"),
    (first(["x"] * 8), {}, OTHER),
    (first([[1.0, 2.0]]), {}, OTHER),
    (rows(lambda sent: [{"embedding": [1.0]}]), {}, f"{OTHER} .'index'"),
    (rows(lambda sent: None), {}, OTHER),
    (NOT_FOUND, {}, "^'org/tiny' answers 404: model not found$"),
    (first([0.5] * 8), {"truncate_dim": 4, "dim": 4}, "answers vectors of 8 components instead of 4: leave --dim out"),
    without_dimensions(400, "this model does not support dimensions"),
    without_dimensions(400, 'Model "m" does not support matryoshka representation, changing output dimensions will lead to poor results.'),
    without_dimensions(422, "dimensions: 'm' has vectors of 8 components, not of 4"),
    without_dimensions(501, "Dimension reduction is not implemented"),
]


@pytest.mark.parametrize(("behaviour", "settings", "message"), REFUSED)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_reply_that_does_not_fit_is_refused_at_once(behaviour: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    with encoding(fake := FakeEmbeddings(**behaviour), **settings) as encoder, pytest.raises(IdxError, match=message) as refusal:
        encoder.encode_queries(["a", "b", "c"])
    assert "\n" not in str(refusal.value)
    assert len(fake.bodies) == 1


def test_the_recipe_has_the_dimension_and_no_address() -> None:
    with fake_serving(FakeEmbeddings()) as url:
        recipe = recipe_of(f"openai:{MODEL}@{url}", RecipeOptions(query_prompt="q: ", dim=6))
    assert recipe == {
        "checkpoint": "openai:org/tiny",
        "url": url,
        "names_sides": False,
        "normalize": False,
        "query_prompt": "q: ",
        "passage_prompt": "",
        "truncate_dim": 6,
        "dim": 6,
    }
    assert not [value for value in spec_of_served("tiny", recipe).recipe().values() if "127.0.0.1" in value]


@pytest.mark.parametrize(
    ("listed", "names_sides"),
    [
        ([{"id": MODEL, "owned_by": "idx"}, {"id": "other", "owned_by": "me"}], True),
        ([{"id": MODEL, "owned_by": "me"}, {"id": "other", "owned_by": "idx"}], False),
        ([{"id": MODEL, "owned_by": "idx", "about": "x" * 5_000_000}], False),  # too long to be read
    ],
    ids=["idx", "another", "enormous"],
)
def test_a_server_of_idx_is_told_the_side(listed: list[dict[str, str]], names_sides: bool) -> None:
    with fake_serving(FakeEmbeddings(pages={"/v1/models": {"object": "list", "data": listed}})) as url:
        assert recipe_of(f"openai:{MODEL}@{url}", RecipeOptions())["names_sides"] is names_sides


def test_options_that_a_server_does_not_have_are_refused() -> None:
    with fake_serving(FakeEmbeddings()) as url:
        model = f"openai:{MODEL}@{url}"
        with pytest.raises(InputError, match="--max-tokens is for a checkpoint, not for tiny: its server has its own settings"):
            recipe_of(model, RecipeOptions(max_tokens=100))
    for text in ("openai:tiny", "openai:@http://127.0.0.1", "openai:tiny@ftp://host"):
        with pytest.raises(InputError, match=r"names no model at an endpoint: write openai:MODEL@URL"):
            parse_checkpoint(text)


def test_another_address_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_serving(fake := FakeEmbeddings()) as url:
        monkeypatch.setenv("IDX_EMBEDDINGS_URL", f"{url}/?api-version=1")
        with encoding(unasked := FakeEmbeddings()) as encoder:
            encoder.encode_queries(["who"])
    assert (len(fake.bodies), len(unasked.bodies)) == (1, 0)
