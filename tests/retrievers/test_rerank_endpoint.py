"""Endpoints that rerank: the forms of their requests and answers, batches, retries, and answers that are refused.

See tests/contracts/test_reranker.py for what holds of every reranker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.indexer.encoders.fake_embeddings import fake_serving
from tests.retrievers.made_rerankers import FakeReranker, overlap
from wikidx.base.errors import IdxError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.rerankers.by_name import open_reranker
from wikidx.retrievers.rerankers.endpoint import RerankEndpoint

PASSAGES = [Passage(str(n), "", "x" * n) for n in range(80)]


def scored(fake: FakeReranker, passages: Sequence[Passage] = PASSAGES, queries: Sequence[str] = (), **options: Any) -> list[float]:  # noqa: ANN401
    with fake_serving(fake) as url:
        endpoint = RerankEndpoint("m", url, first_pause_s=0.001, **options)
        return list(map(float, endpoint.score(queries or ["fox"] * len(passages), passages)))


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("form", ["documents", "texts"])
def test_both_forms_are_understood(form: str, is_strict: bool) -> None:
    fake = FakeReranker(form=form, is_strict=is_strict)
    queries = ["a whale" if n % 3 else "fox" for n in range(len(PASSAGES))]
    expected = [overlap(query, passage.text) for query, passage in zip(queries, PASSAGES, strict=True)]
    assert scored(fake, queries=queries) == pytest.approx(expected, abs=1e-6)
    sent = [text for body in fake.bodies if form in body for text in body[form]]
    assert sorted(sent) == sorted(passage.text for passage in PASSAGES)
    assert max(len(body[form]) for body in fake.bodies if form in body) == 32


def test_the_form_is_found_out_once() -> None:
    fake = FakeReranker(form="texts")
    with fake_serving(fake) as url:
        endpoint = open_reranker(f"rerank:m@{url}")
        for _ in range(3):
            assert endpoint.score(["fox"], PASSAGES[5:6])[0] == pytest.approx(overlap("fox", "xxxxx"))
    assert ["texts" in body for body in fake.bodies] == [False, True, True, True]


def test_batches_that_are_too_large_are_halved() -> None:
    fake = FakeReranker(max_texts=5)
    assert scored(fake) == pytest.approx([overlap("fox", passage.text) for passage in PASSAGES], abs=1e-6)


OTHERS = "scores other passages than the 3 that it was sent"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"faults": [(404, {"message": "The model `m` does not exist."}, {})]}, "answers 404: The model `m` does not exist."),
    "data": ({"faults": [(200, {"data": []}, {})]}, "answers something else than scores: {'data': \\[\\]}"),
    "no score": ({"faults": [(200, {"results": [{"index": 0}]}, {})]}, "answers something else than scores"),
    "enormous": ({"faults": [(200, {"results": [{"index": 0, "score": 10**400}]}, {})]}, "answers something else than scores"),
    "no form": (
        {"faults": [(400, "no model m", {}), (422, "unknown field texts", {})]},
        "answers 400: no model m; in another form: .* answers 422: unknown field texts$",
    ),
    "missing": ({"change": lambda rows: rows[1:]}, OTHERS),
    "twice": ({"change": lambda rows: [*rows[1:], rows[1]]}, OTHERS),
    "unknown": ({"change": lambda rows: [*rows, {**rows[0], "index": 3}]}, OTHERS),
    "nan": ({"change": lambda rows: [{**rows[0], "relevance_score": math.nan}, *rows[1:]]}, ".*a score that is not a finite number"),
    "infinite": ({"change": lambda rows: [{**rows[0], "relevance_score": math.inf}, *rows[1:]]}, ".*a score that is not a finite number"),
    "no index": ({"change": lambda rows: [{**rows[0], "index": [0]}, *rows[1:]]}, "answers something else than scores"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_answers_that_are_no_scores_are_refused_in_one_line(what: str) -> None:
    behaviour, expected = REFUSED[what]
    with pytest.raises(IdxError, match=rf"^rerank:m@http://127.0.0.1:\d+/v1 {expected}") as error:
        scored(FakeReranker(**behaviour), PASSAGES[:3], retries=0)
    assert "\n" not in str(error.value)
