"""``idx build``: a corpus and its indexes, from a known name, a built corpus, or a file of the user's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .ray_option import EncoderCpus, ExchangeUrl, RayAddress, cluster_options, on_cluster, vectors_from
from .screen import coverage, say, say_json

if TYPE_CHECKING:
    from .task import Task

Corpus = Annotated[
    str,
    typer.Argument(
        metavar="CORPUS",
        help="A known corpus (see 'idx list'), a built one, or a file of passages or articles.",
        autocompletion=completion.any_corpus,
    ),
]
Encoders = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Embed with this encoder, such as minilm, contriever, dpr, e5 or bge; may be repeated.",
        autocompletion=completion.encoder,
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        help="Build this index over each encoder's vectors: flat, flat-fp16, sq8, ivf, ivfpq, hnsw; may be repeated.",
        metavar="KIND",
        autocompletion=completion.kind_of_index,
    ),
]


def build(
    corpus: Corpus,
    bm25: Annotated[bool, typer.Option("--bm25", help="Build BM25; the default if no index is named.")] = False,
    lucene: Annotated[bool, typer.Option("--lucene", help="Build BM25 by Lucene, through Pyserini.")] = False,
    encoder: Encoders = None,
    index: Kinds = None,
    source: Annotated[Path | None, typer.Option(help="A local copy of the corpus, instead of a download.")] = None,
    name: Annotated[str | None, typer.Option(help="Name for a corpus from a file; otherwise the file's.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N passages, as the corpus NAME@N.")] = None,
    file_format: Annotated[str | None, typer.Option("--format", help="The file's format; otherwise detected from its content.")] = None,
    split: Annotated[str | None, typer.Option(help="Split articles: words, dpr, sections, or none.")] = None,
    words: Annotated[int, typer.Option(help="Words in a passage when splitting.")] = 100,
    on_error: Annotated[str, typer.Option(help="What to do with records that cannot be used: fail or skip.")] = "fail",
    vectors: Annotated[str | None, typer.Option(help="published or encode; otherwise published where there are any.")] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Take published vectors that lack some passages.")] = False,
    verify: Annotated[int, typer.Option(min=0, help="Encode N random passages again and compare published vectors.", metavar="N")] = 0,
    device: Annotated[str, typer.Option(help="Where encoders run: auto, cpu, cuda, cuda:0,1, all GPUs, mps.")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="Numbers of the vectors: float32, float16, bfloat16; by default by device.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens that an encoder takes at once; by default by device.")] = None,
    ray: RayAddress = None,
    ray_cpus: EncoderCpus = None,
    exchange: ExchangeUrl = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be needed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build a corpus and its indexes.

    Started again after an interruption, it goes on where it was.
    """
    from corpora.build import StoreOptions
    from corpora.custom import Reading
    from corpora.errors import InputError
    from indexer.devices import EmbedOptions

    from .resolve import is_built, understand
    from .task import Task, VectorOptions, index_names

    if on_error not in ("fail", "skip"):
        raise InputError(f"--on-error {on_error}: say fail or skip")
    cluster = cluster_options(ray, ray_cpus, exchange)
    embedding = EmbedOptions(device=device, dtype=dtype, batch_tokens=batch_tokens, cluster=cluster)
    origin = VectorOptions(origin=vectors_from(cluster, encoder, vectors), allow_missing=allow_missing, verify=verify)
    named = [*(["bm25"] if bm25 else []), *(["lucene"] if lucene else []), *index_names(encoder or [], index or [])]
    # With indexes named, --force is for them, and for the store only if it is another one or damaged.
    options = StoreOptions(source=source, limit=limit, skip_bad=on_error == "skip", replace=force, rebuild=force and not named)
    found, options = understand(corpus, name, options, Reading(file_format=file_format, split=split, n_words=words))
    keeps_store = is_built(corpus) and found.path is not None
    task = Task(found, options, tuple(named or ["bm25"]), embedding, origin, keeps_store=keeps_store)
    _run(task, ray, dry_run=dry_run, as_json=as_json)


def _run(task: Task, ray: str | None, *, dry_run: bool, as_json: bool) -> None:
    from .task import carry_out, plan

    with on_cluster(ray, task.embedding.cluster):
        needs = plan(task, is_dry_run=dry_run)
        manifests = {} if dry_run else carry_out(task)
    if dry_run:
        if as_json:
            say_json({"corpus": task.name, "needs": [dataclasses.asdict(need) for need in needs]})
    elif as_json:
        say_json({"corpus": task.name, "built": {part: dict(manifest.counts) for part, manifest in manifests.items()}})
    else:
        say(f"built '{task.name}': " + ", ".join(f"{part} ({coverage(manifest.counts)})" for part, manifest in manifests.items()))
