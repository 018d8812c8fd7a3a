"""Transformers of PyTerrier, for pipelines such as ``bm25 % 20 >> reranker`` and for ``pt.Experiment``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Unpack

from wikidx.base.errors import MissingExtraError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Searcher
from wikidx.retrievers.options import SearchOptions, SearchOptionValues, override
from wikidx.retrievers.rerankers.by_name import open_reranker

try:
    import pandas as pd
    import pyterrier as pt
except ImportError as error:
    raise MissingExtraError("the adapter for PyTerrier", "pyterrier") from error

if TYPE_CHECKING:
    from wikidx.retrievers.base import Reranker as PassageReranker

DEFAULTS = SearchOptions(k=1000)  # PyTerrier's own number of results

_RESULTS = {"docid": "int64", "docno": "object", "rank": "int64", "score": "float64", "title": "object", "text": "object"}


class Retriever(pt.Transformer):
    """A searcher as a transformer from queries (qid, query) to results (docid, docno, rank, score, title, text).

    >>> bm25 = Retriever(idx.open_searcher("sample"))
    >>> pt.Experiment([bm25, bm25 % 20 >> Reranker("minilm-msmarco")], topics, qrels, ["ndcg_cut_10", "recall_20"])

    Args:
        searcher: a local or remote searcher.
        options: the search options; by default 1,000 passages.
        values: single options, which override those of ``options``.
    """

    def __init__(self, searcher: Searcher, options: SearchOptions = DEFAULTS, **values: Unpack[SearchOptionValues]) -> None:
        super().__init__()
        self.searcher, self.options = searcher, override(options, values)

    def __repr__(self) -> str:
        name = f"idx {getattr(self.searcher, 'retriever', None) or 'retriever'}"
        return name if self.options.k == DEFAULTS.k else f"{name}, k={self.options.k}"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the results of a frame of queries, with their other columns."""
        pt.validate.query_frame(inp, extra_columns=["query"])
        rankings = self.searcher.search(inp["query"].tolist(), self.options)
        for position, reason in rankings.errors.items():
            logging.getLogger(__name__).warning("the query %r was not searched: %s", inp["qid"].iloc[position], reason)
        records = [
            (number, hit.row, hit.id, rank, hit.score, hit.title, hit.text)
            for number, ranking in enumerate(rankings)
            for rank, hit in enumerate(ranking, pt.model.FIRST_RANK)
        ]
        results = pd.DataFrame.from_records(records, columns=["query_number", *_RESULTS]).astype(_RESULTS)
        queries = inp.drop(columns=list(_RESULTS), errors="ignore").iloc[results.pop("query_number").astype("int64")]
        return pd.concat([queries.reset_index(drop=True), results], axis=1)

    def fuse_rank_cutoff(self, k: int) -> Retriever:
        """Return a retriever of the k first of this one's results, for the operator ``%``."""
        old = self.options
        if k >= old.k:
            return self
        rerank_depth = None if old.rerank_depth is None else max(old.rerank_depth, old.k)
        return Retriever(self.searcher, old, k=k, depth=max(old.depth, old.k), rerank_depth=rerank_depth)


class Reranker(pt.Transformer):
    """A cross-encoder as a transformer that scores results with the columns query and text, and title if there is one.

    Args:
        name: see ``open_reranker``.
        device: its device.

    Raises:
        UnknownNameError, MissingExtraError, InputError, ArtifactError, DownloadError: see ``open_reranker``.
    """

    def __init__(self, name: str, *, device: str = "auto") -> None:
        super().__init__()
        self._name = name
        self._reranker: PassageReranker = open_reranker(name, device=device)

    def __repr__(self) -> str:
        return f"Reranker({self._name!r})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return a frame of results with new scores and ranks."""
        pt.validate.result_frame(inp, extra_columns=["query", "text"])
        titles = inp["title"] if "title" in inp.columns else [""] * len(inp)
        passages = [Passage(*fields) for fields in zip(inp["docno"], titles, inp["text"], strict=True)]
        scores = self._reranker.score(inp["query"].tolist(), passages) if passages else None
        results = inp.assign(score=pd.Series(scores, index=inp.index, dtype="float64"))
        ranks = results.groupby("qid")["score"].rank(ascending=False, method="first").astype("int64")
        return results.assign(rank=ranks - 1 + pt.model.FIRST_RANK)
