"""``idx list``: known and built corpora, their indexes and sizes.

Examples:
    idx list
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikidx.base.errors import ArtifactError, ArtifactMismatch
from wikidx.base.progress import format_bytes

from .option_groups import command
from .screen import Result, pluralize

if TYPE_CHECKING:
    from wikidx.base.artifacts.manifest import Manifest


@command()
def list_corpora() -> Result:
    """List corpora, their indexes and sizes."""
    from wikidx.base.artifacts.home import corpus_names, home
    from wikidx.corpora.resolving import known_corpora

    summaries = {corpus.name: corpus.summary for corpus in known_corpora()}
    known = set(summaries)
    summaries |= {name: _describe_origin(name) for name in corpus_names() if name not in summaries}
    entries: list[dict[str, Any]] = [
        {"name": name, "summary": summary, "built": _list_artifacts(name), "unfinished": _list_unfinished(name)}
        for name, summary in summaries.items()
    ]
    values = {"home": str(home()), "corpora": entries}
    return Result(values, [f"home: {home()}", *(line for entry in entries for line in _describe(entry, known))])


def _describe(entry: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    """Yield the lines of a corpus."""
    yield ""
    yield f"{entry['name']}  {entry['summary']}".rstrip()
    if not entry["built"]:
        yield "    not built" + (f": idx build {entry['name']}" if entry["name"] in known else ": name its file again")
    for artifact in (*entry["built"], *entry["unfinished"]):
        rows = "" if artifact["rows"] is None else pluralize(artifact["rows"], "row")
        state = "" if "problem" in artifact else "   unfinished: the same 'idx build' resumes"
        yield f"    {artifact['name']:<20}" + (artifact.get("problem") or f"{rows:>19} {format_bytes(artifact['bytes']):>12}{state}")


def _describe_origin(corpus: str) -> str:
    """Return the sources and reading parameters of a corpus as text; empty if its manifest is unreadable."""
    from wikidx.corpora.build import store_manifest

    try:
        manifest = store_manifest(corpus)
    except ArtifactError:
        return ""
    told = {
        name: f"{value:.12}…" if name.endswith("_sha256") else value
        for name, value in manifest.recipe.parameters.items()
        if value is not None
    }
    reading = ", ".join(f"{name} {value}" for name, value in told.items())
    return f"{', '.join(manifest.sources.values())} ({reading})".strip()


def _list_artifacts(corpus: str) -> list[dict[str, Any]]:
    """Return the store and the built indexes of a corpus, each with its size or its error."""
    from wikidx.base.artifacts.manifest import load_manifest
    from wikidx.base.errors import ArtifactMissing
    from wikidx.corpora.build import store_manifest
    from wikidx.indexer.catalog import built_indexes, foreign_folders, index_ref

    try:
        store = store_manifest(corpus)
    except ArtifactMissing:
        return []
    except ArtifactError as error:
        return [_to_json("passages", error)]
    artifacts = [_to_json("passages", store)]
    for index in built_indexes(corpus):
        try:
            artifacts.append(_to_json(index, index_ref(corpus, index).manifest(store.fingerprint)))
        except ArtifactError as error:
            artifacts.append(_to_json(index, error))
    for name, folder in foreign_folders(corpus).items():
        reason = "this version of idx has no such index"
        with suppress(OSError, ValueError):
            if "index_sha256" in load_manifest(folder).recipe.parameters:
                reason = "an index of a plug-in, which is to be named again by --plugin FILE.py:NAME"
        unknown = ArtifactMismatch(f"{reason}: 'idx remove {corpus} --index {name}' deletes it")
        artifacts.append(_to_json(name, unknown))
    return artifacts


def _list_unfinished(corpus: str) -> list[dict[str, Any]]:
    """Return the artifacts whose build is running or was interrupted, with the size of their files, and of vectors the finished rows."""
    from wikidx.base.artifacts.building import staged_bytes, staging_path
    from wikidx.corpora.build import store_path
    from wikidx.indexer.catalog import index_ref, possible_indexes
    from wikidx.indexer.naming import parse_index_name
    from wikidx.indexer.vectors.file import finished_ranges

    def n_rows(name: str, path: Path) -> int | None:
        is_vectors = name != "passages" and parse_index_name(name).source == "encoder"
        return sum(map(len, finished_ranges(staging_path(path)))) if is_vectors else None

    paths = {"passages": store_path(corpus), **{name: index_ref(corpus, name).path for name in possible_indexes(corpus)}}
    return [
        {"name": name, "rows": n_rows(name, path), "bytes": staged_bytes(path)}
        for name, path in paths.items()
        if staging_path(path).exists()
    ]


def _to_json(name: str, manifest: Manifest | ArtifactError) -> dict[str, Any]:
    if isinstance(manifest, ArtifactError):
        return {"name": name, "rows": None, "bytes": None, "created": None, "problem": str(manifest)}
    return {"name": name, "rows": manifest.counts["rows"], "bytes": manifest.n_bytes, "created": manifest.created, "problem": None}
