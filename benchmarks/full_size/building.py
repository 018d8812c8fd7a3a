"""``idx build`` as a process: watched artifact by artifact, ended by SIGKILL on the way, or limited in its memory."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engines.kinds import NAME
from benchmarks.monitoring import folder_bytes, memory_use
from wikidx.base.artifacts.building import staging_path
from wikidx.base.errors import IdxError

ARTIFACTS = {"passages": "passages", "bm25": "indexes/bm25"}  # in the order of their building; folders in that of the corpus
IDX = ("-c", "from wikidx.runtimes.cli import main; main()")
_LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
_ROOT = Path(__file__).parents[2]
_LOOK_EVERY_S, _LOOKS_A_DISK = 0.02, 50
_KILLED_AT = 0.3  # share of the estimated bytes of an artifact

Figures = dict[str, Any]


@dataclass(slots=True)
class ArtifactFigures:
    """Resources of the building of one artifact: seconds, and peaks of private and all memory, in bytes."""

    s: float = 0.0
    own: int = 0
    resident: int = 0


@dataclass(slots=True)
class Run:
    """One run of ``idx build``.

    Attributes:
        status: of its exit; negative for a signal.
        errors: its standard error.
        cpu_s: CPU seconds of all its processes.
        disk: peak size of all files of the data home.
        artifacts: by name.
    """

    status: int = 0
    errors: str = ""
    cpu_s: float = 0.0
    disk: int = 0
    artifacts: dict[str, ArtifactFigures] = field(default_factory=lambda: {name: ArtifactFigures() for name in ARTIFACTS})

    @property
    def s(self) -> float:
        """Seconds of the run."""
        return sum(part.s for part in self.artifacts.values())

    def figures(self) -> Figures:
        """Return the figures, those of each artifact under its name."""
        of_artifacts = {f"{name}_{key}": getattr(part, key) for name, part in self.artifacts.items() for key in ("s", "own", "resident")}
        peaks = {key: max(getattr(part, key) for part in self.artifacts.values()) for key in ("own", "resident")}
        return {"s": self.s, "cpu_s": self.cpu_s, "disk": self.disk, **peaks, **of_artifacts}


def limited(arguments: Sequence[str], limit: int | None) -> list[str]:
    """Return the command line of Python with RLIMIT_DATA, which leaves mapped files out."""
    return [sys.executable, *arguments] if limit is None else [sys.executable, "-c", _LIMITED, str(limit), *arguments]


def build_arguments(file: Path) -> list[str]:
    """Return the arguments of ``idx build`` for a file of passages."""
    return [*IDX, "build", str(file), "--name", NAME, "--bm25"]


def estimate(file: Path) -> Figures:
    """Return what ``idx build --dry-run`` estimates in an empty data home: disk and memory of each artifact."""
    command = [sys.executable, *build_arguments(file), "--dry-run", "--json"]
    with tempfile.TemporaryDirectory() as home:
        ran = subprocess.run(command, cwd=_ROOT, env=_environment(Path(home)), stdout=subprocess.PIPE, text=True, check=True)
    return {one["step"]: {"disk": one["disk_bytes"], "own": one["memory_bytes"]} for one in json.loads(ran.stdout)["estimates"]}


def run_build(file: Path, home: Path, *, kill_at: tuple[str, float] | None = None, limit: int | None = None) -> Run:
    """Run ``idx build``; with ``kill_at``, an artifact and bytes, end it once the unfinished artifact has as many."""
    run, before = Run(), _cpu_s()
    with tempfile.TemporaryFile() as errors:
        command = limited(build_arguments(file), limit)
        with subprocess.Popen(
            command, cwd=_ROOT, env=_environment(home), stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        ) as process:
            try:
                _watch(process, home, run, kill_at)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        errors.seek(0)
        run.errors = errors.read().decode(errors="replace")
    run.status, run.cpu_s = process.returncode, _cpu_s() - before
    return run


def _watch(process: subprocess.Popen[bytes], home: Path, run: Run, kill_at: tuple[str, float] | None) -> None:
    started, looks = time.perf_counter(), 0
    while process.poll() is None:
        name = "bm25" if artifact_path(home, "passages").exists() else "passages"
        now, part = memory_use(process.pid), run.artifacts[name]
        part.own, part.resident = max(part.own, now.own), max(part.resident, now.resident)
        part.s = time.perf_counter() - started - sum(other.s for other in run.artifacts.values() if other is not part)
        if kill_at is not None and name == kill_at[0] and folder_bytes(staging_path(artifact_path(home, name))) >= kill_at[1]:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if looks % _LOOKS_A_DISK == 0:
            run.disk = max(run.disk, folder_bytes(home))
        looks += 1
        time.sleep(_LOOK_EVERY_S)


def build(file: Path, home: Path) -> Figures:
    """Build without interruption.

    Raises:
        IdxError: it failed.
    """
    run = run_build(file, home)
    if run.status:
        raise IdxError(f"idx build ended with status {run.status}: {run.errors.strip()}")
    return {**run.figures(), "files": bytes_by_file(home)}


def build_interrupted(file: Path, home: Path, expected: Mapping[str, Mapping[str, float]]) -> Figures:
    """Build, ended by SIGKILL within the store and again within BM25, and finished by a third run of the same command.

    Raises:
        IdxError: an artifact was finished before it could be interrupted, or the last run failed.
    """
    runs = []
    for name in ARTIFACTS:
        run = run_build(file, home, kill_at=(name, _KILLED_AT * expected[name]["disk"]))
        if run.status != -signal.SIGKILL:
            raise IdxError(f"idx build was not interrupted in '{name}': it ended with status {run.status}; try more passages")
        runs.append(run)
    runs.append(run_build(file, home))
    if runs[-1].status:
        raise IdxError(f"idx build ended with status {runs[-1].status}: {runs[-1].errors.strip()}")
    return {**_joined(runs).figures(), "files": bytes_by_file(home), "runs_s": [run.s for run in runs]}


def _joined(runs: Sequence[Run]) -> Run:
    """Return several runs as one: times add up, of the peaks the highest counts."""
    whole = Run(cpu_s=sum(run.cpu_s for run in runs), disk=max(run.disk for run in runs))
    for name, part in whole.artifacts.items():
        parts = [run.artifacts[name] for run in runs]
        part.s, part.own, part.resident = sum(one.s for one in parts), max(one.own for one in parts), max(one.resident for one in parts)
    return whole


def compare(home: Path, other: Path) -> Figures:
    """Compare two data homes: files, those whose checksums in the manifests differ, and whether the contents' fingerprints are equal."""
    mine, others = _checksums(home), _checksums(other)
    names = mine.keys() | others.keys()
    is_same = [_manifest(home, name)["fingerprint"] == _manifest(other, name)["fingerprint"] for name in ARTIFACTS]
    different = sorted(name for name in names if mine.get(name) != others.get(name))
    return {"compared": len(names), "different": different, "same_contents": all(is_same)}


