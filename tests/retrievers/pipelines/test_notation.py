from __future__ import annotations

import pytest

from tests.conftest import read_rows
from wikidx.base.errors import InputError
from wikidx.retrievers.pipelines.notation import parse_pipeline
from wikidx.retrievers.pipelines.tree import Fused, Reranked, Size, Source, size, source_depths

A, B = Source("a"), Source("b")
BOTH = (1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("bm25", Source("bm25")),
        (" bm25-1.2-0.75 % 20 ", Source("bm25-1.2-0.75", 20)),
        ("a+b", Fused((A, B), BOTH)),
        ("a+b%5", Fused((A, B), BOTH, keep=5)),
        ("{a, b}RRF", Fused((A, B), BOTH)),
        ("{a,b}rrf(k = 10)%7", Fused((A, B), BOTH, k=10, keep=7)),
        ("{a:0.7, b:.3}minmax", Fused((A, B), (0.7, 0.3), "minmax")),
        ("{a:2,b%3:0}zscore", Fused((A, Source("b", 3)), (2.0, 0.0), "zscore")),
        ("a >> simlm", Reranked(A, "simlm")),
        ("a>>x/y%20>>qwen3", Reranked(Reranked(A, "x/y", 20), "qwen3")),
        ("{a, b}rrf%50 >> maxsim", Reranked(Fused((A, B), BOTH, keep=50), "maxsim")),
        ("{a >> m:0.5, {a, b}weighted}rrf", Fused((Reranked(A, "m"), Fused((A, B), BOTH, "weighted")), (0.5, 1.0))),
        ("remote:http://h:8000", Source("remote:http://h:8000")),
        ("{remote:http://127.0.0.1:8000, a}rrf", Fused((Source("remote:http://127.0.0.1:8000"), A), BOTH)),
        ("{remote:http://h:8000/p#a+b:0.25, a}rrf", Fused((Source("remote:http://h:8000/p#a+b"), A), (0.25, 1.0))),
        ("{remote:https://h:0.5, a}rrf", Fused((Source("remote:https://h"), A), (0.5, 1.0))),
        ("a >> decoder:org/name", Reranked(A, "decoder:org/name")),
    ],
)
def test_a_text_becomes_its_tree_and_the_tree_a_text_of_the_same_tree(text: str, tree: object) -> None:
    assert parse_pipeline(text) == tree
    assert parse_pipeline(str(tree)) == tree


@pytest.mark.parametrize(("text", "position", "expected", "found"), read_rows("retrievers/pipelines/bad_pipelines.jsonl"))
def test_an_error_says_where_it_is_and_what_is_expected(text: str, position: int, expected: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_pipeline(text)
    assert f"pipeline '{text}', character {position}: {expected}" in str(caught.value)
    assert str(caught.value).endswith(f"there is {found}")


def test_a_size_bounds_results_depths_and_reranked_passages() -> None:
    node = parse_pipeline("{a%30, {a, b%70}minmax%50 >> m%20}rrf%40 >> m")
    assert size(node, 100) == Size(40, 50 + 40)
    assert source_depths(node, 60) == {"a": 60, "b": 70}
    assert source_depths(parse_pipeline("{a%30, a%10}rrf"), 60) == {"a": 30}
