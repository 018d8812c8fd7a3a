"""Endpoints that rerank: POST /rerank, as vLLM, Jina and Cohere answer it, or text-embeddings-inference.

The server is asked in the former's form first, and in the latter's if it refuses; later requests take the form that it accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wikidx.base.errors import InputError
from wikidx.base.net.endpoint import Endpoint, EndpointError
from wikidx.base.net.request_threads import RequestThreads
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.base import Scores
from wikidx.retrievers.cancellation import raise_if_cancelled

_BATCH = 32  # passages of a request, the most that text-embeddings-inference takes unless it is told otherwise
_CONCURRENCY = 8
_NOT_UNDERSTOOD = (400, 422)
_TOO_LARGE = 413

Body = dict[str, Any]


def _documents(model: str, query: str, texts: Sequence[str]) -> Body:
    return {"model": model, "query": query, "documents": texts, "top_n": len(texts)}


def _texts(model: str, query: str, texts: Sequence[str]) -> Body:
    return {"query": query, "texts": texts, "truncate": True}


class RerankEndpoint:
    """A reranker at an endpoint; thread-safe.

    Args:
        model: the model's name at the endpoint.
        url: the address before ``/rerank``, such as ``http://127.0.0.1:8000/v1``.
        retries, first_pause_s: see ``Endpoint``, which also finds the API key.

    Raises:
        InputError: the address or the key is invalid.
    """

    def __init__(self, model: str, url: str, *, retries: int = 5, first_pause_s: float = 0.5) -> None:
        self._model, self._name = model, f"rerank:{model}@{url}"
        self._endpoint = Endpoint(self._name, url, retries=retries, first_pause_s=first_pause_s)
        self._forms: tuple[Callable[[str, str, Sequence[str]], Body], ...] = (_documents, _texts)

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return the server's score for each pair ``(queries[i], passages[i])``, float32 of shape (n,).

        Raises:
            DeadlineExceeded: the search is cancelled; see ``cancellation``.
            EndpointError: the server refuses a request, or gives no usable answer.
        """
        of_query: dict[str, list[int]] = {}
        for number, query in enumerate(queries):
            of_query.setdefault(query, []).append(number)
        requests = [(query, all_[n : n + _BATCH]) for query, all_ in of_query.items() for n in range(0, len(all_), _BATCH)]
        texts, scores = [title_and_text(passage) for passage in passages], np.empty(len(queries), dtype=np.float32)
        with RequestThreads(_CONCURRENCY) as pool:
            jobs = [pool.submit(self._ask, query, [texts[number] for number in numbers]) for query, numbers in requests]
            for (_, numbers), job in zip(requests, jobs, strict=True):
                scores[numbers] = job.result()
                raise_if_cancelled()
        return scores

    def _ask(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the scores of texts; a batch that is too large for the server is halved."""
        refusals = list[str]()
        for form in self._forms:
            try:
                answer = self._endpoint.post("/rerank", form(self._model, query, texts))
            except EndpointError as error:
                if error.status == _TOO_LARGE and len(texts) > 1:
                    half = len(texts) // 2
                    return self._ask(query, texts[:half]) + self._ask(query, texts[half:])
                if error.status not in _NOT_UNDERSTOOD:
                    raise
                refusals.append(str(error))
            else:
                self._forms = (form,)
                return self._read(answer, len(texts))
        raise EndpointError("; in another form: ".join(refusals), is_final=True)

    def _read(self, answer: Any, n_texts: int) -> list[float]:  # noqa: ANN401 - any JSON
        """Return the scores of an answer in the order of the texts; the server sends them best first."""
        try:
            rows = answer if isinstance(answer, list) else answer["results"]
            scores = {row["index"]: float(row["relevance_score"] if "relevance_score" in row else row["score"]) for row in rows}
            indices = [row["index"] for row in rows]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise EndpointError(f"{self._name} answers something else than scores: {answer!r:.80}", is_final=True) from None
        if len(indices) != n_texts or set(indices) != set(range(n_texts)):
            listed = ", ".join(map(str, indices))
            raise EndpointError(f"{self._name} scores other passages than the {n_texts} that it was sent: {listed:.200}", is_final=True)
        if not np.isfinite(list(scores.values())).all():
            raise EndpointError(f"{self._name} gives a passage a score that is not a finite number", is_final=True)
        return [scores[index] for index in range(n_texts)]


def open_endpoint(location: str) -> RerankEndpoint:
    """Open the endpoint ``MODEL@URL``.

    Raises:
        InputError: no model or no valid address is named.
    """
    model, _, url = location.partition("@")
    if not (model and url):
        raise InputError(f"'rerank:{location}' names no endpoint: use rerank:MODEL@URL, such as rerank:bge-m3@http://127.0.0.1:8000/v1")
    return RerankEndpoint(model, url)