def build_limited(file: Path, home: Path, limit: int) -> Figures:
    """Build with limited memory in an empty data home, which is removed."""
    shutil.rmtree(home, ignore_errors=True)
    run = run_build(file, home, limit=limit)
    shutil.rmtree(home, ignore_errors=True)
    return {**run.figures(), "outcome": outcome(run.status, run.errors)}


def outcome(status: int, errors: str) -> str:
    """Return how a command ended: finished, refused with a line, or worse."""
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    if status == 0:
        return "finished"
    if status < 0:
        return f"killed by signal {-status}"
    is_refusal = "Traceback" not in errors and "MemoryError" not in errors
    return f"refused: {lines[-1]}" if is_refusal and lines else f"failed with status {status}: {lines[-1] if lines else ''}"


def artifact_path(home: Path, name: str) -> Path:
    """Return the folder of a finished artifact."""
    return home / NAME / ARTIFACTS[name]


def bytes_by_file(home: Path) -> dict[str, int]:
    """Return the size of each file of the corpus."""
    folder = home / NAME
    return {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()}


def _checksums(home: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ARTIFACTS:
        found |= {f"{name}/{file}": record["sha256"] for file, record in _manifest(home, name)["files"].items()}
    return found


def _manifest(home: Path, name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((artifact_path(home, name) / "manifest.json").read_bytes())
    return manifest


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"IDX_HOME": str(home)}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
