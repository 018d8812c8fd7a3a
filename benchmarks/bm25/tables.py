"""Figures of ``benchmarks.bm25`` -> rows of tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.bm25.quality import Agreement
from benchmarks.engines.build import Build
from benchmarks.engines.corpus import BenchmarkCorpus
from benchmarks.engines.rounds import Batches, Setting, Singles
from benchmarks.engines.worker import StartupTimes
from benchmarks.report import Figure

# The DPR Wikipedia in Lucene's English analysis: Pyserini, prebuilt index wikipedia-dpr-100w.
WIKI2018_PASSAGES = 21_015_324
WIKI2018_TOKENS = 1_512_973_244

OURS = "bm25"

Row = dict[str, Figure]


@dataclass(frozen=True, slots=True)
class Results:
    """All figures of one corpus; builds and openings by engine, the others empty if only growth is measured."""

    corpus: BenchmarkCorpus
    builds: Mapping[str, Build]
    openings: Mapping[str, StartupTimes]
    batches: Mapping[Setting, Batches]
    singles: Mapping[Setting, Singles]
    agreements: Mapping[Setting, Agreement]


def corpus_rows(results: Sequence[Results]) -> list[Row]:
    """Return a row for each corpus with its size."""
    rows: list[Row] = []
    for result in results:
        counts = result.corpus.counts
        rows.append(
            {
                "corpus": result.corpus.label,
                "passages": counts.passages,
                "text bytes/passage": counts.text_bytes / counts.passages,
                "terms/passage": counts.tokens / counts.passages,
                "postings/passage": counts.postings / counts.passages,
            }
        )
    return rows


def index_rows(results: Sequence[Results]) -> list[Row]:
    """Return a row for each corpus and engine: build time, size and opening time of its index."""
    rows: list[Row] = []
    for result in results:
        counts = result.corpus.counts
        for engine, build in result.builds.items():
            opening = result.openings[engine]
            rows.append(
                {
                    "corpus": result.corpus.label,
                    "engine": engine,
                    "build s": build.seconds,
                    "passages/s": counts.passages / build.seconds,
                    "peak RSS MB": build.peak_bytes / 1e6,
                    "index MB": build.index_bytes / 1e6,
                    "bytes/passage": build.index_bytes / counts.passages,
                    "bytes/posting": build.index_bytes / counts.postings,
                    "ready s": opening.ready_s,
                    "open s": opening.open_s,
                    "RSS at open MB": opening.rss_bytes / 1e6,
                    "first search ms": 1e3 * opening.first_search_s,
                }
            )
    return rows


def batch_rows(result: Results) -> Iterator[Row]:
    """Yield a row for each k, number of threads and engine: questions per second, and agreement of the results."""
    min_threads = min(setting.threads for setting in result.batches)
    for setting, batch in sorted(result.batches.items(), key=lambda item: (item[0].k, item[0].threads)):
        ours = result.batches.get(setting._replace(engine=OURS))
        agreed = result.agreements.get(setting)
        yield {
            "k": setting.k,
            "threads": setting.threads,
            "engine": setting.engine,
            "questions/s, best": max(batch.per_second),
            "median": batch.median,
            "questions/processor s": statistics.median(batch.per_processor_second or [0.0]),
            f"{OURS} is × faster": _ratio(ours.per_second, batch.per_second) if ours else "",
            f"× {min_threads} thread": _ratio(batch.per_second, result.batches[setting._replace(threads=min_threads)].per_second),
            "same set %": 100 * agreed.same_sets if agreed else "",
            "same rows %": 100 * agreed.same_rows if agreed else "",
            "score difference": agreed.score_difference if agreed else "",
            "exact %": 100 * agreed.exact if agreed and agreed.exact is not None else "",
        }


def single_rows(result: Results) -> Iterator[Row]:
    """Yield a row for each k and engine: the time of one question, and how many a second of processor time answers."""
    for setting, single in result.singles.items():
        ours = result.singles.get(setting._replace(engine=OURS))
        yield {
            "k": setting.k,
            "engine": setting.engine,
            "p50 ms": 1e3 * statistics.median(single.p50),
            "p95 ms": 1e3 * statistics.median(single.p95),
            "p99 ms": 1e3 * statistics.median(single.p99),
            "questions/processor s": statistics.median(single.per_processor_second),
            f"{OURS} is × faster (p50)": _ratio(single.p50, ours.p50) if ours else "",
        }


def wiki2018_rows(results: Sequence[Results]) -> list[Row]:
    """Return each engine's estimate for the DPR Wikipedia, on the line through the two corpora with the most terms."""
    smaller, larger = sorted(results, key=lambda result: result.corpus.counts.tokens)[-2:]
    low, high = smaller.corpus.counts.tokens, larger.corpus.counts.tokens

    def estimate(first: float, second: float) -> float:
        return second + (second - first) / (high - low) * (WIKI2018_TOKENS - high)

    rows: list[Row] = []
    for engine, last in larger.builds.items():
        first = smaller.builds[engine]
        rss = (smaller.openings[engine].rss_bytes, larger.openings[engine].rss_bytes)
        rows.append(
            {
                "engine": engine,
                "build min": estimate(first.seconds, last.seconds) / 60,
                "peak RSS GB": estimate(first.peak_bytes, last.peak_bytes) / 1e9,
                "index GB": estimate(first.index_bytes, last.index_bytes) / 1e9,
                "RSS at open MB": estimate(*rss) / 1e6,
            }
        )
    return rows


def _ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median over the rounds of the ratio of two figures, which cancels the slowness of a whole round."""
    return statistics.median(this / that for this, that in zip(numerators, denominators, strict=True))
