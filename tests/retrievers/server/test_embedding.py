"""Vectors over HTTP in OpenAI's format: those of the encoder, to the bit."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tests.conftest import read_rows
from tests.indexer.encoders.folders import with_checkpoint
from tests.retrievers.conftest import LIMITS, some_passages
from tests.retrievers.retrieving import at_home, build_corpus
from tests.retrievers.server.serving import ask, serving
from wikidx.base.errors import InputError
from wikidx.base.net.endpoint import EndpointError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.build import build_vectors, open_vectors
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.served import ServedEncoder
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec, name_encoder
from wikidx.retrievers.server.settings import Settings

pytest.importorskip("torch", reason="needs the extra 'dense'")

PATH = "/v1/embeddings"
TEXTS = ["river nile", "the nile of a river", "x", "café"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformerEncoder]:
    """A tiny e5, which has a prompt for each side, and a home with a corpus of its vectors and of another encoder's."""
    from tests.indexer.encoders import tiny

    with at_home(tmp_path_factory.mktemp("embedded")), pytest.MonkeyPatch.context() as patch:
        folder = tiny.save_bert(tmp_path_factory.mktemp("tiny"))
        patch.setitem(ENCODERS, "e5", with_checkpoint(ENCODERS["e5"], folder))
        matryoshka = dataclasses.replace(ENCODERS["contriever"], normalize=True, truncate_dim=20)
        patch.setitem(ENCODERS, "contriever", with_checkpoint(matryoshka, folder))
        build_corpus("embedded", some_passages(20), "e5", "contriever", "bm25")
        yield TransformerEncoder(ENCODERS["e5"])


@pytest.fixture(scope="module", autouse=True)
def home(encoder: TransformerEncoder) -> None:
    """The module's home, not one of each test's own."""


@pytest.fixture(scope="module")
def url(encoder: TransformerEncoder) -> Iterator[str]:
    settings = Settings(corpora=("embedded",), retrievers=("e5", "contriever"), port=0, cache_bytes=10_000, embeddings=True, limits=LIMITS)
    with serving(settings) as where:
        yield where


def as_passages(texts: Sequence[str]) -> list[Passage]:
    return [Passage("", "", text) for text in texts]


def embed(url: str, texts: object, **fields: object) -> dict[str, Any]:
    answer = ask(url, PATH, {"input": texts, "model": "e5", **fields})
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    return body


def vectors_of(body: dict[str, Any]) -> Vectors:
    assert [row["index"] for row in body["data"]] == list(range(len(body["data"])))
    rows = [row["embedding"] for row in body["data"]]
    return np.array([np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row for row in rows], dtype=np.float32)


@pytest.mark.parametrize("encoding_format", ["float", "base64", None])
def test_vectors_are_the_encoder_s_to_the_bit(url: str, encoder: TransformerEncoder, encoding_format: str | None) -> None:
    of_passages = vectors_of(embed(url, TEXTS, encoding_format=encoding_format))
    of_queries = vectors_of(embed(url, TEXTS, encoding_format=encoding_format, input_type="query"))
    np.testing.assert_array_equal(of_passages, encoder.encode_passages(as_passages(TEXTS)))
    np.testing.assert_array_equal(of_queries, encoder.encode_queries(TEXTS))
    assert np.abs(of_passages - of_queries).max() > 0.01  # the two sides differ


