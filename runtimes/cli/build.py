"""``idx build``: build a corpus and its indexes from a known corpus, a built one, or the user's own file.

Examples:
    idx build sample --bm25 --encoder minilm
    idx build passages.jsonl.gz --name mine
    idx build wiki2018 --encoder contriever --index ivfpq --dry-run
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.base.progress_display import show_steps
from wikidx.indexer.encoders.recipes import RecipeOptions

from . import completion
from .option_groups import command
from .ray_option import EncoderCpus, RayAddress
from .screen import Result, coverage, note, pluralize

if TYPE_CHECKING:
    from wikidx.base.artifacts.manifest import Manifest
    from wikidx.corpora.known.custom import ReadOptions
    from wikidx.corpora.store import PassageStore
    from wikidx.indexer.build_spec import BuildSpec
    from wikidx.indexer.planning import BuildPlan

_SHOWN_SKIPPED = 3
_STEP_WIDTH = 20

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="A known corpus (see 'idx list'), a built corpus, or files, folders, archives or patterns of documents, tables or passages; or hf://OWNER/NAME.",
        autocompletion=completion.any_corpus,
    ),
]
Encoders = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Embed the passages with this encoder, such as minilm, contriever, dpr, e5 or bge, a checkpoint's folder, or OWNER/NAME on "
        "Hugging Face's hub; NAME=FOLDER gives it another name; or openai:MODEL@URL, which a server computes. May be repeated.",
        autocompletion=completion.encoder,
    ),
]
Normalize = Annotated[
    bool | None, typer.Option("--normalize/--no-normalize", help="Scale vectors to length 1, so that they are compared by the cosine.")
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        help="Build this index over each encoder's vectors: int8, binary, ivf, ivfpq or hnsw. A name such as bm25-1.2-0.75 builds "
        "BM25 with k1 1.2 and b 0.75, bm25-german with your analyzer of that name. May be repeated.",
        metavar="NAME",
        autocompletion=completion.kind_of_index,
    ),
]
Splitting = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="How documents are split into passages: words:100, sentences:5, tokens:256:32 (tokens of the encoder, and how many a "
        "passage shares with the one before), headings, pages, dpr, sections or none; default: whole articles by words:100.",
    ),
]
FormerWords = Annotated[int | None, typer.Option(min=1, metavar="N", help="The former spelling of --split words:N.", hidden=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Options of reading a user's file."""

    file_format: Annotated[str | None, typer.Option("--format", help="The file's format; default: detected from its content.")] = None
    id_field: Annotated[str | None, typer.Option(help="The field of records that is the id; default: found by well-known names.")] = None
    title_field: Annotated[str | None, typer.Option(help="The field of records that is the title.")] = None
    text_field: Annotated[str | None, typer.Option(help="The field of records that is the text.")] = None
    config: Annotated[str | None, typer.Option(help="Configuration of a data set of Hugging Face, hf://OWNER/NAME or a folder.")] = None
    split_name: Annotated[str | None, typer.Option(help="Split of a data set of Hugging Face, such as train.")] = None

    def reading(self, **splitting: Any) -> ReadOptions:  # noqa: ANN401 - fields of ReadOptions
        """Return the options of reading with those of splitting."""
        from wikidx.base.plugins import name_of
        from wikidx.corpora.known.custom import ReadOptions
        from wikidx.corpora.reading.fields import FieldNames

        fields = FieldNames(id=self.id_field, title=self.title_field, text=self.text_field)
        file_format = self.file_format and name_of("format", self.file_format)
        return ReadOptions(file_format=file_format, fields=fields, config=self.config, split_name=self.split_name, **splitting)


