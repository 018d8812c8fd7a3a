"""``idx remove``: delete a corpus, or some of its indexes.

Examples:
    idx remove sample --index minilm-ivfpq
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from wikidx.base.errors import StorageError, escape_controls

from . import completion
from .option_groups import command
from .screen import Result, note

Corpus = Annotated[str, completion.corpus_argument("The corpus.")]
Indexes = Annotated[
    list[str] | None,
    typer.Option(
        "--index",
        metavar="NAME",
        help="Delete only this index, or this encoder's vectors, as idx list names them; may be repeated.",
        autocompletion=completion.index,
    ),
]


@command()
def remove(
    corpus: Corpus,
    index: Indexes = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> Result:
    """Delete a corpus or some of its indexes.

    Without --index, the downloads are deleted too.
    """
    from wikidx.base.artifacts.building import staging_path
    from wikidx.base.artifacts.home import corpus_path, downloads_path
    from wikidx.base.errors import ArtifactMissing
    from wikidx.corpora.build import store_path
    from wikidx.corpora.resolving import require_built
    from wikidx.indexer.catalog import built_indexes, foreign_folders, index_ref, possible_indexes
    from wikidx.indexer.naming import canonical_name

    if index:
        require_built(corpus)
        foreign = foreign_folders(corpus)
        paths = [foreign.get(name) or index_ref(corpus, name).path for name in dict.fromkeys(index)]
        for path in paths:
            if not path.exists():
                raise ArtifactMissing(f"nothing is built at {path}: '{corpus}' has {', '.join(built_indexes(corpus)) or 'no index'}")
        in_use = paths
        paths = [*paths, *filter(Path.exists, map(staging_path, paths))]
    else:
        folder, downloads = corpus_path(corpus), downloads_path(corpus)
        interrupted = folder.with_name(f".{folder.name}.old")  # remains after an interrupted removal
        paths = [path for path in (folder, downloads, interrupted) if path.exists()]
        in_use = [downloads, store_path(corpus), *(index_ref(corpus, name).path for name in possible_indexes(corpus))]
        if not paths:
            require_built(corpus)
    orphaned = _left_without_vectors(corpus, set(map(canonical_name, index or ())))
    if orphaned:
        note(f"{', '.join(orphaned)} of '{corpus}' will be left without the vectors they were made of: nothing can be rescored from them")
    if not yes:
        typer.confirm(f"Delete {' and '.join(map(escape_controls, map(str, paths)))}?", abort=True, err=True)
    _delete(paths, in_use)
    deleted = list(map(str, paths))
    return Result({"corpus": corpus, "deleted": deleted, "left_without_vectors": orphaned}, [f"deleted {path}" for path in deleted])


def _delete(paths: Sequence[Path], in_use: Sequence[Path]) -> None:
    """Delete ``paths`` while holding the locks of ``in_use``, which exclude builds and downloads."""
    from wikidx.base.artifacts.building import discard, lock

    with ExitStack() as locks:
        for target in in_use:
            try:
                locks.enter_context(lock(target))
            except StorageError as error:  # without a lock file nobody is at work, and on a full disk nobody can begin
                if getattr(error.__cause__, "errno", 0) not in (errno.ENOSPC, errno.EDQUOT):
                    raise
        for path in paths:
            discard(path)


def _left_without_vectors(corpus: str, removed: set[str]) -> list[str]:
    """Return the indexes that remain although the vectors they were built from are removed."""
    from wikidx.indexer.catalog import built_indexes
    from wikidx.indexer.naming import parse_index_name

    names = [name for name in built_indexes(corpus) if name not in removed] if removed else []
    return [name for name in names if parse_index_name(name).encoder in removed]
