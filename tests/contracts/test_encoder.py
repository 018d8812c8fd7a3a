"""The contract of encoders: vectors are those of a reference, and depend on nothing but the text.

References are the authors' own code (``golden_encoders``), sentence-transformers on tiny checkpoints, and the vectors of a server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.indexer.encoders import tiny
from tests.indexer.encoders.anywhere import save, spec_of
from tests.indexer.encoders.fake_embeddings import FakeEmbeddings, fake_serving, hashed_vectors
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.encoders.golden import VARIANTS, Golden, Variant, angles, differences, is_equal
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.served import ServedEncoder, spec_of_served
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec

QUERIES = ["the river", "a", "", "of the nile's rivers: 1, 2", "Ünïcode naïve — “quotes”", "  spaces \u200b  \n", "the river of " * 300]
PASSAGES = [
    Passage("1", "nile", "the nile, a river of rivers."),
    Passage("2", "", "no title"),
    Passage("3", "no text", ""),
    Passage("4", "", ""),
    Passage("5", "long", "the river of " * 300),
    Passage("6", "long title " * 60, "short"),
]
POPULAR = {
    "qwen3": "qwen3",
    "bge-m3": "xlm-roberta",
    "multilingual-e5": "xlm-roberta",
    "multilingual-e5-small": "bert",
    "nomic": "nomic_bert",
    "arctic-v2": "xlm-roberta",
    "embeddinggemma": "gemma3_text",
    "mxbai": "bert",
    "mpnet": "mpnet",
    "gte-modernbert": "modernbert",
    "modernbert-embed": "modernbert",
}
"""Encoders in wide use, and the architectures of their networks."""


class Case(NamedTuple):
    """An encoder, texts, and the reference's vectors of them."""

    encoder: TransformerEncoder | ServedEncoder
    queries: Sequence[str]
    passages: Sequence[Passage]
    of_queries: Vectors
    of_passages: Vectors


def by_authors(variant: Variant, folder: Path, data: Callable[[], Path]) -> Case:
    golden = Golden(data() / "golden_encoders" / variant.encoder)
    texts: Any = golden.texts("query"), golden.texts("passage")
    return Case(TransformerEncoder(variant.change(golden.spec())), *texts, *map(golden.vectors, variant.arrays))


def by_sentence_transformers(make: Callable[[Path], EncoderSpec], folder: Path, data: Callable[[], Path]) -> Case:
    """Texts are written by the spec, and their vectors computed by the library."""
    from sentence_transformers import SentenceTransformer  # seconds, which other tests need not wait for

    spec = make(folder)
    model = SentenceTransformer(str(spec.folder("query")), device="cpu", local_files_only=True)
    queries = [spec.query_prompt + spec.query_text(query) for query in QUERIES]
    passages = [spec.passage_prompt + str(spec.passage_text(passage)) for passage in PASSAGES]
    vectors = [np.asarray(model.encode(texts, batch_size=3, show_progress_bar=False)) for texts in (queries, passages)]
    return Case(TransformerEncoder(spec), QUERIES, PASSAGES, *vectors)


def popular_spec(name: str, folder: Path) -> EncoderSpec:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    spec, architecture = dataclasses.replace(encoder_spec(name), max_query_tokens=200, max_passage_tokens=200), POPULAR[name]
    network = tiny.save_bert(folder / "network") if architecture == "bert" else tiny.save_other(folder / "network", architecture)
    layers = [Dense(24, 30, bias=False, activation_function=torch.nn.Identity()), Dense(30, 24, bias=False)] if spec.dense else []
    return with_checkpoint(spec, save(network, folder / "saved", Pooling(24, spec.pooling), *layers, Normalize(), length=200))


