"""Estimates for a corpus before it is read: number of passages, build time, and sample passages to time other steps on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from .build import StoreOptions
from .corpus import Corpus
from .fetching.sources import local_paths, missing_bytes
from .passage import Passage
from .reading.compression import measured
from .store import PassageStore

_SAMPLE_PASSAGES = 2_000


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected size of a corpus.

    Attributes:
        n_passages: estimated number of passages.
        passage_bytes: mean UTF-8 bytes of one.
        download_bytes: bytes still to be downloaded.
        sample: some of its first passages; empty if nothing of the corpus is on this machine yet.
    """

    n_passages: int
    passage_bytes: float
    download_bytes: int
    sample: list[Passage]


def forecast_store(store: PassageStore) -> Forecast:
    """Return the exact number of passages of a built store."""
    sample = store.get_many(range(min(len(store), _SAMPLE_PASSAGES)))
    return Forecast(len(store), _mean_bytes(sample), 0, sample)


def forecast_corpus(corpus: Corpus, options: StoreOptions) -> Forecast:
    """Return an estimate from published figures or, if a source is available, from its first passages and its size.

    Raises:
        InputError: the source cannot be opened or has no passages.
    """
    paths = local_paths(corpus, options.source)
    if paths is None and corpus.about is not None:
        n_passages, n_bytes = corpus.about
        return Forecast(min(n_passages, options.limit or n_passages), n_bytes, missing_bytes(corpus), [])
    records = corpus.read(paths or [], lambda bad: None)  # the build itself will report bad records
    located = list(islice(records, _SAMPLE_PASSAGES))
    sample = [passage for passage, _, _ in located]
    n_passages = corpus.n_passages or len(sample)
    if paths and corpus.n_passages is None and len(sample) == _SAMPLE_PASSAGES:
        last_lines = {file: line for _, file, line in located}
        n_sampled, n_all = (sum(sizes) for sizes in zip(*(measured(path, last_lines.get(str(path), 0)) for path in paths), strict=True))
        n_passages = round(n_all / n_sampled * len(sample))
    return Forecast(min(n_passages, options.limit or n_passages), _mean_bytes(sample), 0, sample)


def _mean_bytes(passages: list[Passage]) -> float:
    return sum(len(field.encode(errors="replace")) for passage in passages for field in passage) / max(1, len(passages))
