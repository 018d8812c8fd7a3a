"""``idx check``: compare the files of a corpus with their checksums, measure the recall of its indexes, or check what runs on a GPU."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from wikidx.base.progress_display import show_steps

from . import completion
from .screen import note, print_json, print_line

_WIDEST = 120  # columns of the table of --gpu


def check(
    corpus: Annotated[str, completion.corpus_argument("A built corpus. With --gpu --json: a file for the JSON.")] = "",
    recall: Annotated[
        bool, typer.Option("--recall", help="Measure the recall of the vector indexes against exact search instead.")
    ] = False,
    queries: Annotated[
        Path | None, typer.Option(help="Queries for --recall: one per line, as text or JSON, or any file of questions.")
    ] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Check and time all that runs on a GPU instead, with made data; without a GPU, on the CPU.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for --gpu.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --gpu, into the file after it, if there is one.")] = False,
) -> None:
    """Verify the files of a corpus by their checksums.

    With --gpu, verify what runs on a GPU against the CPU. Exit status 1 if a file is corrupt, or a part of --gpu failed.
    """
    from wikidx.base.errors import InputError
    from wikidx.corpora.resolving import require_built

    if gpu:
        if recall or (corpus and not as_json):
            raise InputError("--gpu checks this machine, with made data: leave the corpus and --recall out")
        _report_gpu(minutes, Path(corpus) if corpus else None, as_json=as_json)
        return
    if not corpus:
        raise InputError("name a built corpus, or --gpu")
    require_built(corpus)
    if queries and not recall:
        raise InputError("--queries is for --recall")
    if recall:
        _report_recall(corpus, queries, as_json=as_json)
    else:
        _report_corruption(corpus, as_json=as_json)


def _report_gpu(minutes: float, file: Path | None, *, as_json: bool) -> None:
    """Check what runs on a GPU; lines go to standard output, or to standard error if JSON goes there. The file has each part at once."""
    from wikidx.base.artifacts.durable import atomic_write
    from wikidx.runtimes import gpu_check
    from wikidx.runtimes.gpu_check.reporting import has_passed, issue_text, summary, table_lines, to_json

    write, width = note if as_json and file is None else print_line, min(_WIDEST, shutil.get_terminal_size().columns)
    outcomes, is_interrupted = list[gpu_check.Outcome](), False
    write(f"{'largest difference of the limit':>62}")
    try:
        for outcome in gpu_check.check_gpu(60 * minutes, gpu_check.PARTS):
            outcomes.append(outcome)
            is_interrupted |= outcome.status == "interrupted"
            for line in table_lines(outcome, width):
                write(line)
            sys.stdout.flush()  # a part takes long, and its lines may go to a file
            if file is not None:
                with atomic_write(file) as stream:
                    stream.write(json.dumps(to_json(outcomes), indent=1, ensure_ascii=False).encode() + b"\n")
    except KeyboardInterrupt:  # between two parts
        is_interrupted = True
    if as_json and file is None:
        print_json(to_json(outcomes))
    elif not has_passed(outcomes) or any(outcome.device.startswith("cuda") for outcome in outcomes):
        write(f"\nFor an issue:\n\n{issue_text(outcomes)}\n")
    write(summary(outcomes))
    if is_interrupted:
        note("interrupted: what was done until then is above")
        raise typer.Exit(130)
    if not has_passed(outcomes):
        note("error: not all parts passed: the first lines of each say why")
        raise typer.Exit(1)


def _report_recall(corpus: str, queries: Path | None, *, as_json: bool) -> None:
    from wikidx.indexer.recall import measure_recall
    from wikidx.runtimes.questions.queries import read_queries

    texts = {query.text: query.error for query in read_queries(queries)} if queries else {}
    if error := texts.pop("", None):
        note(f"lines that are no queries are left out, such as {error}")
    with show_steps() as step:
        reports = measure_recall(corpus, list(texts), str(queries), step)
    if as_json:
        print_json({"corpus": corpus, "recall": reports})
        return
    for name, report in reports.items():
        print_line(f"{name}  (exact search: {report['exact_queries_per_s']:,.0f} queries/s)")
        for point in report["points"]:
            print_line("    " + _recall_line(point, report))


def _recall_line(point: dict[str, Any], report: dict[str, Any]) -> str:
    param = report["parameter"]
    setting = f"{param} {point[param]:>5}{' *' if point[param] == report['default'] else '  '}" if param else ""
    recalls = "  ".join(f"recall@{k} {value:.3f}" for k, value in point["recall"].items())
    return f"{setting:<18}{recalls}  {point['queries_per_s']:>9,.0f} queries/s"


def _report_corruption(corpus: str, *, as_json: bool) -> None:
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
    if as_json:
        print_json({"corpus": corpus, "problems": problems})
    else:
        for name, lines in problems.items():
            print_line(f"{name}: {'; '.join(lines) or 'as built'}")
    if any(problems.values()):
        note(f"error: '{corpus}' is corrupt: rebuild the parts named above with --force")
        raise typer.Exit(1)
