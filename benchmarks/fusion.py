"""Quality of two retrievers, of their untuned fusion, and of pipelines that ``idx tune`` chooses, on three public collections.

    python -m benchmarks.fusion FOLDER [COLLECTION…]

The collections are those of the test data (``IDX_TEST_DATA``, or ``../shared/data``): BEIR's NFCorpus, CACM, and 33,888 passages of
Wikipedia with questions of NQ (``dpr_union``). Passages and questions are written to FOLDER, and built as corpora if they are not yet.
Each metric is tuned for by itself. "tuned" is its held-out value: each question is ranked by a pipeline that was chosen without it. "p" is
of the paired test of tuned against the best of the untuned pipelines on the same questions.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import Figure, environment, exit_status, print_table
from benchmarks.synthetic import data_folder
from wikidx import build
from wikidx.retrievers.fusion import to_lists
from wikidx.retrievers.opening import OpenCorpora
from wikidx.retrievers.pipelines.tree import Node, Source
from wikidx.runtimes.evaluation.retrieval.scoring import gold_passages
from wikidx.runtimes.evaluation.retrieval.trec import Qrels, read_qrels
from wikidx.runtimes.evaluation.retrieval.tuning import (
    Metric,
    Trials,
    assign_folds,
    judge_by_answers,
    judge_by_qrels,
    list_baselines,
    tune,
)
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval
from wikidx.runtimes.questions import Question, read_questions

RETRIEVERS = ("bm25", "minilm")
DEPTH, N_FOLDS = 100, 5


class Collection(NamedTuple):
    """Passages and questions as records of JSON Lines, the gold passages if they are in a file, and the metrics of the collection."""

    passages: Iterable[Mapping[str, Any]]
    questions: Iterable[Mapping[str, Any]]
    qrels: Path | None
    metrics: tuple[str, ...]


def nfcorpus(data: Path) -> Collection:
    """3,633 titles and abstracts of PubMed, and the 323 questions of BEIR's test split."""
    with zipfile.ZipFile(data / "nfcorpus" / "nfcorpus.zip") as archive:
        documents = [json.loads(line) for line in archive.read("nfcorpus/corpus.jsonl").splitlines()]
        queries = [json.loads(line) for line in archive.read("nfcorpus/queries.jsonl").splitlines()]
    qrels = data / "nfcorpus" / "test.qrels"
    judged = read_qrels(qrels)
    passages = sorted(
        ({"id": each["_id"], "title": each["title"], "text": each["text"]} for each in documents), key=lambda each: each["id"]
    )
    texts = {each["_id"]: each["text"] for each in queries}
    return Collection(passages, [{"id": name, "question": texts[name]} for name in judged], qrels, ("nDCG@10", "R@100"))


def cacm(data: Path) -> Collection:
    """3,204 titles and abstracts of the Communications of the ACM, and the 52 requests with relevant ones."""
    with tarfile.open(data / "cacm" / "cacm.tar.gz") as archive:
        pages = {Path(member.name).stem: archive.extractfile(member) for member in archive}
        texts = {name: re.sub("</?(html|pre)>", "", page.read().decode("ascii")) for name, page in sorted(pages.items()) if page}
    topics = (data / "cacm" / "topics.cacm.txt").read_text(encoding="ascii")
    qrels = data / "cacm" / "qrels.cacm.txt"
    judged = read_qrels(qrels)
    queries = re.findall(r"<DOCNO> (\d+) </DOCNO>(.*?)</DOC>", topics, re.DOTALL)
    questions = [{"id": name, "question": " ".join(text.split())} for name, text in queries if name in judged]
    return Collection([{"id": name, "title": "", "text": text} for name, text in texts.items()], questions, qrels, ("nDCG@10", "R@100"))


def dpr_union(data: Path) -> Collection:
    """33,888 Wikipedia passages of 100 words, and 2,655 questions of Natural Questions with answers."""
    folder = data / "dpr_union"
    fields = ("id", "title", "text")
    passages = ({name: each[name] for name in fields} for each in _records(folder / "passages.jsonl.gz"))
    questions = (
        {"id": each["qid"], "question": each["question"], "golden_answers": each["answers"]}
        for each in _records(folder / "queries.nq_oracle.jsonl.gz")
    )
    return Collection(passages, questions, None, ("answer@5", "answer@20"))


COLLECTIONS = {"nfcorpus": nfcorpus, "cacm": cacm, "dpr_union": dpr_union}


def measure(name: str, data: Path, folder: Path) -> list[dict[str, Figure]]:
    """Return a row for each metric of a collection."""
    collection = COLLECTIONS[name](data)
    files = {"passages": folder / f"{name}.jsonl", "questions": folder / f"{name}.questions.jsonl"}
    for kind, file in files.items():
        file.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in getattr(collection, kind)), encoding="utf-8")
    build(files["passages"], "+".join(RETRIEVERS), name=name, device="cpu").close()
    questions = read_questions(files["questions"])
    qrels = read_qrels(collection.qrels) if collection.qrels else gold_passages(questions)
    return [_measure(name, questions, qrels, metric) for metric in collection.metrics]


def _measure(name: str, questions: list[Question], qrels: Qrels, metric: str) -> dict[str, Figure]:
    opened, bootstrap = OpenCorpora(device="cpu"), Bootstrap()
    store, texts, parsed = opened.store(name), [question.text for question in questions], Metric.parse(metric)
    retrieved = {each: to_lists([opened.retriever(name, each).retrieve(texts, DEPTH)], len(store)) for each in RETRIEVERS}
    judged = judge_by_answers(questions, retrieved, store) if parsed.kind == "answer" else judge_by_qrels(questions, qrels, store)
    trials = Trials(texts, retrieved, judged, parsed, store, {})
    tuned = tune(trials, RETRIEVERS, DEPTH, None, assign_folds(texts, N_FOLDS, 0), bootstrap)
    untuned: dict[str, Node] = {str(node) if isinstance(node, Source) else "RRF": node for node in list_baselines(RETRIEVERS, DEPTH, None)}
    return {
        "collection": name,
        "questions": len(questions),
        "metric": metric,
        **{label: _format(bootstrap.interval(trials.values(node))) for label, node in untuned.items()},
        "tuned": _format(tuned.held_out),
        "tuned - best": f"{100 * tuned.test.difference:+.1f} [{100 * tuned.test.low:+.1f}, {100 * tuned.test.high:+.1f}]",
        "p": round(tuned.test.p, 3),
        "pipeline": f"`{tuned.pipeline}`",
    }


def _format(interval: Interval) -> str:
    return f"{100 * interval.mean:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _records(path: Path) -> Iterable[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def main() -> int:
    """Measure the collections, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for the files of passages and questions")
    parser.add_argument("collections", nargs="*", metavar="COLLECTION", help=f"default: {', '.join(COLLECTIONS)}")
    parser.add_argument("--json", type=Path, help="file for the table as JSON")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for name in arguments.collections or COLLECTIONS for row in measure(name, data_folder(), arguments.folder)]
    print_table("Fusion, untuned and tuned", rows, environment("numpy"), arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
