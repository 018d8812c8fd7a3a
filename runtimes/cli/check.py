"""``idx check``: re-read everything of a corpus against the checksums in its manifests."""

from __future__ import annotations

from typing import Annotated

import typer

from .screen import note, say, say_json, steps


def check(
    corpus: Annotated[str, typer.Argument(help="A built corpus.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a corpus with its checksums.

    Exit status 1 if something is damaged.
    """
    from corpora.artifacts import verify_files
    from corpora.build import store_manifest, store_path
    from corpora.errors import ArtifactError
    from indexer.build import built_indexes, index_manifest, index_path

    from .resolve import require_built

    require_built(corpus)
    problems: dict[str, list[str]] = {}
    fingerprint: str | None = None  # of the store, if that can be read
    with steps() as step:
        for name in ("passages", *built_indexes(corpus)):
            path = store_path(corpus) if name == "passages" else index_path(corpus, name)
            try:
                manifest = store_manifest(corpus) if name == "passages" else index_manifest(corpus, name, fingerprint)
            except ArtifactError as error:
                problems[name] = [str(error)]
                continue
            if name == "passages":
                fingerprint = manifest.fingerprint
            problems[name] = verify_files(path, manifest, step(f"checking {name}", "B")) or _opening_problem(corpus, name, fingerprint)
    if as_json:
        say_json({"corpus": corpus, "problems": problems})
    else:
        for name, found in problems.items():
            say(f"{name}: {'; '.join(found) or 'as built'}")
    if any(problems.values()):
        note(f"error: '{corpus}' is damaged: build what is named above again with --force")
        raise typer.Exit(1)


def _opening_problem(corpus: str, name: str, fingerprint: str | None) -> list[str]:
    """Open a part whose files are whole: its manifest may still promise something else."""
    from corpora.build import open_store
    from corpora.errors import ArtifactError, MissingExtraError
    from indexer.build import open_index

    try:
        store = open_store(corpus)
        if name != "passages" and fingerprint is not None:
            open_index(corpus, name, store)
    except MissingExtraError as error:
        note(f"{name}: the files are as built, but it was not opened: {error}")
    except ArtifactError as error:
        return [str(error)]
    return []
