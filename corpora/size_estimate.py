"""Estimate of a corpus before it is built: number and mean size of its passages, bytes to download, and a sample of passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from .build import StoreOptions
from .corpus import Corpus
from .passage import Passage
from .reading.compression import estimate_sizes
from .reading.readers import unkept_fields
from .sources import local_paths, missing_bytes
from .store import PassageStore

_SAMPLE_PASSAGES = 2_000


@dataclass(frozen=True, slots=True)
class CorpusEstimate:
    """Expected size of a corpus.

    Attributes:
        n_passages: estimated number of passages.
        passage_bytes: mean UTF-8 bytes per passage.
        download_bytes: bytes still to be downloaded.
        sample: the first passages, at most 2,000; empty if the estimate comes from published figures.
        unkept_fields: fields that passages do not keep, of the first 2,000 records of a user's file or of records given in Python.
    """

    n_passages: int
    passage_bytes: float
    download_bytes: int
    sample: list[Passage]
    unkept_fields: Sequence[str] = ()


def estimate_from_store(store: PassageStore) -> CorpusEstimate:
    """Return the estimate of a built store: the exact number of passages, and the mean size of a sample."""
    sample = store.get_many(range(min(len(store), _SAMPLE_PASSAGES)))
    return CorpusEstimate(len(store), _mean_bytes(sample), 0, sample)


def estimate_corpus(corpus: Corpus, options: StoreOptions) -> CorpusEstimate:
    """Return an estimate from published figures or, for local files, from their first passages and sizes.

    Raises:
        InputError: a local file is missing or unreadable.
    """
    paths = local_paths(corpus, options.source)
    if paths is None and corpus.estimate is not None:
        n_passages, n_bytes = corpus.estimate
        return CorpusEstimate(min(n_passages, options.limit or n_passages), n_bytes, missing_bytes(corpus), [])
    records = corpus.read(paths or [], lambda bad: None)  # bad records are ignored here; the build reports them
    located = list(islice(records, _SAMPLE_PASSAGES))
    sample = [record.passage for record in located]
    n_passages = corpus.n_passages or len(sample)
    if paths and corpus.n_passages is None and len(sample) == _SAMPLE_PASSAGES:
        last_lines = {record.file: record.line for record in located}
        n_sampled, n_all = (
            sum(sizes) for sizes in zip(*(estimate_sizes(path, last_lines.get(str(path), 0)) for path in paths), strict=True)
        )
        n_passages = round(n_all / n_sampled * len(sample))
    unkept = unkept_fields(corpus.path, str(corpus.reading["format"]), _SAMPLE_PASSAGES) if corpus.path else corpus.unkept_fields
    return CorpusEstimate(min(n_passages, options.limit or n_passages), _mean_bytes(sample), 0, sample, unkept)


def _mean_bytes(passages: Sequence[Passage]) -> float:
    """Return the mean number of UTF-8 bytes of some passages."""
    return sum(len(field.encode(errors="replace")) for passage in passages for field in passage) / max(1, len(passages))
