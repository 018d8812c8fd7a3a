"""The encoders on tiny checkpoints against the libraries that users know them from: sentence-transformers, and transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.encoders.golden import MAX_ANGLE, MAX_DIFFERENCE, angles, differences
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders import contriever, dpr, gtr, popular, simlm
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.encoders.transformer import TransformerEncoder

QUERIES = ["the river", "a", "", "of the nile's rivers: 1, 2", "Ünïcode naïve — “quotes”", "  spaces \u200b  \n", "the river of " * 300]
PASSAGES = [
    Passage("1", "nile", "the nile, a river of rivers."),
    Passage("2", "", "no title"),
    Passage("3", "no text", ""),
    Passage("4", "", ""),
    Passage("5", "long", "the river of " * 300),
    Passage("6", "long title " * 60, "short"),
]


def assert_equal(got: Vectors, expected: Vectors) -> None:
    assert got.shape == expected.shape
    assert len(np.unique(got.round(4), axis=0)) == len(got)  # or the comparison would say little
    assert differences(got, expected).max() <= MAX_DIFFERENCE
    assert angles(got, expected).max() <= MAX_ANGLE


def by_sentence_transformers(folder: Path, texts: Sequence[str], size: int) -> Vectors:
    from sentence_transformers import SentenceTransformer  # seconds, which other tests need not wait for

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return np.asarray(model.encode(list(texts), batch_size=size, show_progress_bar=False))


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return tiny.save_bert(tmp_path / "bert")


def _e5(folder: Path) -> tuple[EncoderSpec, Path]:
    return popular.E5, tiny.add_modules(tiny.save_bert(folder), "mean")


def _bge(folder: Path) -> tuple[EncoderSpec, Path]:
    return popular.BGE, tiny.add_modules(tiny.save_bert(folder), "cls")


def _gtr(folder: Path) -> tuple[EncoderSpec, Path]:
    return gtr.SPEC, tiny.add_modules(tiny.save_t5(folder), "mean", dim=10)


@pytest.mark.parametrize("save", [_e5, _bge, _gtr])
@pytest.mark.parametrize("size", [1, 32])
def test_vectors_are_those_of_sentence_transformers(save: Callable[[Path], tuple[EncoderSpec, Path]], size: int, tmp_path: Path) -> None:
    spec, folder = save(tmp_path / "checkpoint")
    encoder = TransformerEncoder(with_checkpoint(spec, folder))
    queries = [spec.query_prompt + spec.query_text(query) for query in QUERIES]
    assert_equal(encoder.encode_queries(QUERIES), by_sentence_transformers(folder, queries, size))
    texts = [spec.passage_prompt + text for text in map(spec.passage_text, PASSAGES) if isinstance(text, str)]
    assert_equal(encoder.encode_passages(PASSAGES), by_sentence_transformers(folder, texts, size))


def test_e5_and_bge_write_texts_as_their_model_cards_say() -> None:
    assert (popular.E5.recipe()["query_prompt"], popular.E5.recipe()["passage_prompt"]) == ("query: ", "passage: ")
    assert popular.E5.recipe()["passage"] == popular.BGE.recipe()["passage"] == '"{title}"\n{text}'
    assert popular.BGE.query_prompt == "Represent this sentence for searching relevant passages: "


def test_contriever_is_the_mean_of_the_last_hidden_states(bert: Path) -> None:
    network, tokenizer = transformers.BertModel.from_pretrained(bert), transformers.AutoTokenizer.from_pretrained(bert)
    texts = [f"{passage.title} {passage.text}" for passage in PASSAGES]
    with torch.inference_mode():
        rows = [network(**tokenizer(text, truncation=True, max_length=512, return_tensors="pt")).last_hidden_state for text in texts]
    expected = np.stack([hidden[0].mean(dim=0).numpy() for hidden in rows])
    assert_equal(TransformerEncoder(with_checkpoint(contriever.SPEC, bert)).encode_passages(PASSAGES), expected)


def test_simlm_is_the_first_token_of_title_and_text_as_a_pair(bert: Path) -> None:
    network, tokenizer = transformers.BertModel.from_pretrained(bert), transformers.AutoTokenizer.from_pretrained(bert)
    rows = []
    with torch.inference_mode():
        for _, title, text in PASSAGES:
            tokens = tokenizer([title], text_pair=[text], truncation=True, max_length=192, return_tensors="pt")
            rows.append(torch.nn.functional.normalize(network(**tokens).last_hidden_state[0, 0], dim=0).numpy())
    assert_equal(TransformerEncoder(with_checkpoint(simlm.SPEC, bert)).encode_passages(PASSAGES), np.stack(rows))


def test_dpr_has_a_network_for_each_side(tmp_path: Path) -> None:
    spec = with_checkpoint(dpr.SPEC, tiny.save_dpr(tmp_path))
    questions = transformers.DPRQuestionEncoder.from_pretrained(tmp_path / "question_encoder")
    contexts = transformers.DPRContextEncoder.from_pretrained(tmp_path / "ctx_encoder")
    encoder = TransformerEncoder(spec)

    def expected(network: torch.nn.Module, tokens: Tokens) -> Vectors:
        with torch.inference_mode():
            rows = [torch.from_numpy(ids).long().unsqueeze(0) for ids in np.split(tokens.ids, tokens.ends[:-1])]
            return np.concatenate([network(ids).pooler_output.numpy() for ids in rows])

    assert_equal(encoder.encode_queries(QUERIES), expected(questions, Tokenizer(spec, "query").queries(QUERIES)))
    assert_equal(encoder.encode_passages(PASSAGES), expected(contexts, Tokenizer(spec, "passage").passages(PASSAGES)))


def test_an_encoder_with_one_checkpoint_loads_it_once(bert: Path) -> None:
    encoder = TransformerEncoder(with_checkpoint(dataclasses.replace(simlm.SPEC, dim=24), bert))
    encoder.encode_passages(PASSAGES)
    assert len(encoder._models) == 1


@pytest.mark.parametrize("architecture", ["modernbert", "xlm-roberta", "mpnet", "distilbert"])
def test_any_architecture_of_transformers_loads_by_a_spec_alone(architecture: str, tmp_path: Path) -> None:
    """The first texts are short, so that a batch has padding, which networks number their positions by."""
    folder = tiny.save_other(tmp_path, architecture)
    spec = with_checkpoint(dataclasses.replace(popular.E5, name=architecture, max_query_tokens=64), folder)
    network, tokenizer = transformers.AutoModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for query in QUERIES:
            tokens = tokenizer(f"query: {query}", truncation=True, max_length=64, return_tensors="pt")
            hidden = network(input_ids=tokens["input_ids"]).last_hidden_state
            rows.append(torch.nn.functional.normalize(hidden[0].mean(dim=0), dim=0).numpy())
    assert_equal(TransformerEncoder(spec).encode_queries(QUERIES), np.stack(rows))
