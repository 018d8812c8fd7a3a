"""``idx build``: a corpus and its indexes, from a known name, a built corpus, or a file of the user's own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .ray_option import EncoderCpus, RayAddress
from .screen import counted, coverage, duration, note, say, say_json, steps

if TYPE_CHECKING:
    from wikidx.corpora.artifacts.manifest import Manifest
    from wikidx.indexer.planning import BuildPlan, BuildSpec

_SHOWN_SKIPPED = 3
_STEP_WIDTH = 20

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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be needed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build a corpus and its indexes.

    Run again after an interruption, it resumes where it stopped.
    """
    from wikidx.corpora.build import StoreOptions
    from wikidx.corpora.errors import InputError
    from wikidx.corpora.known.custom import Reading
    from wikidx.corpora.resolving import is_name, resolve
    from wikidx.indexer.embedding.options import EmbedOptions
    from wikidx.indexer.planning import BuildSpec, VectorOptions

    if on_error not in ("fail", "skip"):
        raise InputError(f"--on-error {on_error}: say fail or skip")
    if ray is not None and (not encoder or vectors == "published"):
        raise InputError("--ray is for embedding passages: say --encoder, and not --vectors published")
    embedding = EmbedOptions(device=device, dtype=dtype, batch_tokens=batch_tokens, on_ray=ray is not None, ray_cpus=ray_cpus)
    origin = VectorOptions(origin="encode" if ray is not None else vectors, allow_missing=allow_missing, verify=verify)
    named = [*(["bm25"] if bm25 else []), *(["lucene"] if lucene else []), *_vector_indexes(encoder or [], index or [])]
    # With indexes named, --force applies to them, and to the store only if it differs or is corrupt.
    options = StoreOptions(source=source, limit=limit, skip_bad=on_error == "skip", replace=force, rebuild=force and not named)
    if is_name(corpus) and Path(corpus).is_file():
        note(f"'{corpus}' is taken for the corpus of that name; for the file write ./{corpus}")
    resolved = resolve(corpus, name=name, options=options, reading=Reading(file_format=file_format, split=split, n_words=words))
    with _connected(ray) if ray is not None else contextlib.nullcontext():
        _run(BuildSpec(resolved, tuple(named or ["bm25"]), embedding, origin), dry_run=dry_run, as_json=as_json)


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to a cluster and check that its nodes agree."""
    from wikidx.indexer.embedding.cluster.embedding import check_cluster
    from wikidx.indexer.embedding.cluster.nodes import connected

    with connected(address):
        check_cluster()
        yield


def _vector_indexes(encoders: list[str], kinds: list[str]) -> list[str]:
    """Return the names of encoders' vectors and of indexes of each kind made of them."""
    from wikidx.corpora.errors import InputError
    from wikidx.corpora.registry import near_names
    from wikidx.indexer import VECTOR_INDEXES
    from wikidx.indexer.naming import encoder_spec

    for kind in kinds:
        if kind not in VECTOR_INDEXES:
            raise near_names("kind of index", kind, VECTOR_INDEXES)
    if kinds and not encoders:
        raise InputError(f"--index {kinds[0]}: say with --encoder over whose vectors")
    names = [encoder_spec(encoder).name for encoder in encoders]
    return [index for name in names for index in (name, *(f"{name}-{kind}" for kind in kinds))]


def _run(spec: BuildSpec, *, dry_run: bool, as_json: bool) -> None:
    from wikidx.corpora.errors import StorageError
    from wikidx.indexer.planning import carry_out, plan

    planned = plan(spec)
    _show_plan(spec, planned)
    if dry_run:
        if planned.shortage:
            note(planned.shortage)
        if as_json:
            say_json({"corpus": spec.name, "needs": [dataclasses.asdict(need) for need in planned.needs]})
        return
    if planned.shortage:
        raise StorageError(planned.shortage)
    with steps() as step:
        manifests = carry_out(spec, step)
    _show_skipped(spec.name, manifests["passages"])
    if as_json:
        say_json({"corpus": spec.name, "built": {part: dict(manifest.counts) for part, manifest in manifests.items()}})
    else:
        say(f"built '{spec.name}': " + ", ".join(f"{part} ({coverage(manifest.counts)})" for part, manifest in manifests.items()))


def _show_plan(spec: BuildSpec, planned: BuildPlan) -> None:
    from wikidx.corpora.progress import amount

    note(f"corpus '{spec.name}': {spec.source.corpus.summary}")
    note(f"about {planned.forecast.n_passages:,} passages of {amount(planned.forecast.passage_bytes)}")
    if planned.download_bytes:
        note(f"download {amount(planned.download_bytes)}")
    if planned.needs:
        note(f"{'to build':<{_STEP_WIDTH}}{'disk':>12}{'memory':>12}{'time':>12}   (estimates)")
    for need in planned.needs:
        note(f"{need.step:<{_STEP_WIDTH}}{amount(need.disk_bytes):>12}{amount(need.memory_bytes):>12}{duration(need.time_s):>12}")


def _show_skipped(name: str, store: Manifest) -> None:
    from wikidx.corpora.build import SKIPPED, skipped_records, store_path

    n_skipped = store.count("skipped")
    if not n_skipped:
        return
    note(f"left out: {counted(n_skipped, 'record')}, listed in {store_path(name) / SKIPPED}")
    for file, line, reason in islice(skipped_records(name), _SHOWN_SKIPPED):
        note(f"    {file}, line {line}: {' '.join(reason.split())}")
