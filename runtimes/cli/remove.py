"""``idx remove``: delete a corpus, or some of its indexes."""

from __future__ import annotations

from typing import Annotated

import typer

from .screen import say


def remove(
    corpus: Annotated[str, typer.Argument(help="A built corpus.")],
    index: Annotated[list[str] | None, typer.Option("--index", help="Only this index, or this encoder's vectors; may be repeated.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a corpus with all its indexes and downloads, or only the indexes named."""
    from corpora.artifacts import corpus_path, discard, home
    from corpora.errors import ArtifactMissing
    from indexer.build import built_indexes, index_path

    from .resolve import unknown_corpus

    if not corpus_path(corpus).is_dir():
        raise unknown_corpus(corpus)
    paths = [index_path(corpus, name) for name in index] if index else [corpus_path(corpus), home() / "downloads" / corpus]
    missing = [path for path in paths if index and not path.exists()]
    if missing:
        raise ArtifactMissing(f"nothing is built at {missing[0]}: '{corpus}' has {', '.join(built_indexes(corpus)) or 'no index'}")
    paths = [path for path in paths if path.exists()]
    if not yes:
        typer.confirm(f"Delete {' and '.join(map(str, paths))}?", abort=True)
    for path in paths:
        discard(path)
        say(f"deleted {path}")
