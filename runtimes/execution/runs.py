"""A run on disk: its settings in ``run.json``, and the outcome of each question in ``predictions.jsonl``.

Each prediction is appended as one line as soon as it is available. An interruption leaves at most the last line incomplete. Resuming cuts
off an incomplete line and repeats its question. A run resumes only with its original settings. If a question has several lines, the last
one counts. When all questions are finished, the lines are put in the order of the questions.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from wikidx.base.artifacts.building import system_errors
from wikidx.base.artifacts.durable import atomic_write, parse_json, write_durably
from wikidx.base.errors import ArtifactCorrupt, InputError, LockedError, named_errors
from wikidx.corpora.reading.compression import check_file
from wikidx.runtimes.llms.text import replace_surrogates

RUN, PREDICTIONS = "run.json", "predictions.jsonl"
FORMAT = 2

_SYNC_EVERY_S = 1.0
_RECORD_EVERY_S = 10.0
_SHOWN_CHARACTERS = 60
_ADVICE = "remove this folder to make the run anew, or take another folder for --out"

logger = logging.getLogger(__name__)


class Line(NamedTuple):
    """A line of ``predictions.jsonl``: its offset and size in bytes."""

    offset: int
    size: int


class RunLog:
    """The open predictions file of a run; created by ``open_run``.

    Attributes:
        done: id of a finished question -> its error; None if the question was answered.
        models: the models that answered, as their endpoints name them; recorded in ``run.json``.
        order: ids of all questions, in the order that the lines get at the end; empty: they stay as they are.
    """

    def __init__(self, folder: Path, file: IO[bytes], record: dict[str, Any], done: dict[str, str | None]) -> None:
        self._folder, self._file, self._record = folder, file, record
        self._started = self._synced = time.monotonic()
        self.done, self.models, self.order = done, set[str](), list[str]()
        self.record_session()

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a prediction, given as JSON values with ``id`` and ``error``. Non-finite numbers become null."""
        self._file.write(_line(record))
        self._file.flush()
        self.done[record["id"]] = record["error"]
        if time.monotonic() - self._synced >= _SYNC_EVERY_S:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()
        if time.monotonic() - self._recorded >= _RECORD_EVERY_S:
            self.record_session()

    def sort(self) -> None:
        """Put the lines in their final order, atomically; those of one question keep theirs, and those of no question come last.

        Nothing can be appended afterwards.
        """
        place = {name: number for number, name in enumerate(self.order)}
        lines = [(place.get(record["id"], len(place)), *line) for record, line in complete_lines(self._folder / PREDICTIONS)]
        if (ordered := sorted(lines)) != lines:
            with atomic_write(self._folder / PREDICTIONS) as file:
                for _, offset, size in ordered:
                    file.write(os.pread(self._file.fileno(), size, offset))

    def record_session(self) -> None:
        """Record in ``run.json`` how long this session has run so far, and which models have answered."""
        self._recorded = time.monotonic()
        models = {"models": sorted(self.models)} if self.models else {}
        self._record["sessions"][-1] |= {"seconds": round(self._recorded - self._started, 3), **models}
        write_durably(self._folder / RUN, json.dumps(self._record, ensure_ascii=False, indent=1).encode())


@contextlib.contextmanager
def open_run(folder: Path, settings: Mapping[str, Any], session: Mapping[str, Any]) -> Iterator[RunLog]:
    """Start a run in a folder, or resume the existing one.

    ``session`` is the record of this start, to which its duration and the models that answered are added.

    Raises:
        InputError, ArtifactCorrupt: see ``check_settings``; or a complete line cannot be read.
        LockedError: another process has the run open.
        StorageError: the disk is full or read-only, or access is denied; the same command resumes the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with system_errors(folder), named_errors(folder / PREDICTIONS), (folder / PREDICTIONS).open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(file.fileno()), (folder / PREDICTIONS).stat()):
                raise BlockingIOError  # a run that has just ended has put its lines in order
        except BlockingIOError:
            raise LockedError(f"another process is at work on the run in {folder}: wait for it or end it") from None
        earlier = check_settings(folder, settings)
        done, n_whole = dict[str, str | None](), 0
        for record, line in complete_lines(folder / PREDICTIONS):
            done[record["id"]], n_whole = record["error"], sum(line)
        if n_cut := os.fstat(file.fileno()).st_size - n_whole:
            logger.info("an unfinished line of %s bytes was cut off: its question is repeated", f"{n_cut:,}")
        file.truncate(n_whole)
        sessions = [*earlier, {**session, "predictions_before": len(done)}]
        log = RunLog(folder, file, {"format": FORMAT, "settings": settings, "sessions": sessions}, done)
        try:
            yield log
        finally:
            os.fsync(file.fileno())
            log.record_session()
        log.sort()


def read_predictions(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a question's id and prediction for each line of a run, in order; of several lines for one question, the last counts.

    Raises:
        InputError: the folder has no predictions.
        ArtifactCorrupt: a line cannot be read.
    """
    path = folder / PREDICTIONS
    if not path.is_file():
        raise InputError(f"there is no run in {folder}: 'idx run METHOD --questions FILE --out {folder}' makes one")
    yield from ((record["id"], record) for record, _ in complete_lines(path))


