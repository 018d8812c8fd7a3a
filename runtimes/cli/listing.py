"""``idx list``: built corpora and indexes, and their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.corpora.errors import ArtifactError
from wikidx.corpora.progress import amount

from .screen import say, say_json

if TYPE_CHECKING:
    from wikidx.corpora.artifacts.manifest import Manifest


def list_corpora(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List corpora, their indexes and sizes."""
    from wikidx.corpora.artifacts.home import corpus_names, home
    from wikidx.corpora.resolving import known_corpora

    summaries = {corpus.name: corpus.summary for corpus in known_corpora()}
    known = set(summaries)
    summaries |= {name: _origin(name) for name in corpus_names() if name not in summaries}
    entries: list[dict[str, Any]] = [{"name": name, "summary": summary, "built": _parts(name)} for name, summary in summaries.items()]
    if as_json:
        say_json({"home": str(home()), "corpora": entries})
        return
    say(f"home: {home()}")
    for entry in entries:
        say()
        say(f"{entry['name']}  {entry['summary']}".rstrip())
        if not entry["built"]:
            say("    not built" + (f": idx build {entry['name']}" if entry["name"] in known else ", or not finished: name its file again"))
        for part in entry["built"]:
            say(f"    {part['name']:<20}" + (part["problem"] or f"{part['rows']:>14,} rows {amount(part['bytes']):>12}"))


def _origin(corpus: str) -> str:
    """Return where the passages of a corpus came from, and how they were read."""
    from wikidx.corpora.build import store_manifest

    try:
        manifest = store_manifest(corpus)
    except ArtifactError:
        return ""
    reading = ", ".join(f"{name} {value}" for name, value in manifest.recipe.parameters.items() if value is not None)
    return f"{', '.join(manifest.sources.values())} ({reading})".strip()


def _parts(corpus: str) -> list[dict[str, Any]]:
    """Return the built store and indexes of a corpus, each with its size or its error."""
    from wikidx.corpora.build import store_manifest
    from wikidx.corpora.errors import ArtifactMissing
    from wikidx.indexer.catalog import built_indexes, index_ref

    try:
        store = store_manifest(corpus)
    except ArtifactMissing:
        return []
    except ArtifactError as error:
        return [_part("passages", error)]
    parts = [_part("passages", store)]
    for index in built_indexes(corpus):
        try:
            parts.append(_part(index, index_ref(corpus, index).manifest(store.fingerprint)))
        except ArtifactError as error:
            parts.append(_part(index, error))
    return parts


def _part(name: str, found: Manifest | ArtifactError) -> dict[str, Any]:
    if isinstance(found, ArtifactError):
        return {"name": name, "rows": None, "bytes": None, "created": None, "problem": str(found)}
    return {"name": name, "rows": found.counts["rows"], "bytes": found.n_bytes, "created": found.created, "problem": None}
