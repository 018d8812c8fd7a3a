"""What ``idx build`` was asked for, what it will need, and the doing of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from corpora import sample
from corpora.artifacts import Manifest, is_finished
from corpora.build import StoreOptions, build_store, open_store, store_manifest, store_name
from corpora.corpus import Corpus
from corpora.custom import Reading
from corpora.errors import InputError
from corpora.forecast import Forecast, forecast_corpus, forecast_store
from indexer import ENCODERS
from indexer.build import build_index, index_path
from indexer.embed import encoder_spec
from indexer.estimate import Need, bm25_need, check_disk, store_need, vectors_need

from .resolve import corpus_from_file, is_built, is_known, known_corpus, unknown_corpus
from .screen import duration, note, size, steps


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be built.

    Attributes:
        name: the corpus's name on disk.
        corpus: how to build its store; None if all that is known is that it is built.
        options: of the store.
        indexes: to be built over the store.
        device: where encoders run.
    """

    name: str
    corpus: Corpus | None
    options: StoreOptions
    indexes: tuple[str, ...]
    device: str


def understand(corpus: str, name: str | None, options: StoreOptions, reading: Reading) -> tuple[str, Corpus | None]:
    """Return the name on disk, and the corpus unless it is one that is only known to be built.

    Raises:
        InputError, UnknownNameError: there is no such corpus or file, or an option does not go with it.
    """
    if is_known(corpus) or (is_built(corpus) and not Path(corpus).is_file()):
        for option, value, default in (("--name", name, None), ("--format", reading.file_format, None), ("--split", reading.split, None)):
            if value != default:
                raise InputError(f"{option} is for corpora from a file; '{corpus}' has its own")
        found = known_corpus(corpus) if is_known(corpus) else None
        if found is None and (options.source or options.limit):
            raise InputError(f"'{corpus}' is built from a file of yours: name the file again to build it with --source or --limit")
        return (store_name(found, options.limit) if found else corpus), found
    if not Path(corpus).exists():
        raise unknown_corpus(corpus)
    if options.source:
        raise InputError(f"--source is for known corpora; '{corpus}' is a file itself")
    found = corpus_from_file(Path(corpus), name, reading)
    return store_name(found, options.limit), found


def plan(task: Task) -> None:
    """Say what each step of the task needs, and refuse what does not fit on the disk.

    Raises:
        StorageError: the disk is too small.
        InputError, UnknownNameError, MissingExtraError: something named is not there.
    """
    for index in task.indexes:
        index_path(task.name, index)  # an unknown name is said before anything is done
    has_store = is_built(task.name) and (task.corpus is None or not task.options.force)
    forecast = forecast_store(open_store(task.name)) if has_store or task.corpus is None else forecast_corpus(task.corpus, task.options)
    needs = list(_needs(task, forecast, has_store=has_store))
    note(f"corpus '{task.name}': about {forecast.n_passages:,} passages of {size(forecast.passage_bytes)}")
    if forecast.download_bytes:
        note(f"download {size(forecast.download_bytes)}")
    if needs:
        note(f"{'to build':<12}{'disk':>12}{'memory':>12}{'time':>12}   (estimates)")
    for need in needs:
        note(f"{need.step:<12}{size(need.disk_bytes):>12}{size(need.memory_bytes):>12}{duration(need.time_s):>12}")
    check_disk(needs, forecast.download_bytes)


def _needs(task: Task, forecast: Forecast, *, has_store: bool) -> Iterator[Need]:
    """Yield what each step that is not done yet needs."""
    if not has_store:
        yield store_need(forecast.n_passages, forecast.passage_bytes)
    for index in task.indexes:
        if is_finished(index_path(task.name, index)) and not task.options.force:
            continue
        if index in ENCODERS:
            # While nothing of the corpus is here, the encoder is timed on passages of the sample corpus.
            passages = forecast.sample or list(islice(sample.passages(), 64))
            yield vectors_need(forecast.n_passages, forecast.passage_bytes, passages, encoder_spec(index), task.device)
        else:
            yield bm25_need(forecast.n_passages, forecast.passage_bytes)


def carry_out(task: Task) -> dict[str, Manifest]:
    """Build what is not there yet; return the manifests of all that was asked for.

    Raises:
        IdxError: whatever stopped it; started again, it goes on.
    """
    if task.corpus is None:
        manifests = {"passages": store_manifest(task.name)}
    else:
        with steps() as step:
            fetching, storing = step("fetching", "B"), step("passages", "passages")
            manifests = {"passages": build_store(task.corpus, task.options, fetching=fetching, storing=storing)}
    n_skipped = manifests["passages"].counts["skipped"]
    if n_skipped:
        note(f"{n_skipped:,} records were left out: they are listed in skipped.tsv of the passages")
    store = open_store(task.name)
    for index in task.indexes:
        with steps() as step:
            report = step(index, "passages")
            manifests[index] = build_index(task.name, index, store, device=task.device, force=task.options.force, progress=report)
    return manifests
