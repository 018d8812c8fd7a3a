"""``idx import``: import Lucene indexes and embeddings that other tools built for the passages of a built corpus.

Examples:
    idx import lucene lucene-index.wikipedia-dpr-100w --corpus wiki2018
    idx import embeddings wikipedia_embeddings.tar --corpus wiki2018 --encoder contriever --verify 100
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wikidx.base.progress_display import show_steps

from . import completion
from .option_groups import command
from .screen import Result, coverage


@command()
def lucene(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Directory of a Lucene index that Pyserini or Anserini built.")],
    corpus: Annotated[str, completion.corpus_option("The built corpus whose passages are indexed.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing Lucene index.")] = False,
) -> Result:
    """Import a Lucene index."""
    from wikidx.corpora.build import open_store
    from wikidx.corpora.resolving import require_built
    from wikidx.indexer.published.lucene import import_lucene

    require_built(corpus)
    with show_steps() as step:
        manifest = import_lucene(corpus, path, open_store(corpus), force=force, progress=step("lucene", "documents"))
    counts = dict(manifest.counts)
    line = f"imported 'lucene' into '{corpus}': {counts['documents']:,} documents of {counts['rows']:,} passages"
    return Result({"corpus": corpus, "imported": {"lucene": counts}}, [line])


@command()
def embeddings(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Folder or file of embeddings, or files in their order.")],
    corpus: Annotated[str, completion.corpus_option("The built corpus whose passages were embedded.")],
    encoder: Annotated[
        str, typer.Option(metavar="NAME", help="The encoder that produced the embeddings.", autocompletion=completion.encoder)
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="contriever, dpr, array, pyserini, flat (FAISS), pt, npy, npz, jsonl, fvecs, safetensors or parquet; default: detected.",
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME", help="File of ids, one per line or .npy; the column or array of ids; of FAISS, rows or passages."
        ),
    ] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Import even if some passages have no embedding.")] = False,
    verify: Annotated[int, typer.Option(min=0, help="Re-encode N random passages and compare them with the embeddings.", metavar="N")] = 0,
    dtype: Annotated[str | None, typer.Option(help="Stored precision: float16 or float32; default: the file's.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale the embeddings to length 1.")] = False,
    device: Annotated[str, typer.Option(help="Device of the encoder for --verify.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace existing vectors of the encoder.")] = False,
) -> Result:
    """Import embeddings as the vectors of an encoder, published ones or your own."""
    from wikidx.corpora.build import open_store
    from wikidx.corpora.resolving import require_built
    from wikidx.indexer.naming import encoder_spec
    from wikidx.indexer.published.formats import add_checksums, find_embeddings
    from wikidx.indexer.published.importing import ImportOptions, import_vectors

    require_built(corpus)
    spec = encoder_spec(encoder)
    options = ImportOptions(
        allow_missing=allow_missing,
        verify=verify,
        dtype=dtype,
        normalize=normalize,
        device=device,
        force=force,
    )
    embeddings_ = find_embeddings(paths[0], file_format, ids, further=paths[1:])
    with show_steps() as step:
        embeddings_ = add_checksums(embeddings_, step("reading", "B"))
        manifest = import_vectors(corpus, spec, open_store(corpus), embeddings_, options, step(spec.name, "passages"))
    line = f"imported '{spec.name}' into '{corpus}': {coverage(manifest.counts)}"
    return Result({"corpus": corpus, "imported": {spec.name: dict(manifest.counts)}}, [line])
