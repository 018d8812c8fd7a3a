"""Estimate of a corpus before it is built: number and mean size of its passages, bytes to download, and a sample of passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from wikidx.base.errors import InputError

from .build import StoreOptions
from .corpus import Corpus
from .passage import LocatedPassage, Passage
from .reading.compression import estimate_sizes
from .reading.tables import table_bytes
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
        n_passages = round(len(sample) / _share_read(paths, located))
    return CorpusEstimate(min(n_passages, options.limit or n_passages), _mean_bytes(sample), 0, sample, corpus.find_unkept())


def _share_read(paths: Sequence[Path], located: Sequence[LocatedPassage]) -> float:
    """Return the share of the files' bytes that holds the first passages."""
    last = located[-1]
    n_read = n_all = 0.0
    n_texts = Counter[str]()
    for passage, file, *_ in located:
        n_texts[file] += _n_bytes(passage)
    for path in paths:
        n_text = n_texts[str(path)]
        share = float(n_text > 0)
        if last.file == str(path):
            n_lines, n_whole = _sizes(path, last.line)
            share = (n_lines if n_text <= n_lines < n_whole else min(n_text, n_whole)) / n_whole
        n_read, n_all = n_read + share * path.stat().st_size, n_all + path.stat().st_size
    return n_read / n_all


def _sizes(path: Path, n_lines: int) -> tuple[int, float]:
    """Return ``estimate_sizes``, or 0 and the size of a file without lines, such as Parquet."""
    try:
        return estimate_sizes(path, n_lines)
    except InputError:
        return 0, table_bytes(path)


def _n_bytes(passage: Passage) -> int:
    return sum(len(field.encode(errors="replace")) for field in passage)


def _mean_bytes(passages: Sequence[Passage]) -> float:
    """Return the mean number of UTF-8 bytes of some passages."""
    return sum(map(_n_bytes, passages)) / max(1, len(passages))
