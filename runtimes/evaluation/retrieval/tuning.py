"""Choice of a pipeline on given questions, with its value on questions on which it was not chosen.

Each retriever searches once, deeply. Fusions and rerankings are then tried on these lists. In cross-validation, the pipeline that is best
on all folds but one is scored on that one, so that each question has a value from a pipeline that was chosen without it. The mean of
these values is the held-out figure: an estimate of what the pipeline chosen on all questions reaches on other questions like them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Scores
from wikidx.retrievers.base import Reranker
from wikidx.retrievers.kernels import Lists
from wikidx.retrievers.pipelines.running import Stages, run
from wikidx.retrievers.pipelines.tree import Fused, Node, Reranked, Rule, Source
from wikidx.retrievers.rerank import rerank_by_cross_encoder
from wikidx.runtimes.evaluation.retrieval.has_answer import answer_hits
from wikidx.runtimes.evaluation.retrieval.trec import Qrels
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray, Interval, PairedTest
from wikidx.runtimes.questions import Question

DEPTHS = (20, 50, 100, 200, 500, 1000)
RERANK_DEPTHS = (10, 20, 50, 100)

_RULES: tuple[tuple[Rule, int], ...] = (("rrf", 60), ("rrf", 10), ("minmax", 60), ("zscore", 60))
_SHARES = {1: 1, 2: 10, 3: 6, 4: 5}  # number of equal shares of weight, by the number of retrievers
_METRIC = re.compile(r"(nDCG|R|Success|answer)@([1-9]\d{0,3})", re.IGNORECASE)

Choice = TypeVar("Choice", bound=Hashable)


class Metric(NamedTuple):
    """A metric: "ndcg", "r" or "success" (trec_eval's, on gold passages) or "answer" (DPR's) at the cutoff k."""

    kind: str
    k: int

    @classmethod
    def parse(cls, text: str) -> Metric:
        """Return a metric by its name, such as nDCG@10; raises ``InputError`` for an unknown one."""
        match = _METRIC.fullmatch(text)
        if match is None:
            raise InputError(f"there is no metric '{text:.40}' to tune for: name it like nDCG@10, R@100, Success@5 or answer@20")
        return cls(match[1].lower(), int(match[2]))


class Judged(NamedTuple):
    """Relevant rows of Q questions.

    Attributes:
        keys: ``question * n_rows + row``, ascending.
        gains: relevance of each, above 0.
        n_questions, n_rows: numbers of questions and of the corpus's rows.
    """

    keys: NDArray[np.int64]
    gains: FloatArray
    n_questions: int
    n_rows: int


def judge_by_qrels(questions: Sequence[Question], qrels: Qrels, store: PassageStore) -> Judged:
    """Return the rows of gold passages; those that the corpus lacks have rows of their own behind it, because they count as relevant."""
    gold = [(number, name, gain) for number, question in enumerate(questions) for name, gain in qrels[question.id].items() if gain > 0]
    rows = store.rows_of([name for _, name, _ in gold]) if gold else np.empty(0, np.int64)
    n_rows = len(store) + len(gold)
    rows = np.where(rows < 0, len(store) + np.arange(len(gold)), rows)
    keys = np.array([number for number, _, _ in gold], np.int64) * n_rows + rows
    order = np.argsort(keys)
    return Judged(keys[order], np.array([float(gain) for _, _, gain in gold])[order], len(questions), n_rows)


def judge_by_answers(questions: Sequence[Question], retrieved: Mapping[str, Lists], store: PassageStore) -> Judged:
    """Return the retrieved rows whose texts have an answer, by DPR's rule."""
    found = [np.unique(np.concatenate([_rows(lists, number) for lists in retrieved.values()])) for number in range(len(questions))]
    distinct = np.unique(np.concatenate(found))
    texts = [passage.text for passage in store.get_many(distinct)]
    numbers = [np.searchsorted(distinct, rows).tolist() for rows in found]
    hits = answer_hits(numbers, texts, [question.golden_answers for question in questions])
    keys = [number * len(store) + rows[is_hit] for number, (rows, is_hit) in enumerate(zip(found, hits, strict=True))]
    return Judged(np.concatenate(keys), np.ones(sum(map(len, keys))), len(questions), len(store))


def _rows(lists: Lists, number: int) -> NDArray[np.int64]:
    return lists.rows[lists.starts[number] : lists.ends[number]]


