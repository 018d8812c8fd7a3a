"""One part in a process of its own, with a time limit. An abort, a hang or an exception costs only this part."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .task import RECORDS, Record  # not from .part, which its own process runs, and would then import before

Status = Literal["passed", "failed", "skipped", "out of time", "interrupted", "not run"]
Kind = Literal["machine", "correctness", "speed"]

_CLOSING_S = 2.0  # for a process that is told to end
_LEAST_S = 2.0  # a process takes longer than this to start
_MARGIN = 0.8  # share of the time limit after which a part that looks at the time begins no further step


class Part(NamedTuple):
    """A part of the check.

    Attributes:
        name: name for the user.
        kind: kind of results; parts of speed cannot fail by a difference.
        function: ``module:function``, called with a ``Task`` and the sizes of the device.
        limit_s: time limit on a GPU.
        on_gpu, on_cpu: the function's further arguments, values of JSON.
        environment: environment variables of the process.
    """

    name: str
    kind: Kind
    function: str
    limit_s: float
    on_gpu: Mapping[str, Any] = {}
    on_cpu: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}


@dataclass(slots=True)
class Outcome:
    """Result of a part.

    Attributes:
        part: the part.
        status: "out of time": the whole check's time ended before the part's did.
        device: torch's name of the device; "" if nothing ran.
        seconds: duration.
        records: records up to the end of the process, however it ended.
        reason: explanation unless the part has passed.
        output: last lines that the process wrote, if it failed.
    """

    part: Part
    status: Status
    device: str = ""
    seconds: float = 0.0
    records: list[Record] = field(default_factory=list)
    reason: str = ""
    output: str = ""

    @property
    def differences(self) -> list[Record]:
        """The records of differences, those next to their limit, or the farthest beyond it, first."""
        return sorted((record for record in self.records if "difference" in record), key=_closeness, reverse=True)

    @property
    def figures(self) -> list[Record]:
        """The records of figures."""
        return [record for record in self.records if "figures" in record]

    @property
    def notes(self) -> list[str]:
        """The cases that could not be run."""
        return [str(record["note"]) for record in self.records if "note" in record]


def _closeness(record: Record) -> tuple[bool, float, float]:
    difference, allowed = record["difference"], record["allowed"]
    is_known = difference is not None
    return not record["passed"], difference / allowed if is_known and allowed else float("inf") if not is_known else 0.0, difference or 0.0


def run_part(part: Part, device: str, seconds_left: float) -> Outcome:
    """Run a part in a process of its own, for at most its time limit and ``seconds_left``.

    On Ctrl-C the outcome is "interrupted", with the records so far.
    """
    limit = min(part.limit_s, seconds_left)
    if limit < _LEAST_S:
        return Outcome(part, "not run", reason="no time left")
    sizes = part.on_gpu if device.startswith("cuda") else part.on_cpu
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a process that was killed may still write
        records, output = Path(folder, RECORDS), Path(folder, "output")
        records.touch()
        arguments = [part.function, device, str(_MARGIN * limit), folder, json.dumps(sizes)]
        started = time.monotonic()
        with output.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.part", *arguments],
                env={**os.environ, **part.environment},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,  # Ctrl-C is for this process, which ends the part and all that it has started
            )
        ended: int | Status
        try:
            ended = process.wait(limit)
        except subprocess.TimeoutExpired:
            ended = "failed" if limit == part.limit_s else "out of time"
        except KeyboardInterrupt:
            ended = "interrupted"
        finally:
            _end_group(process)
        outcome = Outcome(part, "failed", device, time.monotonic() - started, _read_records(records))
        _judge(outcome, ended, limit, output.read_text(errors="replace"))
        return outcome


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started; those left behind by a crash too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM if process.poll() is None else signal.SIGKILL)
    try:
        process.wait(_CLOSING_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read_records(path: Path) -> list[Record]:
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # a process may have ended while it wrote a line


def _judge(outcome: Outcome, ended: int | Status, limit: float, output: str) -> None:
    """Set the status of a part that ran, and its reason."""
    *_, last = [record for record in outcome.records if {"finished", "skipped"} & set(record)] or [{}]
    outcome.records = [record for record in outcome.records if record is not last]
    lines = [line for line in output.splitlines() if line.strip()]
    failed = [record for record in outcome.differences if not record["passed"]]
    if ended in ("out of time", "interrupted") and not failed:
        outcome.status = "out of time" if ended == "out of time" else "interrupted"
        outcome.reason = f"ended after {outcome.seconds:.0f} s, with what was done until then"
    elif ended == "failed":
        outcome.reason = f"did not end within {limit:.0f} s"
    elif isinstance(ended, int) and ended < 0:
        outcome.reason = f"the process was ended by {_signal_name(-ended)}" + (f": {lines[-1]}" if lines else "")
    elif ended == 0 and "skipped" in last:
        outcome.status, outcome.reason = "skipped", str(last["skipped"])
    elif failed:
        outcome.reason = f"{len(failed)} of {len(outcome.differences)} differences are larger than allowed"
    elif ended == 0 and "finished" in last:
        outcome.status = "passed"
    else:
        outcome.reason = lines[-1] if lines else f"the process ended with status {ended}"
    outcome.output = "" if outcome.status in ("passed", "skipped") else "\n".join(lines[-40:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
