"""``idx check``: re-read everything of a corpus against the checksums in its manifests."""

from __future__ import annotations

from typing import Annotated

import typer

from .screen import note, say, say_json, steps


def check(
    corpus: Annotated[str, typer.Argument(help="A built corpus.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Re-read every file of a corpus and compare it with its checksum; exit status 1 if something is damaged."""
    from corpora.artifacts import verify_files
    from corpora.build import store_manifest, store_path
    from corpora.errors import ArtifactError
    from indexer.build import built_indexes, index_manifest, index_path

    store = store_manifest(corpus)
    parts = {"passages": (store_path(corpus), store)}
    problems: dict[str, list[str]] = {}
    for index in built_indexes(corpus):
        try:
            parts[index] = (index_path(corpus, index), index_manifest(corpus, index, store.fingerprint))
        except ArtifactError as error:
            problems[index] = [str(error)]
    with steps() as step:
        for name, (path, manifest) in parts.items():
            problems[name] = verify_files(path, manifest, step(f"checking {name}", "B"))
    if as_json:
        say_json({"corpus": corpus, "problems": problems})
    else:
        for name, found in problems.items():
            say(f"{name}: {'; '.join(found) or 'as built'}")
    if any(problems.values()):
        note(f"error: '{corpus}' is damaged: build what is named above again with --force")
        raise typer.Exit(1)