def score(lists: Lists, judged: Judged, metric: Metric) -> FloatArray:
    """Return the metric of each question's list, shape (Q,); 0 for a question without relevant rows."""
    n = judged.n_questions
    sizes = np.minimum(lists.ends - lists.starts, metric.k)
    numbers = np.repeat(np.arange(n), sizes)
    ranks = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # from 0
    keys = numbers * judged.n_rows + lists.rows[lists.starts[numbers] + ranks]
    places = np.minimum(np.searchsorted(judged.keys, keys), max(0, len(judged.keys) - 1))
    gains = np.where(judged.keys[places] == keys, judged.gains[places], 0.0) if len(judged.keys) else np.zeros(len(keys))
    if metric.kind in ("success", "answer"):
        return np.minimum(np.bincount(numbers, gains > 0, n), 1.0)
    of_gold = judged.keys // judged.n_rows
    if metric.kind == "r":
        return np.bincount(numbers, gains > 0, n) / np.maximum(np.bincount(of_gold, minlength=n), 1)
    order = np.lexsort((-judged.gains, of_gold))
    ideal_ranks = np.arange(len(order)) - np.searchsorted(of_gold, of_gold)
    ideal = np.where(ideal_ranks < metric.k, judged.gains[order] / np.log2(ideal_ranks + 2), 0)
    best = np.bincount(of_gold, ideal, n)
    return np.divide(np.bincount(numbers, gains / np.log2(ranks + 2), n), best, out=np.zeros(n), where=best > 0)


def list_fusions(names: Sequence[str], depth: int) -> list[Node]:
    """Return the fusions to try, the simplest first: single retrievers, then each rule with each weighting at each depth."""
    fusions = dict.fromkeys(map(Source, names))
    shares = _SHARES.get(len(names), 4)
    weightings = [each for each in itertools.product(range(shares + 1), repeat=len(names)) if sum(each) == shares]
    weightings.sort(key=lambda each: max(each) - min(each))
    depths = [each for each in DEPTHS if each < depth] + [depth]
    for keep, (rule, k), weights in itertools.product(reversed(depths), _RULES, weightings):
        used = [(name, weight) for name, weight in zip(names, weights, strict=True) if weight]
        divisor = math.gcd(*weights)
        if len(used) > 1:
            sources = tuple(Source(name, keep) for name, _ in used)
            fusions[Fused(sources, tuple(weight / divisor for _, weight in used), rule, k)] = None  # type: ignore[index]
    return list(fusions)


def list_rerankings(node: Node, reranker: str | None) -> list[Node]:
    """Return the rerankings of a pipeline to try."""
    return [Reranked(replace(node, keep=depth), reranker) for depth in RERANK_DEPTHS] if reranker else []


def list_baselines(names: Sequence[str], depth: int, reranker: str | None) -> list[Node]:
    """Return what one would use untuned: each retriever, their RRF, and this reranked."""
    sources = tuple(Source(name, depth) for name in names)
    fused: list[Node] = [Fused(sources, (1.0,) * len(names))] if len(names) > 1 else [*sources]
    return [*map(Source, names), *fused, *list_rerankings(fused[0], reranker)[-1:]]


class Validated(NamedTuple, Generic[Choice]):
    """Outcome of a cross-validation.

    Attributes:
        values: value of each question from the choice of the fold that held it out, shape (Q,).
        choices: the choice of each fold.
        final: the choice on all questions.
    """

    values: FloatArray
    choices: list[Choice]
    final: Choice


