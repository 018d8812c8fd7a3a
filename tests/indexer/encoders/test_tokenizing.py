"""Malformed texts, and truncation of a pair of texts to a network's maximum length."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.encoders.golden import since_2021
from wikidx.corpora.passage import Passage
from wikidx.indexer.encoders import tokenizing
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer, truncate_pair
from wikidx.indexer.naming import encoder_spec

CLS, SEP = (tiny.VOCABULARY.index(token) for token in ("[CLS]", "[SEP]"))
FAMILIES = (ENCODERS["contriever"], ENCODERS["dpr"], ENCODERS["simlm"], ENCODERS["e5"], ENCODERS["bge"], ENCODERS["gtr"])


def slow_cut(first: list[int], second: list[int], budget: int) -> tuple[int, int]:
    """Take tokens away one by one, from the longer text, or from the second if they are equally long."""
    while len(first) + len(second) > budget:
        (first if len(first) > len(second) else second).pop()
    return len(first), len(second)


def fast_cut(first: list[int], second: list[int], budget: int) -> tuple[int, int]:
    """Give tokens one by one to the text that has fewer of its own, and an odd one to the longer."""
    short, long = (second, first) if len(first) > len(second) else (first, second)
    n_short = n_long = 0
    while n_short + n_long < min(budget, len(first) + len(second)):
        if n_long < len(long) and (n_long <= n_short or n_short == len(short)):
            n_long += 1
        else:
            n_short += 1
    return (n_long, n_short) if short is second else (n_short, n_long)


@pytest.mark.parametrize("budget", [7, 10])
def test_two_texts_are_cut_as_one_token_at_a_time(budget: int) -> None:
    for n_first, n_second in itertools.product(range(25), range(25)):
        assert truncate_pair(n_first, n_second, budget, favor_first=True) == slow_cut([0] * n_first, [0] * n_second, budget)
        assert truncate_pair(n_first, n_second, budget, favor_first=False) == fast_cut([0] * n_first, [0] * n_second, budget)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    bert = tiny.save_bert(folder / "bert")
    t5 = tiny.add_modules(tiny.save_t5(folder / "t5"), "mean", dim=10)
    return {spec.name: bert for spec in FAMILIES} | {"gtr": t5, "dpr": tiny.save_dpr(folder / "dpr")}


@pytest.fixture(params=FAMILIES, ids=lambda spec: spec.name)
def spec(request: pytest.FixtureRequest, folders: dict[str, Path]) -> EncoderSpec:
    return with_checkpoint(request.param, folders[request.param.name])


def rows(tokens: Tokens) -> list[list[int]]:
    return [ids.tolist() for ids in np.split(tokens.ids, tokens.ends[:-1])]


def test_long_texts_are_cut_to_the_very_maximum(spec: EncoderSpec) -> None:
    endless = "river " * 10_000
    assert Tokenizer(spec, "passage").passages([Passage("1", "nile", endless)]).lengths().tolist() == [spec.max_passage_tokens]
    assert Tokenizer(spec, "query").queries([endless]).lengths().tolist() == [spec.max_query_tokens]


@pytest.mark.parametrize("sizes", [(1, 1 << 20), (7, 1 << 20), (256, 1), (256, 50)], ids=str)
def test_tokens_do_not_depend_on_slices(spec: EncoderSpec, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["the", "nile", "", "river.", "naïve", "\ud800", "7 7", "of " * 600]
    generator = np.random.default_rng(6)
    passages = [Passage(str(n), *(" ".join(generator.choice(words, size=size)) for size in generator.integers(0, 9, 2))) for n in range(60)]
    tokenizer = Tokenizer(spec, "passage")
    expected = tokenizer.passages(passages)
    for name, size in zip(("_SLICE_TEXTS", "_SLICE_CHARACTERS"), sizes, strict=True):
        monkeypatch.setattr(tokenizing, name, size)
    found = tokenizer.passages(iter(passages))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.ends, expected.ends)
    assert (found.types is None) == (expected.types is None)
    np.testing.assert_array_equal(found.types if found.types is not None else 0, expected.types if expected.types is not None else 0)
    assert [part.dtype for part in found[:3] if part is not None] == [part.dtype for part in expected[:3] if part is not None]


def test_long_texts_are_split_a_few_at_a_time() -> None:
    """The splitter takes many times the memory of the tokens: 0.4 GB for two and a half million."""
    batches = list(tokenizing._batch_texts("nile " * 10_000 for _ in range(250)))
    assert sum(map(len, batches)) == 250
    assert max(sum(map(len, batch)) for batch in batches) < (1 << 20) + 50_000
    assert [len(batch) for batch in tokenizing._batch_texts(["nile"] * 600)] == [256, 256, 88]


def test_dprs_later_code_adds_a_separator_to_short_texts_only(folders: dict[str, Path]) -> None:
    spec = since_2021(with_checkpoint(ENCODERS["dpr"], folders["dpr"]))
    short, almost, full, long = rows(Tokenizer(spec, "query").queries(["a", "a " * 253, "a " * 254, "a " * 255]))
    assert short == [CLS, tiny.VOCABULARY.index("a"), SEP, SEP]
    assert [len(ids) for ids in (almost, full, long)] == [256, 256, 256]
    assert (almost[-2:], full[-2:]) == ([SEP, SEP], [tiny.VOCABULARY.index("a"), SEP])


def test_a_list_of_word_pieces_is_enough(folders: dict[str, Path], tmp_path: Path) -> None:
    tiny.save_bert(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    texts = ["The Nile's RIVERS, naïve", "[SEP] 12 — zz"]
    old, new = (Tokenizer(with_checkpoint(ENCODERS["contriever"], folder), "query") for folder in (tmp_path, folders["contriever"]))
    assert rows(old.queries(texts)) == rows(new.queries(texts))


@pytest.mark.parametrize("name", ENCODERS)
def test_a_spec_can_be_sent_to_another_process(name: str) -> None:
    spec = encoder_spec(name)
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.name == ("gtr" if name == "gtr-base" else name)