@command(normalize=Normalize)
def build(
    sources: Sources,
    bm25: Annotated[bool, typer.Option("--bm25", help="Build BM25; the default if no index is requested.")] = False,
    encoder: Encoders = None,
    index: Kinds = None,
    recipe: RecipeOptions = RecipeOptions(),  # noqa: B008 - immutable
    source: Annotated[Path | None, typer.Option(help="A local copy of the known corpus, used instead of a download.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the corpus built from a file; default: the file's name.")] = None,
    limit: Annotated[int | None, typer.Option(help="Build only the first N passages; the corpus is then called NAME@N.")] = None,
    file: FileOptions = FileOptions(),  # noqa: B008 - immutable
    split: Splitting = None,
    words: FormerWords = None,
    on_error: Annotated[str, typer.Option(help="Handling of unusable records: fail or skip.")] = "fail",
    vectors: Annotated[str | None, typer.Option(help="Origin of vectors: published or encode; default: published if available.")] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Accept published vectors that lack passages.")] = False,
    verify: Annotated[int, typer.Option(min=0, help="Re-encode N random passages to check published vectors.", metavar="N")] = 0,
    device: Annotated[str, typer.Option(help="Device of the encoders: auto, cpu, cuda, cuda:0,1, all (GPUs), mps.")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="Precision of the encoder: float32, float16, bfloat16; default: by device.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Maximum number of tokens in an encoder's batch; default: by device.")] = None,
    ray: RayAddress = None,
    ray_cpus: EncoderCpus = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print estimates of disk space, memory and time.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Rebuild existing indexes; if none is named, also the passages.")] = False,
) -> Result:
    """Build a corpus and its indexes; the same command resumes an interrupted build."""
    from wikidx.base.cluster import connect
    from wikidx.base.errors import InputError
    from wikidx.corpora.build import StoreOptions
    from wikidx.corpora.resolving import is_name, resolve
    from wikidx.indexer.build_spec import BuildSpec, VectorOptions
    from wikidx.indexer.embedding.options import EmbedOptions

    if on_error not in ("fail", "skip"):
        raise InputError(f"--on-error {on_error}: use fail or skip")
    if ray is not None and (not encoder or vectors == "published"):
        raise InputError("--ray is for embedding passages: add --encoder, without --vectors published")
    embedding = EmbedOptions(device=device, dtype=dtype, batch_tokens=batch_tokens, on_ray=ray is not None, ray_cpus=ray_cpus)
    origin = VectorOptions(origin="encode" if ray is not None else vectors, allow_missing=allow_missing, verify=verify)
    indexes = [*(["bm25"] if bm25 else []), *index_names(encoder or [], index or [], recipe, force=force)]
    # With named indexes, --force rebuilds the indexes; it replaces the store only if the store differs or is corrupt.
    options = StoreOptions(source=source, limit=limit, skip_bad=on_error == "skip", replace=force, rebuild=force and not indexes)
    corpus = sources[0]
    if len(sources) == 1 and is_name(corpus) and Path(corpus).exists():
        note(f"'{corpus}' means the corpus of that name; for the file write ./{corpus}")
    resolved = resolve(
        corpus if len(sources) == 1 else sources, name=name, options=options, reading=file.reading(**_splitting(split, words, indexes))
    )
    with connect(ray) if ray is not None else contextlib.nullcontext():
        return _run(BuildSpec(resolved, tuple(indexes or ["bm25"]), embedding, origin), dry_run=dry_run)


def _splitting(split: str | None, words: int | None, indexes: list[str]) -> dict[str, Any]:
    """Return the options of splitting: the rule, also in the former spelling ``--words``, and the tokenizer of the indexes."""
    from wikidx.base.errors import InputError
    from wikidx.indexer.planning import splitting_tokenizer

    if words is not None:
        if split not in (None, "words", "dpr", "sections"):
            raise InputError(f"--words {words} is the former spelling of --split words:{words}: leave it out beside --split {split}")
        split = f"{split or 'words'}:{words}"
        note(f"--words {words} is now written --split {split}")
    return {"split": split, "tokenizer": splitting_tokenizer(indexes)}


def index_names(encoders: list[str], requested: list[str], recipe: RecipeOptions, *, force: bool) -> list[str]:
    """Return the indexes to build: the requested lexical indexes and, for each encoder, exact search and the requested kinds."""
    from wikidx.base.errors import InputError
    from wikidx.base.plugins import name_of
    from wikidx.base.registry import unknown_name_error
    from wikidx.indexer.naming import name_encoder, passage_kinds, vector_kinds

    requested = [name_of("index", name) for name in requested]
    kinds = [name for name in requested if name in vector_kinds()]
    over_passages = [name for name in requested if name not in vector_kinds()]
    for name in over_passages:
        if not any(name == kind or name.startswith(f"{kind}-") for kind in passage_kinds()):
            raise unknown_name_error("kind of index", name, [*vector_kinds(), *passage_kinds()])
    if (kinds or recipe != RecipeOptions()) and not encoders:
        raise InputError(f"--{f'index {kinds[0]}' if kinds else 'pooling and the like'} needs an encoder: add --encoder NAME")
    names = [name_encoder(encoder, recipe, replace=force) for encoder in encoders]
    return [*over_passages, *(index for name in names for index in (name, *(f"{name}-{kind}" for kind in kinds)))]