def assign_folds(texts: Sequence[str], n_folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each question, shape (Q,); equal questions are in the same fold.

    Raises:
        InputError: there are fewer distinct questions than folds.
    """
    distinct = list(dict.fromkeys(texts))
    if not 2 <= n_folds <= len(distinct):
        raise InputError(
            f"{len(distinct):,} different questions cannot make {n_folds} folds: from 2 folds to one for each question are possible"
        )
    folds = dict(zip(distinct, (np.random.default_rng(seed).permutation(len(distinct)) % n_folds).tolist(), strict=True))
    return np.array([folds[text] for text in texts])


def cross_validate(
    values_of: Callable[[Choice], FloatArray],
    grid: Sequence[Choice],
    refine: Callable[[Choice], Sequence[Choice]],
    folds: NDArray[np.int64],
) -> Validated[Choice]:
    """Choose on all folds but one, in turn, and once on all questions; of equal choices the first.

    Args:
        values_of: function that returns the values of a choice, shape (Q,).
        grid: the choices.
        refine: function that returns further choices, to try with the best of the grid.
        folds: the fold of each question, shape (Q,).
    """

    def choose(is_seen: NDArray[np.bool_]) -> Choice:
        best = max(grid, key=lambda choice: values_of(choice)[is_seen].mean())
        return max([best, *refine(best)], key=lambda choice: values_of(choice)[is_seen].mean())

    values, choices = np.empty(len(folds)), list[Choice]()
    for fold in range(int(folds.max()) + 1):
        choices.append(choose(folds != fold))
        values[folds == fold] = values_of(choices[-1])[folds == fold]
    return Validated(values, choices, choose(np.ones(len(folds), dtype=bool)))


class Trials:
    """Values of pipelines on retrieved lists; each pipeline is run once, and each pair of query and passage reranked once.

    Args:
        queries: the questions' texts, Q.
        retrieved: a list for each question, by retriever.
        judged: the relevant rows.
        metric: the metric.
        store: the corpus.
        rerankers: rerankers by name.
    """

    def __init__(  # noqa: PLR0913
        self,
        queries: Sequence[str],
        retrieved: Mapping[str, Lists],
        judged: Judged,
        metric: Metric,
        store: PassageStore,
        rerankers: Mapping[str, Reranker],
    ) -> None:
        self._queries, self._retrieved, self._judged, self._metric, self._store = queries, retrieved, judged, metric, store
        self._rerankers = {name: _Remembered(reranker) for name, reranker in rerankers.items()}
        self._values = dict[Node, FloatArray]()

    def values(self, node: Node) -> FloatArray:
        """Return the metric of each question, shape (Q,)."""
        if node not in self._values:
            self._values[node] = score(run(node, self._retrieved, self._rerank, Stages()), self._judged, self._metric)
        return self._values[node]

    def _rerank(self, name: str, candidates: Lists) -> Lists:
        rows = np.unique(candidates.rows)
        passages = dict(zip(rows.tolist(), self._store.get_many(rows), strict=True))
        return rerank_by_cross_encoder(candidates, self._queries, passages, self._rerankers[name])


class _Remembered:
    def __init__(self, reranker: Reranker) -> None:
        self._reranker, self._scores = reranker, dict[tuple[str, str], float]()

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        pairs = [(query, passage.id) for query, passage in zip(queries, passages, strict=True)]
        new = [number for number, pair in enumerate(pairs) if pair not in self._scores]
        if new:
            scores = self._reranker.score([queries[number] for number in new], [passages[number] for number in new])
            self._scores |= zip([pairs[number] for number in new], scores.tolist(), strict=True)
        return np.array([self._scores[pair] for pair in pairs], dtype=np.float32)


class Tuned(NamedTuple):
    """A tuned pipeline with its figures.

    Attributes:
        pipeline: the pipeline that is best on all questions.
        held_out: mean value of the questions where they are held out, with its interval.
        folds: the fold means of these values, and the pipelines chosen for them.
        training: mean value of ``pipeline`` on the questions on which it was chosen, which is too high.
        baseline: the untuned pipeline that is best on all questions, and its mean on them with its interval.
        test: paired test of the held-out values against the baseline's.
    """

    pipeline: Node
    held_out: Interval
    folds: list[tuple[float, Node]]
    training: float
    baseline: tuple[Node, Interval]
    test: PairedTest


def tune(
    trials: Trials,
    names: Sequence[str],
    depth: int,
    reranker: str | None,
    folds: NDArray[np.int64],
    bootstrap: Bootstrap,
) -> Tuned:
    """Choose a pipeline of retrievers and, if one is given, a reranker; see the module.

    Args:
        trials: the trials on the questions.
        names: the retrievers.
        depth: number of results retrieved for each question.
        reranker: name of the reranker; None: none.
        folds: the fold of each question, shape (Q,).
        bootstrap: the method of intervals and tests.
    """
    fusions = list_fusions(names, depth)
    validated = cross_validate(trials.values, fusions, lambda node: list_rerankings(node, reranker), folds)
    baseline = max(list_baselines(names, depth, reranker), key=lambda node: trials.values(node).mean())
    means = [float(validated.values[folds == fold].mean()) for fold in range(len(validated.choices))]
    return Tuned(
        validated.final,
        bootstrap.interval(validated.values),
        list(zip(means, validated.choices, strict=True)),
        float(trials.values(validated.final).mean()),
        (baseline, bootstrap.interval(trials.values(baseline))),
        bootstrap.paired_test(validated.values, trials.values(baseline)),
    )
