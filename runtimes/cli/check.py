"""``idx check``: compare all files of a corpus with the checksums in its manifests, or measure the recall of its indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wikidx.corpora.progress_display import show_steps

from . import completion
from .screen import note, print_json, print_line


def check(
    corpus: Annotated[str, completion.corpus_argument("A built corpus.")],
    recall: Annotated[
        bool, typer.Option("--recall", help="Measure the recall of the vector indexes against exact search instead.")
    ] = False,
    queries: Annotated[
        Path | None, typer.Option(help='Queries for --recall, one per line: text, or JSON with "question", "query" or "text".')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Verify the files of a corpus by their checksums.

    Exit status 1 if a file is corrupt.
    """
    from wikidx.corpora.errors import InputError
    from wikidx.corpora.resolving import require_built

    require_built(corpus)
    if queries and not recall:
        raise InputError("--queries is for --recall")
    if recall:
        _report_recall(corpus, queries, as_json=as_json)
    else:
        _report_corruption(corpus, as_json=as_json)


def _report_recall(corpus: str, queries: Path | None, *, as_json: bool) -> None:
    from wikidx.indexer.recall import measure_recall

    with show_steps() as step:
        reports = measure_recall(corpus, queries, step)
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
    from wikidx.corpora.artifacts.manifest import verify_files
    from wikidx.corpora.build import open_store, store_manifest, store_path
    from wikidx.corpora.errors import ArtifactError, MissingExtraError
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
            except MissingExtraError as error:
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