def _run(spec: BuildSpec, *, dry_run: bool) -> Result:
    from wikidx.base.errors import StorageError
    from wikidx.indexer.planning import plan

    try:
        build_plan = plan(spec)
    except KeyboardInterrupt:
        note("stopped before anything was built: the same command begins again")
        raise
    _show_plan(spec, build_plan)
    if dry_run:
        if build_plan.shortage:
            note(build_plan.shortage)
        estimates = [dataclasses.asdict(estimate) for estimate in build_plan.estimates]
        return Result({"corpus": spec.name, "estimates": estimates, "notes": build_plan.notes})
    if build_plan.shortage:
        raise StorageError(build_plan.shortage)
    manifests = _build_parts(spec, build_plan.store)
    _show_skipped(spec.name, manifests["passages"])
    _store_questions(spec)
    counts = {artifact: dict(manifest.counts) for artifact, manifest in manifests.items()}
    built = {estimate.step for estimate in build_plan.estimates}
    states = [(f"built '{spec.name}'", built), ("already there, not built again", counts.keys() - built)]
    parts = [(state, [f"{name} ({coverage(counts[name])})" for name in counts if name in artifacts]) for state, artifacts in states]
    lines = [f"{state}: {', '.join(artifacts)}" for state, artifacts in parts if artifacts]
    return Result({"corpus": spec.name, "built": counts, "notes": build_plan.notes}, lines)


def _store_questions(spec: BuildSpec) -> None:
    """Store the questions of a folder of BEIR, and say how they are called."""
    from wikidx.runtimes.questions.beir import store_questions

    corpus = spec.source.corpus
    if len(corpus.paths) == 1 and (names := store_questions(next(iter(corpus.paths.values())).parent, corpus.name)):
        note(f"questions: --questions {', '.join(names)}")


def _build_parts(spec: BuildSpec, store: PassageStore | None) -> dict[str, Manifest]:
    """Build the passages and indexes, and return their manifests; if the user interrupts this, the last line says what is finished."""
    from wikidx.indexer.naming import is_encoder
    from wikidx.indexer.planning import Build, describe_interruption

    with show_steps() as step:
        building = Build(spec, step, store)
        try:
            for name in spec.artifacts:
                with _terminated_as_interrupted() if is_encoder(name) else contextlib.nullcontext():
                    building.run_part(name)
        except KeyboardInterrupt:
            note(describe_interruption(spec, building.manifests))
            raise
    return building.manifests


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C, for work without long calls of native code, which would delay both."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _show_plan(spec: BuildSpec, build_plan: BuildPlan) -> None:
    from wikidx.base.progress import format_bytes

    note(f"corpus '{spec.name}': {spec.source.corpus.summary}")
    note(f"about {pluralize(build_plan.corpus.n_passages, 'passage')} of {format_bytes(build_plan.corpus.passage_bytes)}")
    for message in build_plan.notes:
        note(message)
    if build_plan.download_bytes:
        note(f"download {format_bytes(build_plan.download_bytes)}")
    if build_plan.estimates:
        note(f"{'to build':<{_STEP_WIDTH}}{'disk':>12}{'memory':>12}   (at most)")
    for estimate in build_plan.estimates:
        memory = "elsewhere" if estimate.memory_bytes is None else format_bytes(estimate.memory_bytes)
        note(f"{estimate.step:<{_STEP_WIDTH}}{format_bytes(estimate.disk_bytes):>12}{memory:>12}")


def _show_skipped(name: str, store: Manifest) -> None:
    from wikidx.corpora.build import SKIPPED, skipped_records, store_path

    n_skipped = store.count("skipped")
    if not n_skipped:
        return
    note(f"skipped: {pluralize(n_skipped, 'record')}, listed in {store_path(name) / SKIPPED}")
    for file, line, reason in islice(skipped_records(name), _SHOWN_SKIPPED):
        note(f"    {f'{file}, line {line}: ' if line else ''}{' '.join(reason.split())}")