def test_a_single_text_and_its_tokens(url: str, encoder: TransformerEncoder) -> None:
    body = embed(url, "river nile", dimensions=24, user="somebody")
    np.testing.assert_array_equal(vectors_of(body), encoder.encode_passages(as_passages(["river nile"])))
    assert (body["object"], body["model"]) == ("list", "e5")
    n_tokens = 2 + len("passage") + 1 + 2  # [CLS] and [SEP], the letters of the prompt, its colon, the words
    assert body["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}


def test_half_a_character_is_embedded_as_encoders_read_it(url: str) -> None:
    halves, replaced = (vectors_of(embed(url, ["river", f"nile {character}"])) for character in ("\ud800", "\ufffd"))
    np.testing.assert_array_equal(halves, replaced)


def test_many_texts_are_answered_in_order(url: str, encoder: TransformerEncoder) -> None:
    texts = [f"river {n}" for n in range(300)]
    expected = encoder.encode_passages(as_passages(texts))
    np.testing.assert_allclose(vectors_of(embed(url, texts, encoding_format="base64")), expected, atol=1e-6)


def test_the_list_of_models_has_the_open_encoders(url: str) -> None:
    model, other = ask(url, "/v1/models").json["data"]
    assert other["id"] == "contriever"
    assert isinstance(model.pop("created"), int)
    assert model == {"id": "e5", "object": "model", "owned_by": "idx", "dimensions": 24, "input_types": ["query", "passage"]}


def test_fewer_dimensions_of_a_matryoshka_encoder(url: str, encoder: TransformerEncoder) -> None:
    whole = TransformerEncoder(ENCODERS["contriever"]).encode_passages(as_passages(TEXTS))
    truncated = vectors_of(embed(url, TEXTS, model="contriever", dimensions=8))
    np.testing.assert_allclose(truncated, whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True), atol=1e-6)
    assert ask(url, PATH, {"input": TEXTS, "model": "contriever", "dimensions": 21}).status == 400


TOO_LARGE = [
    ({"input": ["x"] * 2049, "model": "e5"}, 400, "input"),
    ({"input": "x" * 1001, "model": "e5"}, 400, "a text has 1,001 characters, 1,000 are allowed"),
    (b"x" * (LIMITS.max_body_bytes + 1), 413, "are allowed"),
]


@pytest.mark.parametrize(("body", "status", "message"), [*read_rows("retrievers/server/bad_embeddings.jsonl"), *TOO_LARGE])
def test_errors_have_openai_s_form(url: str, body: object, status: int, message: str) -> None:
    answer = ask(url, PATH, body.encode() if isinstance(body, str) else body)
    assert answer.status == status
    assert message in answer.json["error"]["message"]
    assert answer.json["error"] | {"message": ""} == {"message": "", "type": "invalid_request_error", "param": None, "code": None}


def test_a_key_is_required_and_its_refusal_has_openai_s_form() -> None:
    with serving(Settings(corpora=("embedded",), retrievers=("e5",), port=0, api_key="secret", embeddings=True, limits=LIMITS)) as url:
        refused = ask(url, PATH, {"input": "x", "model": "e5"})
        assert (refused.status, refused.json["error"]["type"]) == (401, "invalid_request_error")
        assert ask(url, PATH, {"input": "x", "model": "e5"}, headers={"authorization": "Bearer secret"}).status == 200


def test_without_the_option_there_is_nothing() -> None:
    with serving(Settings(corpora=("embedded",), port=0, limits=LIMITS)) as url:
        assert ask(url, PATH, {"input": "x", "model": "e5"}).status == 404
    with pytest.raises(InputError, match="--embeddings serves encoders, and bm25 has none: add --retriever minilm"):
        Settings(corpora=("embedded",), embeddings=True)


def served(name: str, url: str) -> EncoderSpec:
    """An encoder that asks this server for one of its own."""
    return encoder_spec(name_encoder(f"remote-{name}=openai:{name}@{url}/v1"))


def test_a_build_from_this_server_has_the_vectors_of_a_local_build(url: str) -> None:
    """To the bit, as all texts are encoded in one batch by both."""
    store, vectors = open_store("embedded"), []
    for spec in (ENCODERS["contriever"], served("contriever", url)):
        build_vectors("embedded", spec, store, EmbedOptions(device="cpu", batch_tokens=10_000), force=True)
        opened = open_vectors("embedded", spec.name, store)
        assert opened is not None
        vectors.append(opened.read(np.arange(len(store))))
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert np.abs(vectors[0][0] - vectors[0][1]).max() > 0.01  # passages differ


def test_an_encoder_of_this_server_has_the_same_two_sides_and_names_a_blank_text(url: str, encoder: TransformerEncoder) -> None:
    texts = as_passages(TEXTS)
    with closing(ServedEncoder(served("e5", url))) as remote:
        np.testing.assert_array_equal(remote.encode_queries(TEXTS), encoder.encode_queries(TEXTS))
        np.testing.assert_array_equal(remote.encode_passages(texts), encoder.encode_passages(texts))
        with pytest.raises(EndpointError, match="passage 'empty', of 1 characters, is refused: .* blank"):
            remote.encode_passages([Passage("1", "", "x"), Passage("empty", "", " ")])
