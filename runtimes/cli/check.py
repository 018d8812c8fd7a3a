"""``idx check``: compare the files of a corpus with their checksums, measure the recall of its indexes, or check what runs on a GPU.

Examples:
    idx check sample
    idx check wiki2018 --recall --queries questions.txt
    idx check --gpu
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.base.progress_display import show_steps

from . import completion
from .option_groups import command
from .screen import Result, note

if TYPE_CHECKING:
    from .check_gpu import Part


@command()
def check(
    corpus: Annotated[str, completion.corpus_argument("A built corpus.")] = "",
    recall: Annotated[
        bool, typer.Option("--recall", help="Measure the recall of the vector indexes against exact search instead.")
    ] = False,
    queries: Annotated[
        Path | None, typer.Option(help="Queries for --recall: one per line, as text or JSON, or any file of questions.")
    ] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Compare what runs on a GPU with the CPU instead, with made data; without a GPU, on the CPU.")
    ] = False,
) -> Result:
    """Verify the files of a corpus by their checksums.

    With --gpu, compare what runs on a GPU with the CPU. Exit status 1 if a file is corrupt, or a comparison failed.
    """
    from wikidx.base.errors import InputError
    from wikidx.corpora.resolving import require_built

    if gpu:
        if recall or corpus:
            raise InputError("--gpu checks this machine, with made data: leave the corpus and --recall out")
        return _check_gpu()
    if not corpus:
        raise InputError("name a built corpus, or --gpu")
    require_built(corpus)
    if queries and not recall:
        raise InputError("--queries is for --recall")
    return _measure_recall(corpus, queries) if recall else _find_corruption(corpus)


def _check_gpu() -> Result:
    """Compare what runs on a GPU with the CPU, and measure the card."""
    import importlib.util

    from wikidx.base.errors import MissingExtraError

    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        raise MissingExtraError("idx check --gpu", "gpu")
    from .check_gpu import Part, compare_all, describe_device, device_to_check

    device, parts = device_to_check(), list[Part]()
    with show_steps() as step:
        progress = step("comparing", "parts")
        for part in compare_all(device):
            parts.append(part)
            progress(len(parts), None)
    figures, passed = describe_device(device), all(part.passed for part in parts)
    values = {"device": device, "passed": passed, "parts": [_part_json(part) for part in parts], "figures": figures}
    shown = (f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items())
    verdict = f"{device}: {'' if passed else 'not '}all comparisons passed{'' if 'cuda' in device else '; there is no GPU here'}"
    if passed:
        note(verdict)
    lines = [*(line for part in parts for line in _part_lines(part)), "", ", ".join(shown)]
    return Result(values, lines, failure=None if passed else verdict)


def _part_lines(part: Part) -> Iterator[str]:
    yield f"{'passed' if part.passed else 'FAILED':<10}{part.name:<18}{part.seconds:>5.1f} s  {part.reason}".rstrip()
    for case, difference, allowed in part.differences:
        yield f"{'':10}{case}: {difference:.1e} of {allowed:.0e}"


def _part_json(part: Part) -> dict[str, Any]:
    """Return a comparison as JSON, which has no number for infinity and NaN."""
    found = [
        {"case": case, "difference": difference if math.isfinite(difference) else None, "allowed": allowed, "passed": difference <= allowed}
        for case, difference, allowed in part.differences
    ]
    return {"name": part.name, "passed": part.passed, "seconds": part.seconds, "reason": part.reason, "differences": found}


def _measure_recall(corpus: str, queries: Path | None) -> Result:
    from wikidx.indexer.recall import measure_recall
    from wikidx.runtimes.questions.queries import read_queries

    texts = {query.text: query.error for query in read_queries(queries)} if queries else {}
    if error := texts.pop("", None):
        note(f"lines that are no queries are left out, such as {error}")
    with show_steps() as step:
        reports = measure_recall(corpus, list(texts), str(queries), step)
    return Result({"corpus": corpus, "recall": reports}, _recall_lines(reports))


def _recall_lines(reports: Mapping[str, Any]) -> Iterator[str]:
    for name, report in reports.items():
        yield f"{name}  (exact search: {report['exact_queries_per_s']:,.0f} queries/s)"
        for point in report["points"]:
            yield "    " + _recall_line(point, report)


def _recall_line(point: dict[str, Any], report: dict[str, Any]) -> str:
    param = report["parameter"]
    setting = f"{param} {point[param]:>5}{' *' if point[param] == report['default'] else '  '}" if param else ""
    recalls = "  ".join(f"recall@{k} {value:.3f}" for k, value in point["recall"].items())
    return f"{setting:<18}{recalls}  {point['queries_per_s']:>9,.0f} queries/s"


def _find_corruption(corpus: str) -> Result:
    from wikidx.base.artifacts.manifest import verify_files
    from wikidx.base.errors import ArtifactError, MissingExtraError, PlugInMismatch
    from wikidx.corpora.build import open_store, store_manifest, store_path
    from wikidx.indexer.build import open_index
    from wikidx.indexer.catalog import index_folders, index_ref

    problems: dict[str, list[str]] = {}
    fingerprint: str | None = None  # the store's fingerprint; None if its manifest is unreadable
    with show_steps() as step:
        for name in ("passages", *index_folders(corpus)):
            is_store = name == "passages"
            try:
                manifest = store_manifest(corpus) if is_store else index_ref(corpus, name).manifest(fingerprint)
                fingerprint = manifest.fingerprint if is_store else fingerprint
                path = store_path(corpus) if is_store else index_ref(corpus, name).path
                problems[name] = verify_files(path, manifest, step(f"checking {name}", "B"))
                if not problems[name] and not problems["passages"]:  # opening finds errors that checksums do not
                    store = open_store(corpus)
                    if not is_store:
                        open_index(corpus, name, store)
            except (MissingExtraError, PlugInMismatch) as error:
                note(f"{name}: the files are as built, but it was not opened: {error}")
            except ArtifactError as error:
                problems[name] = [str(error)]
    failure = f"error: '{corpus}' is corrupt: rebuild the parts named above with --force" if any(problems.values()) else None
    lines = [f"{name}: {'; '.join(found) or 'as built'}" for name, found in problems.items()]
    return Result({"corpus": corpus, "problems": problems}, lines, failure=failure)
