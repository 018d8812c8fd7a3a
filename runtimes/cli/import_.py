"""``idx import``: adopt what others have built over the same passages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .screen import say, say_json, steps

app = typer.Typer(help="Adopt an index that others have built.", no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def adopt() -> None:
    """Adopt an index that others have built."""


@app.command("lucene")
def lucene(
    path: Annotated[Path, typer.Argument(help="The directory of a Lucene index, as Pyserini and Anserini make them.")],
    corpus: Annotated[str, typer.Option(help="The built corpus that it is an index of.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the Lucene index that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Adopt a Lucene index."""
    from corpora.build import open_store
    from indexer.indexes.lucene_import import import_lucene

    from .resolve import require_built

    require_built(corpus)
    with steps() as step:
        manifest = import_lucene(corpus, path, open_store(corpus), force=force, progress=step("lucene", "documents"))
    if as_json:
        say_json({"corpus": corpus, "imported": {"lucene": dict(manifest.counts)}})
    else:
        say(f"imported 'lucene' into '{corpus}': {manifest.counts['documents']:,} documents of {manifest.counts['rows']:,} passages")
