"""Results as lines of a table, as JSON, and as the text of an issue."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .running import Outcome, Status
from .task import Record

ISSUE_BYTES = 4_000
_SHOWN_FAILURES = 6
_OUTPUT_LINES = 12
_INDENT = " " * 10
_SHOWN: Mapping[Status, str] = {"failed": "FAILED"}
_LEAST_ROWS = 3  # records of the same figures from which they are a table
_INCOMPLETE: tuple[Status, ...] = ("out of time", "interrupted", "not run")


def table_lines(outcome: Outcome, width: int) -> Iterator[str]:
    """Yield the lines of a part, at most ``width`` characters long if no name is longer."""
    part, status = outcome.part, _SHOWN.get(outcome.status, outcome.status)
    head = f"{status:<12}{part.name:<30}"
    if outcome.differences and outcome.status != "skipped":
        head += f"{_largest(outcome.differences[0]):>20}"
    if outcome.status == "not run":
        yield f"{head}{outcome.reason}"
        return
    yield f"{head:<63}{outcome.seconds:>7.1f} s"
    texts = [outcome.reason] if outcome.reason else []
    if outcome.status == "failed":
        failures = [record for record in outcome.differences if not record["passed"]]
        texts += [f"{record['case']}: {_largest(record)}" for record in failures[:_SHOWN_FAILURES]]
        texts += [f"… and {len(failures) - _SHOWN_FAILURES} more"] if len(failures) > _SHOWN_FAILURES else []
    texts += [f"not done: {note}" for note in outcome.notes]
    for text in texts:
        yield from textwrap.wrap(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT + "  ")
    yield from _figure_lines(outcome.figures, width)


def _largest(record: Record) -> str:
    difference, allowed = record["difference"], record["allowed"]
    found = "no number" if difference is None else f"{difference:.3g}" if not allowed else f"{difference:.1e}"
    return f"{found} of {allowed:.0e}" if allowed else f"{found} of 0"


def _figure_lines(records: Sequence[Record], width: int) -> Iterator[str]:
    """Yield figures: successive records of the same figures as a table, others as text."""
    start = 0
    while start < len(records):
        names = list(records[start]["figures"])
        stop = next((n for n in range(start, len(records)) if list(records[n]["figures"]) != names), len(records))
        if stop - start >= _LEAST_ROWS and all(isinstance(value, float | int) for value in records[start]["figures"].values()):
            yield from _rows(records[start:stop], names)
        else:
            for record in records[start:stop]:
                text = f"{record['case']}: {', '.join(f'{name} {_number(value)}' for name, value in record['figures'].items())}"
                yield from textwrap.wrap(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT + "  ")
        start = stop


def _rows(records: Sequence[Record], names: Sequence[str]) -> Iterator[str]:
    label = max(len(str(record["case"])) for record in records)
    columns = [(name, max(7, len(name) + 1)) for name in names]
    yield " " * label + "".join(f"{name:>{size}}" for name, size in columns)
    for record in records:
        yield f"{record['case']:<{label}}" + "".join(f"{_number(record['figures'][name]):>{size}}" for name, size in columns)


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the last line: the parts that passed and failed, where, and those that were not run to their end."""
    ran = [outcome for outcome in outcomes if outcome.device]
    where = f"on {card(outcomes)}" if any(outcome.device.startswith("cuda") for outcome in ran) else "on the CPU"
    n_passed = sum(outcome.status == "passed" for outcome in outcomes)
    texts = [f"{n_passed} of {len(outcomes)} parts passed {where}"]
    for status, label in {"failed": "FAILED", "skipped": "skipped", **dict.fromkeys(_INCOMPLETE, "")}.items():
        names = [outcome.part.name for outcome in outcomes if outcome.status == status]
        texts += [f"{label or status}: {', '.join(names)}"] if names else []
    return ("" if where != "on the CPU" else "no GPU here: ") + "; ".join(texts)


def card(outcomes: Sequence[Outcome]) -> str:
    """Return the name of the first GPU, or that it is not known."""
    figures = _facts(outcomes).get("cuda:0", {})
    return str(figures.get("card", "a GPU"))


def has_passed(outcomes: Sequence[Outcome]) -> bool:
    """Return whether no part has failed, and all of correctness were run to their end or could not be."""
    return all(
        outcome.status in ("passed", "skipped") or (outcome.part.kind == "speed" and outcome.status in _INCOMPLETE) for outcome in outcomes
    )


def to_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return everything that was found, as JSON."""
    parts = [
        {
            "name": outcome.part.name,
            "kind": outcome.part.kind,
            "status": outcome.status,
            "device": outcome.device,
            "seconds": round(outcome.seconds, 2),
            "reason": outcome.reason,
            "differences": outcome.differences,
            "figures": [{"case": record["case"], **record["figures"]} for record in outcome.figures],
            "notes": outcome.notes,
            "output": outcome.output,
        }
        for outcome in outcomes
    ]
    return {"passed": has_passed(outcomes), "summary": summary(outcomes), "parts": parts, "issue": issue_text(outcomes)}


def issue_text(outcomes: Sequence[Outcome]) -> str:
    """Return the text of an issue in Markdown, shorter than ``ISSUE_BYTES``: machine, failures, differences, figures."""
    lines = ["**idx check --gpu**", "", summary(outcomes), "", *_machine_lines(outcomes), ""]
    for outcome in outcomes:
        if outcome.status not in ("passed", "skipped", "not run"):
            lines += [f"### {outcome.part.name}: {outcome.status}", "", outcome.reason, ""]
            failures = [record for record in outcome.differences if not record["passed"]]
            lines += [f"- {record['case']}: {_largest(record)}" for record in failures[:_SHOWN_FAILURES]]
            lines += ["", "```", *outcome.output.splitlines()[-_OUTPUT_LINES:], "```", ""] if outcome.output else []
    lines += ["### Largest differences and speed", "", "```"]
    for outcome in outcomes:
        if outcome.status == "passed" and outcome.part.kind != "machine":
            lines += table_lines(outcome, 120)
    return _clip(lines, "```")


def _machine_lines(outcomes: Sequence[Outcome]) -> list[str]:
    facts = _facts(outcomes)
    return [
        f"- {case}: {', '.join(f'{name} {_number(value)}' for name, value in figures.items())}"
        for case, figures in facts.items()
        if figures
    ]


def _facts(outcomes: Iterable[Outcome]) -> dict[str, Mapping[str, Any]]:
    return {record["case"]: record["figures"] for outcome in outcomes if outcome.part.kind == "machine" for record in outcome.figures}


def _clip(lines: Iterable[str], end: str) -> str:
    """Join lines as far as they fit, and end with a line."""
    kept, room = list[str](), ISSUE_BYTES - len(end) - 10
    for line in lines:
        line = line[:300]
        room -= len(line.encode()) + 1
        if room < 0:
            kept.append("…")
            break
        kept.append(line)
    return "\n".join([*kept, end])