def check_settings(folder: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Check that the run in a folder has these settings, and return its sessions; an empty list if the folder has no run.

    Raises:
        InputError: the folder holds a run with other settings or format, or predictions without ``run.json``.
        ArtifactCorrupt: ``run.json`` cannot be read.
    """
    if (folder / RUN).exists():
        check_file(folder / RUN)  # reading a pipe would wait for a writer
    try:
        record = parse_json((folder / RUN).read_bytes())
        recorded, sessions, version = record["settings"], list(record["sessions"]), record["format"]
    except FileNotFoundError:
        if (folder / PREDICTIONS).is_file() and (folder / PREDICTIONS).stat().st_size:
            raise InputError(f"{folder} holds {PREDICTIONS} without {RUN}: {_ADVICE}") from None
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactCorrupt(f"{folder / RUN} cannot be read ({error!r:.120}): {_ADVICE}") from error
    if version != FORMAT:
        raise InputError(f"{folder} holds a run in format {version}, this version of idx writes {FORMAT}: {_ADVICE}")
    if differing := differences(recorded, json.loads(json.dumps(settings))):  # as JSON stores the settings
        raise InputError(f"{folder} holds a run with other settings: {'; '.join(differing)}: resume it with those, {_ADVICE}")
    return sessions


def check_query_encoders(folder: Path, sessions: Sequence[Mapping[str, Any]], current: Mapping[str, Mapping[str, str]]) -> None:
    """Check that queries are encoded in the precision of a run's earlier sessions. By default it depends on the device.

    Args:
        folder: the folder of the run.
        sessions: its sessions; those that encoded queries have "query_encoders".
        current: precision and device of each encoder of queries, by retriever.

    Raises:
        InputError: the precision is another one.
    """
    for name, encoder in current.items():
        known = (session["query_encoders"].get(name, encoder) for session in sessions if "query_encoders" in session)
        if other := next((before for before in known if before["dtype"] != encoder["dtype"]), None):
            dtype, device = other["dtype"], other["device"]
            raise InputError(
                f"{folder} holds a run with queries for '{name}' in {dtype} (on {device}), and here they are in {encoder['dtype']} "
                f"(on {encoder['device']}): resume it with --query-dtype {dtype}, or take another folder for --out"
            )


def differences(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return a description of each setting that differs between two runs."""
    old, new = _flatten(recorded), _flatten(current)
    return [
        f"{name} was {_abbreviate(old.get(name))} and is {_abbreviate(new.get(name))}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _flatten(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flatten(value, f"{above}{name}.") if isinstance(value, dict) and value else {f"{above}{name}": value}
    return flat


def _abbreviate(value: object) -> str:
    text = "not set" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def complete_lines(path: Path) -> Iterator[tuple[dict[str, Any], Line]]:
    """Yield the record and the place of each complete line."""
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = parse_json(line)
                if not isinstance(record["id"], str | int) or not isinstance(record["error"], str | None):
                    raise TypeError("its id or error has another type")
            except (ValueError, KeyError, TypeError) as error:
                raise ArtifactCorrupt(
                    f"{path}, line {number} is no prediction ({error!r:.120}): delete it, or take another folder"
                ) from error
            yield record, Line(offset, len(line))
            offset += len(line)


def _line(record: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(record), parse_constant=lambda name: None)
        text = json.dumps(finite, ensure_ascii=False)
    return replace_surrogates(text).encode() + b"\n"
