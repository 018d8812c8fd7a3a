"""``idx tune``: choose a pipeline of retrievers on questions, and save it with its held-out figure.

Examples:
    idx tune sample --questions sample --retriever bm25 --retriever minilm --metric answer@5 --name my-hybrid
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.base.errors import InputError

from . import completion
from .eval_options import Seed
from .method_options import Device
from .option_groups import command
from .question_options import QuestionOptions, Questions
from .screen import Result

if TYPE_CHECKING:
    from wikidx.retrievers.kernels import Lists
    from wikidx.retrievers.opening import OpenCorpora
    from wikidx.runtimes.evaluation.retrieval.trec import Qrels
    from wikidx.runtimes.evaluation.retrieval.tuning import Metric, Tuned
    from wikidx.runtimes.evaluation.uncertainty import Bootstrap
    from wikidx.runtimes.questions import Question

Corpus = Annotated[str, completion.corpus_argument("A built corpus.")]
Retrievers = Annotated[list[str] | None, completion.retriever_option("A retriever to choose from; to be repeated.")]
Reranker = Annotated[str | None, typer.Option(help="A reranker that may end the pipeline: a name, as of idx search, or a directory.")]
MetricName = Annotated[str, typer.Option("--metric", help="The metric: nDCG@10, R@100, Success@5 (on gold passages) or answer@20.")]
QrelsFile = Annotated[Path | None, typer.Option("--qrels", help="Gold passages as qrels of TREC or BEIR.")]
Depth = Annotated[int, typer.Option(min=1, max=1000, help="Number of results of each retriever; at least the metric's cutoff.")]
Folds = Annotated[int, typer.Option(min=2, help="Number of folds of the cross-validation.")]
Name = Annotated[str, typer.Option(help="Name of the pipeline, which search, serve and run take as a retriever.")]


@command()
def tune(  # noqa: PLR0913
    corpus: Corpus,
    questions: Questions,
    retriever: Retrievers = None,
    reranker: Reranker = None,
    name: Name = "tuned",
    *,
    question_options: QuestionOptions,
    metric: MetricName = "nDCG@10",
    qrels: QrelsFile = None,
    depth: Depth = 100,
    folds: Folds = 5,
    seed: Seed = 0,
    device: Device = "auto",
) -> Result:
    """Choose a pipeline of retrievers on questions: fusion, weights, depth, rerank depth. Save it with its held-out figure."""
    from wikidx.corpora.build import store_manifest
    from wikidx.corpora.resolving import require_built
    from wikidx.retrievers.opening import OpenCorpora
    from wikidx.retrievers.pipelines.saved import prepare_pipeline, write_pipeline
    from wikidx.runtimes.evaluation.retrieval.trec import read_qrels
    from wikidx.runtimes.evaluation.retrieval.tuning import Metric, Trials, assign_folds, judge_by_answers, judge_by_qrels
    from wikidx.runtimes.evaluation.retrieval.tuning import tune as tune_pipeline
    from wikidx.runtimes.evaluation.uncertainty import Bootstrap

    parsed, names = Metric.parse(metric), _retriever_names(retriever or [])
    require_built(corpus)
    prepare_pipeline(corpus, name)  # before hours of work
    asked, gold = _select(question_options.read(questions), read_qrels(qrels) if qrels else None, parsed)
    assigned = assign_folds([question.text for question in asked], folds, seed)
    opened, depth = OpenCorpora(device=device), max(depth, parsed.k)
    retrieved = _retrieve(opened, corpus, names, asked, depth)
    store = opened.store(corpus)
    judged = judge_by_answers(asked, retrieved, store) if parsed.kind == "answer" else judge_by_qrels(asked, gold, store)
    rerankers = {reranker: opened.reranker(reranker)} if reranker else {}
    trials = Trials([question.text for question in asked], retrieved, judged, parsed, store, rerankers)
    bootstrap = Bootstrap(seed=seed)
    tuned = tune_pipeline(trials, names, depth, reranker, assigned, bootstrap)
    record = _to_record(tuned, {"metric": metric, "questions": questions, "n_questions": len(asked), "folds": folds, "seed": seed})
    record["corpus_fingerprint"] = store_manifest(corpus).fingerprint
    description = f"{metric} {tuned.held_out.mean:.4f} on held-out questions of {Path(questions).name}"
    path = write_pipeline(corpus, name, tuned.pipeline, description, record)
    saved = f"saved as '{name}' in {path}: idx search {corpus} QUERY --retriever {name}"
    return Result({"corpus": corpus, "name": name, "pipeline": str(tuned.pipeline), **record}, [*_lines(tuned, metric, bootstrap), saved])


def _retriever_names(given: list[str]) -> list[str]:
    """Return the canonical names of single retrievers."""
    from wikidx.retrievers.naming import RetrieverName

    names = list[str]()
    for text in given:
        parsed = RetrieverName.parse(text)
        parsed.check()
        names += dict.fromkeys((*parsed.parts, *parsed.remotes))
    if not names or len(set(names)) < len(names):
        raise InputError("name retrievers to choose from with --retriever, each once, such as --retriever bm25 --retriever minilm")
    return names


def _select(questions: list[Question], qrels: Qrels | None, metric: Metric) -> tuple[list[Question], Qrels]:
    """Return the questions that have what the metric needs, and the gold passages."""
    from wikidx.runtimes.evaluation.retrieval.scoring import gold_passages
    from wikidx.runtimes.evaluation.retrieval.unmatched import explain_no_gold

    if any(question.gold.get("excluded") for question in questions):
        raise InputError("the questions have excluded_ids, which idx tune cannot leave out: tune on questions without them")
    gold = gold_passages(questions) if qrels is None else qrels
    is_answer = metric.kind == "answer"
    selected = [
        each for each in questions if (each.golden_answers if is_answer else any(gain > 0 for gain in gold.get(each.id, {}).values()))
    ]
    if not selected:
        advice = "tune for nDCG@10 on gold passages" if is_answer else f"{explain_no_gold(questions, qrels)}, or tune for answer@20"
        raise InputError(f"none of the {len(questions):,} questions has {'answers' if is_answer else 'gold passages'}: {advice}")
    return selected, gold


def _retrieve(
    opened: OpenCorpora,
    corpus: str,
    names: list[str],
    questions: list[Question],
    depth: int,
) -> dict[str, Lists]:
    """Search with each retriever once."""
    from wikidx.base.progress_display import show_steps
    from wikidx.retrievers.fusion import concatenate, to_lists

    texts, n_rows, batch = [question.text for question in questions], len(opened.store(corpus)), 256
    retrieved: dict[str, Lists] = {}
    for name in names:
        retriever, lists = opened.retriever(corpus, name), []
        with show_steps() as step:
            progress = step(name, "questions")
            for start in range(0, len(texts), batch):
                progress(start, len(texts))
                lists.append(to_lists(retriever.retrieve(texts[start : start + batch], min(depth, n_rows)), n_rows))
            progress(len(texts), len(texts))
        retrieved[name] = concatenate(lists)
    return retrieved


def _to_record(tuned: Tuned, how: dict[str, Any]) -> dict[str, Any]:
    baseline, value = tuned.baseline
    return {
        **how,
        "held_out": tuned.held_out.mean,
        "held_out_interval": [tuned.held_out.low, tuned.held_out.high],
        "held_out_of_folds": [mean for mean, _ in tuned.folds],
        "pipelines_of_folds": [str(node) for _, node in tuned.folds],
        "training": tuned.training,
        "baseline": str(baseline),
        "baseline_mean": value.mean,
        "baseline_interval": [value.low, value.high],
        "difference": tuned.test.difference,
        "difference_interval": [tuned.test.low, tuned.test.high],
        "p": tuned.test.p,
    }


def _lines(tuned: Tuned, metric: str, bootstrap: Bootstrap) -> Iterator[str]:
    def text(mean: float, low: float, high: float) -> str:
        return f"{mean:.4f} [{low:.4f}, {high:.4f}]"

    baseline, value = tuned.baseline
    yield f"pipeline   {tuned.pipeline}"
    yield f"held out   {metric} {text(*tuned.held_out[:3])} on {tuned.held_out.n:,} questions ({bootstrap.note()})"
    for number, (mean, node) in enumerate(tuned.folds, 1):
        yield f"  fold {number}   {mean:.4f}  chosen without it: {node}"
    yield f"training   {metric} {tuned.training:.4f}, on the questions that it was chosen on: too high to quote"
    yield f"untuned    {metric} {text(*value[:3])} for {baseline}, the best of those on the same questions"
    verdict = "significant" if tuned.test.p < 0.05 else "not significant"
    yield f"difference {text(*tuned.test[:3])}, held out minus untuned: {verdict} (p {tuned.test.p:.3f}, paired randomisation test)"
