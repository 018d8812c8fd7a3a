"""Vectors without an encoder: imported, indexed, and searched by vectors, in Python and over HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indexer.made_vectors import brute_force, clustered
from tests.retrievers.server.serving import ask, serving
from wikidx.base.errors import InputError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.size_estimate import CorpusEstimate
from wikidx.corpora.store import PassageStore
from wikidx.indexer import planning
from wikidx.indexer.base import Scores
from wikidx.indexer.build import build_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published.formats import find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors
from wikidx.indexer.recall import measure_recall
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.kernels import Lists
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.rerank import rerank_by_cross_encoder
from wikidx.retrievers.server.settings import Settings
from wikidx.retrievers.vector_queries import GivenVectors, vector_query

N, DIM, K = 400, 24, 7
EMPTY = vector_query([1.0]).removesuffix("AACAPw==")
VECTORS, QUERIES = clustered(N, DIM, 0), clustered(5, DIM, 1)


class _Unused:
    """A reranker that reads nothing."""

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        raise AssertionError(queries)


@pytest.fixture
def corpus(build: Callable[..., PassageStore], tmp_path: Path) -> None:
    """A corpus with imported vectors, whose file has another order than the passages."""
    build([Passage(f"p{n}", "", str(n)) for n in range(N)])
    order = np.random.default_rng(0).permutation(N)
    np.save(tmp_path / "v.npy", VECTORS[order])
    (tmp_path / "ids.txt").write_text("\n".join(f"p{n}" for n in order))
    source = find_embeddings(tmp_path / "v.npy", ids=str(tmp_path / "ids.txt"))
    import_vectors("made", encoder_spec("none"), open_store("made"), source, ImportOptions())


def test_vectors_are_searched_by_vectors_in_python_and_over_http(corpus: None) -> None:
    expected = brute_force(VECTORS, QUERIES, K).rows
    build_index("made", "none-int8", open_store("made"))
    for name in ("none", "none-int8"):
        with open_searcher("made", name, device="cpu") as searcher:
            found = searcher.search(QUERIES, k=K)
            assert [[hit.row for hit in ranking] for ranking in found] == expected.tolist()
            assert searcher.search(QUERIES.tolist(), k=K).to_dict() == found.to_dict()
            with pytest.raises(InputError, match=r"^'blue whale' is a text, and vectors of 'none' have no encoder: .* of 24 components$"):
                searcher.search(["blue whale"])
            with pytest.raises(InputError, match="a query vector of 3 components"):
                searcher.search([[1.0, 2.0, 3.0]])
            mixed = searcher.search([QUERIES[0], [1.0, 2.0, 3.0], "blue whale", [math.nan] * DIM, QUERIES[1]], k=K)
            assert [[hit.row for hit in ranking] for ranking in mixed] == [expected.tolist()[0], [], [], [], expected.tolist()[1]]
            assert {position: reason.split(",")[0] for position, reason in mixed.errors.items()} == {
                1: "a query vector of 3 components",
                2: "'blue whale' is a text",
                3: "a query is a text",
            }
    with serving(Settings(corpora=("made",), retrievers=("none",), port=0)) as url:
        answer = ask(url, "/v1/search", {"queries": QUERIES.tolist(), "k": K})
        assert [[hit["row"] for hit in ranking] for ranking in answer.json["rankings"]] == expected.tolist()
        groups = ask(url, "/v1/search", {"groups": [QUERIES[:2].tolist()], "k": K})
        assert groups.json["rankings"][0][0]["row"] in expected[:2, 0]
        mixed = ask(url, "/v1/search", {"queries": [[1.0, 2.0], QUERIES[0].tolist()], "k": K}).json
        assert (mixed["rankings"], list(mixed["errors"])) == ([[], answer.json["rankings"][0]], ["0"])
        refused = ask(url, "/v1/search", {"queries": ["blue whale"]})
        assert (refused.status, "'blue whale' is a text" in refused.body.decode()) == (422, True)
        with RemoteSearcher(url) as remote:
            assert [[hit.row for hit in ranking] for ranking in remote.search(QUERIES, k=K)] == expected.tolist()
            with pytest.raises(InputError, match="is a text, and vectors of 'none' have no encoder"):
                remote.search(["blue whale"])


def test_an_index_of_them_is_estimated_by_their_dimension_and_its_recall_is_measured(corpus: None) -> None:
    assert planning._estimate_index(index_ref("made", "none-int8"), CorpusEstimate(N, 0, 0, [])).disk_bytes == N * DIM
    build_index("made", "none-binary", open_store("made"))
    report = measure_recall("made")["none-binary"]
    assert report["queries_from"] == "vectors of passages drawn at random"
    assert report["queries"] == N
    assert [point["refine"] for point in report["points"]] == [0, 1, 2, 4, 8, 16]
    assert report["points"][-1]["recall"]["100"] > report["points"][0]["recall"]["100"] > 0.3


def test_nothing_is_embedded_without_an_encoder(build: Callable[..., PassageStore]) -> None:
    store = build([Passage("a", "", "b")])
    with pytest.raises(InputError, match="^vectors of 'none' have no encoder: 'idx import embeddings' imports them"):
        build_index("made", "none", store)


@pytest.mark.parametrize("vector", [[], [[1.0]], [float("nan")], [1e39], [10**400], ["a"]])
def test_a_query_vector_is_one_dimension_of_finite_numbers(vector: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="query vector|could not convert"):
        vector_query(vector)


@pytest.mark.parametrize("text", [EMPTY, f"{EMPTY}AAA", f"{EMPTY}é", vector_query([1.0, 2.0])])
def test_a_text_that_is_no_vector_of_the_dimension_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"no vector in base64|a query vector of \d components"):
        GivenVectors(3).encode_queries([text])


def test_a_vector_is_no_query_of_a_retriever_or_reranker_of_texts(corpus: None) -> None:
    reason = "a query is a vector, and {} reads texts: give a text, or search vectors imported with '--encoder none'"
    vector, text = QUERIES[0].tolist(), "vector:characterization"  # which would be three components in base64
    build_index("made", "bm25", open_store("made"))
    with open_searcher("made", "bm25", device="cpu") as searcher:
        for mixed in (searcher.search([vector, text, "7"]), searcher.search_groups([["7", vector_query(vector)], [text], ["7"]])):
            assert ([ranking.ids for ranking in mixed], mixed.errors) == ([[], [], ["p7"]], {0: reason.format("bm25")})
        with pytest.raises(InputError, match="a query is a vector, and bm25 reads texts"):
            searcher.search([vector])
    with serving(Settings(corpora=("made",), retrievers=("bm25",), port=0)) as url:
        answer = ask(url, "/v1/search", {"groups": [[vector, "7"], ["7"]]}).json
        assert ([len(ranking) for ranking in answer["rankings"]], answer["errors"]) == ([0, 1], {"0": reason.format("bm25")})
        assert ask(url, "/v1/search", {"queries": [vector]}).status == 422
    lists = Lists(np.array([0]), np.ones(1, dtype=np.float32), np.array([0]), np.array([1]))
    with pytest.raises(InputError, match="a query is a vector, and the reranker reads texts"):
        rerank_by_cross_encoder(lists, [vector_query(vector)], {}, _Unused())


def test_a_tensor_is_a_vector(corpus: None) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
    tensor = torch.tensor(QUERIES, requires_grad=True)
    with open_searcher("made", "none", device="cpu") as searcher:
        expected = searcher.search(QUERIES, k=K).ids.tolist()
        assert searcher.search(tensor, k=K).ids.tolist() == searcher.search(list(tensor), k=K).ids.tolist() == expected
        assert list(searcher.search([*tensor.bfloat16(), torch.ones(2, 2), torch.tensor(1.0)], k=K).errors) == [5, 6]