def architecture_spec(architecture: str, folder: Path) -> EncoderSpec:
    """Return an encoder that differs from E5 by its network alone."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    network = tiny.save_other(folder / "network", architecture)
    saved = save(network, folder / "saved", Pooling(24, "mean"), Normalize(), length=64)
    return with_checkpoint(dataclasses.replace(ENCODERS["e5"], name=architecture, max_query_tokens=64, max_passage_tokens=64), saved)


def family_spec(spec: EncoderSpec, folder: Path) -> EncoderSpec:
    network = tiny.save_t5(folder / "made") if spec is ENCODERS["gtr"] else tiny.save_bert(folder / "made")
    return with_checkpoint(spec, tiny.add_modules(network, spec.pooling, dim=10 if spec.dense else None))


CASES: dict[str, Callable[[Path, Callable[[], Path]], Case]] = {
    **{f"{name} of its authors": partial(by_authors, variant) for name, variant in VARIANTS.items()},
    "minilm by its folder": partial(by_authors, Variant("minilm", lambda spec: spec_of(spec.folder("query")))),
    **{name: partial(by_sentence_transformers, partial(family_spec, ENCODERS[name])) for name in ("e5", "bge", "gtr")},
    **{name: partial(by_sentence_transformers, partial(popular_spec, name)) for name in POPULAR},
    **{f"E5 as {name}": partial(by_sentence_transformers, partial(architecture_spec, name)) for name in ("xlm-roberta", "distilbert")},
}


@contextmanager
def opened(name: str, folder: Path, data: Callable[[], Path]) -> Iterator[Case]:
    if name in CASES:
        yield CASES[name](folder, data)
        return
    with fake_serving(FakeEmbeddings(embed=lambda texts: 2 * hashed_vectors(texts))) as url:
        recipe = {"checkpoint": "openai:m", "url": url, "names_sides": False, "dim": 8, "normalize": True}
        texts = [f"{passage.title} {passage.text}" if passage.title else passage.text for passage in PASSAGES]
        with closing(ServedEncoder(spec_of_served("served", recipe))) as encoder:
            yield Case(encoder, QUERIES, PASSAGES, hashed_vectors(QUERIES), hashed_vectors(texts))


KINDS = ("contriever of its authors", "dpr of its authors", "gtr of its authors", "e5", "bge", "gte-modernbert", "served")


def _marked(name: str) -> Any:  # noqa: ANN401 - pytest's own type
    marks = {"minilm of its authors": [pytest.mark.slow], "minilm by its folder": [pytest.mark.slow, pytest.mark.exhaustive]}
    return pytest.param(name, marks=marks.get(name, ()))  # the only network here that is not tiny


@pytest.fixture(scope="module", params=[*KINDS, *map(_marked, (name for name in CASES if name not in KINDS))])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with opened(request.param, tmp_path_factory.mktemp("made"), lambda: request.getfixturevalue("shared_data")) as case:
        yield case


of_each_kind = pytest.mark.parametrize("case", KINDS, indirect=True)
NETWORKS = ("qwen3", "nomic", "embeddinggemma", "mpnet", "modernbert-embed", *(f"E5 as {name}" for name in ("xlm-roberta", "distilbert")))
of_each_network = pytest.mark.parametrize("case", [*KINDS, *NETWORKS], indirect=True)


def test_vectors_are_those_of_the_reference(case: Case) -> None:
    for found, expected in (
        (case.encoder.encode_queries(case.queries), case.of_queries),
        (case.encoder.encode_passages(case.passages), case.of_passages),
    ):
        assert found.dtype == np.float32
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5) == case.encoder.spec.normalize
        assert found.shape == expected.shape == (len(expected), case.encoder.dim)
        assert len(np.unique(found.round(4), axis=0)) > len(found) - 2  # or the comparison would say little
        assert is_equal(found, expected).all(), (differences(found, expected), angles(found, expected))


@of_each_network
def test_a_vector_depends_on_nothing_but_its_text(case: Case) -> None:
    """Not on the order, and not on the neighbours in a batch."""
    order = np.random.default_rng(3).permutation(len(case.queries))
    for some in (order, order[: len(order) // 2]):
        assert is_equal(case.encoder.encode_queries([case.queries[number] for number in some]), case.of_queries[some]).all()
    alone = [case.encoder.encode_passages([passage]) for passage in case.passages]
    assert is_equal(np.concatenate(alone), case.of_passages).all()


@of_each_kind
def test_endless_texts_are_cut_empty_ones_have_a_vector_and_none_have_none(case: Case) -> None:
    """All that is read of the long texts is equal."""
    assert case.encoder.encode_queries([]).shape == case.encoder.encode_passages([]).shape == (0, case.encoder.dim)
    texts = ["river " * 9_000, "river " * 10_000, "", "nile"]
    if isinstance(case.encoder, ServedEncoder):
        texts = texts[1:]  # the server has its own limit
    vectors = untitled(case, texts)
    assert np.isfinite(vectors).all()
    assert len(np.unique(vectors.round(4), axis=0)) == 3


@of_each_kind
def test_unpaired_surrogates_are_read_as_the_replacement_character(case: Case) -> None:
    pairs = (
        ("river \ud800", "river \ufffd"),
        ("\udfff\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00 nile", "\U0001f600 nile"),
        ("\udc80", "\ufffd"),
    )
    for found, same_as in pairs:
        np.testing.assert_array_equal(case.encoder.encode_queries([found, "nile"]), case.encoder.encode_queries([same_as, "nile"]))
        one, other = (case.encoder.encode_passages([Passage("1", "nile", "a"), Passage("2", part, part)]) for part in (found, same_as))
        np.testing.assert_array_equal(one, other)


@of_each_kind
def test_texts_are_encoded_as_queries_or_as_passages_without_titles(case: Case) -> None:
    for side, expected in (("query", case.encoder.encode_queries(QUERIES)), ("passage", untitled(case, QUERIES))):
        vectors, n_tokens = case.encoder.encode_texts(side, QUERIES)  # type: ignore[arg-type]
        np.testing.assert_array_equal(vectors, expected)
        assert n_tokens.shape == (len(QUERIES),)
    if isinstance(case.encoder, TransformerEncoder):  # each checkpoint is loaded once
        assert case.encoder._models.keys() == {case.encoder.spec.query_checkpoint, case.encoder.spec.passage_checkpoint}


def untitled(case: Case, texts: Sequence[str]) -> Vectors:
    return case.encoder.encode_passages([Passage("", "", text) for text in texts])


def test_e5_bge_and_embeddinggemma_write_texts_as_their_model_cards_say() -> None:
    assert (ENCODERS["e5"].recipe()["query_prompt"], ENCODERS["e5"].recipe()["passage_prompt"]) == ("query: ", "passage: ")
    assert ENCODERS["e5"].recipe()["passage"] == ENCODERS["bge"].recipe()["passage"] == '"{title}"\n{text}'
    assert ENCODERS["bge"].query_prompt == "Represent this sentence for searching relevant passages: "
    assert encoder_spec("embeddinggemma").recipe()["passage"] == "title: {title} | text: {text}"
