"""What ``idx build`` was asked for, what it will need, and the doing of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from corpora import sample
from corpora.artifacts import Manifest, is_finished
from corpora.build import (
    SKIPPED,
    StoreOptions,
    build_store,
    kept_store,
    open_store,
    skipped_records,
    store_name,
    store_path,
)
from corpora.corpus import Corpus
from corpora.errors import InputError
from corpora.forecast import Forecast, forecast_corpus, forecast_store
from corpora.staging import staged_bytes
from indexer import ENCODERS
from indexer.build import build_index, index_path
from indexer.embed import encoder_spec
from indexer.estimate import Need, bm25_need, check_disk, lucene_need, store_need, vectors_need

from .resolve import name_source
from .screen import duration, note, size, steps

_SHOWN_SKIPPED = 3


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be built.

    Attributes:
        corpus: what the store holds.
        options: of the store.
        indexes: to be built over the store.
        device: where encoders run.
        keeps_store: a store built from a user's file was named, not its file: what is there is used as it is.
    """

    corpus: Corpus
    options: StoreOptions
    indexes: tuple[str, ...]
    device: str
    keeps_store: bool

    @property
    def name(self) -> str:
        """The corpus's name on disk."""
        return store_name(self.corpus, self.options.limit)

    def kept_store(self) -> Manifest | None:
        """Return the manifest of the store that is there and stays, None if it has to be built; raises as ``kept_store`` does."""
        return kept_store(self.corpus, self.options, holds_source=not self.keeps_store)


def plan(task: Task) -> list[Need]:
    """Say what each step of the task needs, and refuse what does not fit on the disk.

    Raises:
        StorageError: the disk is too small.
        InputError, MissingExtraError: something named is not there.
    """
    has_store = task.kept_store() is not None
    source = task.corpus.path
    if not has_store and task.keeps_store and source is not None and not source.is_file():
        raise InputError(f"'{task.name}' was built from {source}, which is not there any more: {name_source(task.corpus.name)}")
    forecast = forecast_store(open_store(task.name)) if has_store else forecast_corpus(task.corpus, task.options)
    needs = list(_needs(task, forecast, has_store=has_store))
    note(f"corpus '{task.name}': {task.corpus.summary}")
    note(f"about {forecast.n_passages:,} passages of {size(forecast.passage_bytes)}")
    if forecast.download_bytes:
        note(f"download {size(forecast.download_bytes)}")
    if needs:
        note(f"{'to build':<12}{'disk':>12}{'memory':>12}{'time':>12}   (estimates)")
    for need in needs:
        note(f"{need.step:<12}{size(need.disk_bytes):>12}{size(need.memory_bytes):>12}{duration(need.time_s):>12}")
    n_staged = sum(map(staged_bytes, (store_path(task.name), *(index_path(task.name, index) for index in task.indexes))))
    check_disk(needs, forecast.download_bytes - n_staged)
    return needs


def carry_out(task: Task) -> dict[str, Manifest]:
    """Build what is not there yet; return the manifests of all that was asked for.

    Raises:
        IdxError: whatever stopped it; started again, it goes on.
    """
    kept = task.kept_store() if task.keeps_store else None
    with steps() as step:
        fetching, storing = step("fetching", "B"), step("passages", "passages")
        manifests = {"passages": kept or build_store(task.corpus, task.options, fetching=fetching, storing=storing)}
    _report_skipped(task.name, manifests["passages"].count("skipped"))
    store = open_store(task.name)
    force = task.options.replace
    for index in task.indexes:
        with steps() as step:
            report = step(index, "passages")
            manifests[index] = build_index(task.name, index, store, device=task.device, force=force, progress=report)
    return manifests


def _needs(task: Task, forecast: Forecast, *, has_store: bool) -> Iterator[Need]:
    """Yield what each step that is not done yet needs."""
    if not has_store:
        yield store_need(forecast.n_passages, forecast.passage_bytes)
    for index in task.indexes:
        if is_finished(index_path(task.name, index)) and not task.options.replace:
            continue
        if index in ENCODERS:
            # While nothing of the corpus is here, the encoder is timed on passages of the sample corpus.
            passages = forecast.sample or list(islice(sample.passages(), 64))
            yield vectors_need(forecast.n_passages, forecast.passage_bytes, passages, encoder_spec(index), task.device)
        else:
            need = lucene_need if index == "lucene" else bm25_need
            yield need(forecast.n_passages, forecast.passage_bytes)


def _report_skipped(name: str, n_skipped: int) -> None:
    if not n_skipped:
        return
    note(f"left out: {n_skipped:,} record{'' if n_skipped == 1 else 's'}, listed in {store_path(name) / SKIPPED}")
    for file, line, reason in islice(skipped_records(name), _SHOWN_SKIPPED):
        note(f"    {file}, line {line}: {' '.join(reason.split())}")
