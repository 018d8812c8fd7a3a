"""``idx questions``: published sets of questions, listed, or fetched by name.

Examples:
    idx questions
    idx questions nq hotpotqa:train
    idx questions halluqa --mirror https://mirror.example.org
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from wikidx.base.progress import format_bytes
from wikidx.base.progress_display import show_steps

from . import completion
from .option_groups import command
from .screen import Result, note, pluralize

if TYPE_CHECKING:
    from wikidx.runtimes.questions import PublishedSet


@command()
def questions(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME[:SPLIT]]...", help="Sets to fetch; default: list all sets.", autocompletion=completion.questions),
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(help="A server to download from: its address replaces the host of the published addresses.")
    ] = None,
    corpus: Annotated[
        str | None,
        completion.corpus_option(
            "Write one set or file of questions to --out with only those gold answers that the first 1,000 passages of this corpus contain."
        ),
    ] = None,
    retriever: Annotated[str, completion.retriever_option("The retriever of these passages.")] = "bm25",
    out: Annotated[Path | None, typer.Option(help="The file for --corpus.")] = None,
) -> Result:
    """List and fetch published sets of questions: download, check and convert them.

    A fetched set is read by its name: --questions nq, or nq:train.
    """
    from wikidx.base.errors import OptionError
    from wikidx.base.registry import unknown_name_error
    from wikidx.runtimes.questions import find_set, published_sets

    if corpus is not None or out is not None:
        if corpus is None or out is None or len(names or ()) != 1:
            raise OptionError("--corpus and --out belong together, and take one set or file of questions")
        return _keep_retrieved_answers((names or [""])[0], corpus, retriever, out)
    if mirror is not None:
        os.environ["IDX_MIRROR"] = mirror
    entries = [(name, find_set(name)) for name in names or ()]
    for name, entry in entries:
        if entry is None:
            raise unknown_name_error("set of questions", name, {one.name for one in published_sets()})
    fetched = {split.key: split for _, entry in entries if entry is not None for split in _fetch(entry)}
    shown = [(entry, _to_json(entry)) for entry in (fetched.values() if names else published_sets())]
    lines = (f"{entry.key}: {pluralize(entry.n, 'question')} in {about['path']}" for entry, about in shown)
    return Result({"questions": [about for _, about in shown]}, lines if names else _table(shown))


def _fetch(entry: PublishedSet) -> list[PublishedSet]:
    from wikidx.runtimes.questions import converted_path
    from wikidx.runtimes.questions.fetching import download_folder, fetch_set

    if converted_path(entry).is_file():
        return [entry]
    size = "" if entry.file.n_bytes is None else f" ({format_bytes(entry.file.n_bytes)})"
    note(f"{entry.key}: {entry.file.url}{size} to {download_folder(entry)}")
    with show_steps() as step:
        splits = fetch_set(entry, step(f"download {entry.file.name}", "B"))
    if entry.file.sha256 is None:
        note(f"note: no checksum of {entry.file.name} is known; a later download must equal this one")
    return splits


def _keep_retrieved_answers(name: str, corpus: str, retriever: str, out: Path) -> Result:
    from wikidx.retrievers.opening import open_searcher
    from wikidx.runtimes.evaluation.retrieval.has_answer import keep_retrieved_answers
    from wikidx.runtimes.questions import find_questions
    from wikidx.runtimes.questions.fetching import write_questions

    asked = find_questions(name, with_passages=True)
    out.parent.mkdir(parents=True, exist_ok=True)  # before hours of searches
    with open_searcher(corpus, retriever) as searcher:
        kept = keep_retrieved_answers(asked, searcher)
    write_questions(out, kept)
    n_before, n_after = (sum(len(one.golden_answers) for one in some) for some in (asked, kept))
    n_empty = sum(not one.golden_answers for one in kept)
    values = {"out": str(out), "questions": len(kept), "gold_answers": n_before, "kept": n_after, "without": n_empty}
    return Result(
        values, [f"{out}: {pluralize(len(kept), 'question')} with {n_after:,} of {n_before:,} gold answers; {n_empty:,} have none"]
    )


def _to_json(entry: PublishedSet) -> dict[str, Any]:
    from wikidx.runtimes.questions import PROTOCOLS, converted_path

    return {
        "name": entry.key,
        "questions": entry.n,
        "url": entry.file.url,
        "sha256": entry.file.sha256,
        "protocols": [protocol.name for protocol in PROTOCOLS.values() if protocol.questions == entry.key],
        "note": entry.note,
        "path": str(converted_path(entry)) if converted_path(entry).is_file() else None,
    }


def _table(entries: Sequence[tuple[PublishedSet, Mapping[str, Any]]]) -> Iterator[str]:
    yield f"{'set':<23} {'questions':>9}  {'here':<4}  {'checksum':<8}  {'from':<26}  protocols; note"
    for entry, about in entries:
        state, checksum = "yes" if about["path"] else "no", "known" if entry.file.sha256 else "first"
        remarks = "; ".join(filter(None, (", ".join(about["protocols"]), entry.note)))
        yield f"{entry.key:<23} {entry.n:>9,}  {state:<4}  {checksum:<8}  {urlsplit(entry.file.url).hostname:<26}  {remarks}".rstrip()
    note("'idx questions NAME' fetches a set; a name without a split means the first. Checksum 'first': not verified here, a first")
    note("download is trusted, and a later one must equal it.")
