"""Resolve a name or path to a corpus: a known corpus, a built one, or a user's own file."""

from __future__ import annotations

import dataclasses
import glob
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from wikidx.base.artifacts.home import corpus_names, split_name
from wikidx.base.artifacts.manifest import Manifest, is_finished, load_manifest
from wikidx.base.errors import ArtifactMissing, IdxError, InputError
from wikidx.base.plugins import PlugIn, check_same, find, find_plug_in, name_of, plug_in_names
from wikidx.base.registry import unknown_name_error

from . import CORPORA
from .build import StoreOptions, store_name, store_path
from .corpus import Corpus
from .gathering import expand
from .hub import PREFIX, fetch, split_files
from .known.custom import BY_KIND, SEVERAL, ReadOptions, custom_corpus, gathered_corpus
from .known.python_values import FORMAT, described_corpus
from .passage import LocatedPassage, OnBad
from .plugged import plugged_corpus
from .reading.compression import STANDARD_INPUT, check_file
from .reading.fields import FieldNames
from .reading.splitters import Tokenizer
from .unpacking import is_archive


class ResolvedCorpus(NamedTuple):
    """A corpus and its build options.

    Attributes:
        corpus: the corpus.
        options: options for building its store.
        keep_store: whether to use the existing store without comparing it with the source, because the user named the built corpus.
    """

    corpus: Corpus
    options: StoreOptions
    keep_store: bool = False

    @property
    def name(self) -> str:
        """Name of the corpus on disk."""
        return store_name(self.corpus, self.options.limit)


def known_corpora() -> list[Corpus]:
    """Return the corpora of ``known_names``."""
    return [known_corpus(name) for name in known_names()]


def known_names() -> list[str]:
    """Return the names of the known corpora: those of ``CORPORA`` and plug-ins."""
    return [*CORPORA, *plug_in_names("corpus")]


def known_corpus(name: str) -> Corpus:
    """Return the known corpus ``name``; raises ``UnknownNameError``."""
    corpus: Corpus = find("corpus", name, CORPORA, plugged_corpus)
    return corpus


def article_url(name: str) -> str | None:
    """Return the web address of a corpus's articles, a template; see ``Corpus``."""
    return known_corpus(name.partition("@")[0]).article_url if is_known(name) else None


def is_known(name: str) -> bool:
    """Return whether ``name`` is a known corpus, or a subset of one such as ``sample@100``."""
    base = name.partition("@")[0]
    return base in CORPORA or base in plug_in_names("corpus")


def built_names() -> list[str]:
    """Return the names of all corpora whose store is built, without checking the store."""
    return [name for name in corpus_names() if is_finished(store_path(name))]


def require_built(name: str) -> None:
    """Check that a corpus of this name is built.

    Raises:
        ArtifactMissing: the corpus is known, or its build was interrupted, but it is not built.
        UnknownNameError: no corpus of this name is known or built.
        InputError: the name is invalid.
    """
    if name in built_names():
        return
    split_name(name)
    if is_known(name):
        raise ArtifactMissing(f"the corpus '{name}' is not built: run 'idx build {name}'")
    if name in corpus_names():
        raise ArtifactMissing(f"the corpus '{name}' is not finished: run the 'idx build' that began it again")
    raise unknown_name_error("corpus", name, {*known_names(), *built_names()})


def require_built_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the given names without duplicates, or the names of all built corpora if none is given.

    Raises:
        IdxError: a named corpus is not built (see ``require_built``), or no corpus is built.
    """
    corpora = tuple(dict.fromkeys(names or built_names()))
    if not corpora:
        raise InputError("no corpus is built: run 'idx build sample'")
    for name in corpora:
        require_built(name)
    return corpora


def is_name(corpus: str) -> bool:
    """Return whether ``corpus`` is the name of a known or built corpus; otherwise it may be the path of a file."""
    return is_known(corpus) or corpus in built_names()


def resolve(
    corpus: str | Sequence[str],
    *,
    name: str | None = None,
    options: StoreOptions = StoreOptions(),  # noqa: B008 - immutable
    reading: ReadOptions = ReadOptions(),  # noqa: B008
) -> ResolvedCorpus:
    """Resolve a name or path to a corpus, with options for building its store.

    Args:
        corpus: the name of a known or built corpus, a plug-in's reference, or the path of a file, a folder or an archive, or a pattern of
            paths; or several paths and patterns.
        name: name for the corpus in files; None: derived from the path.
        options: options for building the store.
        reading: format and splitting of a file.

    Raises:
        InputError, UnknownNameError: the corpus or file does not exist, or an option does not apply to it.
    """
    if isinstance(corpus, str) and (corpus.startswith(PREFIX) or reading.config or reading.split_name):
        return ResolvedCorpus(_corpus_of_data_set(corpus, name, reading), options)
    if not isinstance(corpus, str) or (not Path(corpus).exists() and glob.has_magic(corpus)):
        paths = [path for source in ([corpus] if isinstance(corpus, str) else corpus) for path in expand(source)]
        return ResolvedCorpus(_corpus_of_files(paths, name, reading), options)
    if not Path(corpus).exists():
        corpus = name_of("corpus", corpus)
    if is_name(corpus):
        _reject_file_options(corpus, name, reading)
        return _resolve_known(corpus, options) if is_known(corpus) else _resolve_built(corpus, options, reading.tokenizer)
    if not Path(corpus).exists() and Path(corpus) != STANDARD_INPUT:
        raise _unknown_corpus(corpus)
    if options.source:
        raise InputError(f"--source is for known corpora; '{corpus}' is a file itself")
    return ResolvedCorpus(_corpus_of_files([Path(corpus)], name, reading), options)


def _resolve_known(corpus: str, options: StoreOptions) -> ResolvedCorpus:
    base, limit = split_name(corpus)
    if limit is not None and options.limit not in (None, limit):
        raise InputError(f"'{corpus}' has {limit:,} passages, --limit says {options.limit:,}")
    resolved = ResolvedCorpus(known_corpus(base), dataclasses.replace(options, limit=limit or options.limit))
    if base not in CORPORA and (plugged := find_plug_in("corpus", base)) is not None:
        _check_origin(resolved.name, plugged)
    return resolved


def _check_origin(name: str, plugged: PlugIn) -> None:
    """Check that the store of a name, if there is one, is that of a corpus that is a plug-in."""
    if name in built_names() and "corpus_sha256" not in load_manifest(store_path(name)).recipe.parameters:
        raise InputError(
            f"the corpus '{name}' was built from a file or from passages of yours, and {plugged.reference} has its name: "
            f"give the plug-in another name, or delete that corpus with 'idx remove {name}'"
        )


def _resolve_built(name: str, options: StoreOptions, tokenizer: Tokenizer | None) -> ResolvedCorpus:
    """Return a corpus built from a file, from passages given in Python, or by a plug-in, with the options in its manifest."""
    base, limit = split_name(name)
    if options.source or options.limit not in (None, limit):
        raise InputError(f"'{name}' is built from a file of yours: name the file again to build it with --source or --limit")
    try:
        manifest = load_manifest(store_path(name))
        corpus = _built_corpus(name, manifest, options, tokenizer)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"the manifest of '{name}' does not say which file it was built from ({error}): {rebuild_advice(base)}") from error
    was_skipping = manifest.recipe.parameters.get("on_error") == "skip"
    if options.skip_bad and not was_skipping:
        raise InputError(f"'{name}' was built without --on-error skip: {rebuild_advice(base)}")
    return ResolvedCorpus(corpus, dataclasses.replace(options, limit=limit, skip_bad=was_skipping), keep_store=True)


def _built_corpus(name: str, manifest: Manifest, options: StoreOptions, tokenizer: Tokenizer | None) -> Corpus:
    base, parameters = name.partition("@")[0], manifest.recipe.parameters
    if "corpus_sha256" in parameters:
        return _corpus_of_absent("corpus", base, name, manifest, lambda: known_corpus(base))
    if parameters["format"] == FORMAT:
        return described_corpus(base, {key: str(parameters[key]) for key in ("sha256", "split", "tokenizer") if key in parameters})
    sources = [Path(source) for source in manifest.sources.values()]
    if not sources:
        raise ValueError("no source")

    def of_file() -> Corpus:
        if not all(source.exists() for source in sources):  # its store can be used
            return _corpus_of_missing(base, sources, manifest)
        split = f"{parameters['split']}:{parameters['words']}" if "words" in parameters else str(parameters["split"])
        names = {name: str(parameters[name]) for name in ("id_field", "title_field", "text_field") if name in parameters}
        fields = FieldNames(**{name.removesuffix("_field"): value for name, value in names.items()})
        file_format = None if parameters["format"] == SEVERAL else str(parameters["format"])
        rule = None if split == BY_KIND else split
        return _of_paths(sources, base, ReadOptions(file_format=file_format, split=rule, tokenizer=tokenizer, fields=fields))

    if (sha256 := parameters.get("format_sha256")) is None:
        return of_file()
    plugged = find_plug_in("format", str(parameters["format"]))
    if plugged is not None and (plugged.sha256 == sha256 or options.replace):
        return of_file()
    return dataclasses.replace(_corpus_of_absent("format", str(parameters["format"]), name, manifest, of_file), path=sources[0])


def _corpus_of_missing(name: str, sources: Sequence[Path], manifest: Manifest) -> Corpus:
    """Return a built corpus whose files are not there any more: its store is used as it is, and cannot be built."""
    reading = {key: value for key, value in manifest.recipe.parameters.items() if key not in ("limit", "on_error")}
    missing = next(source for source in sources if not source.exists())
    return Corpus(
        name=name, summary=f"{missing}, which is not there any more", read=lambda files, on_bad: iter(()), path=missing, reading=reading
    )


def _corpus_of_absent(kind: str, plug_in: str, name: str, manifest: Manifest, find_corpus: Callable[[], Corpus]) -> Corpus:
    """Return a built corpus whose plug-in has not been named: its store is used as it is, and cannot be built."""
    parameters = manifest.recipe.parameters

    def read(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        check_same(kind, plug_in, str(parameters[f"{kind}_sha256"]), store_path(name))
        return find_corpus().read(files, on_bad)

    return Corpus(
        name=name.partition("@")[0],
        summary=f"by a plug-in, the {kind} '{plug_in}'",
        read=read,
        reading={key: value for key, value in parameters.items() if key not in ("limit", "on_error")},
    )


def rebuild_advice(corpus: str) -> str:
    """Return the advice to name the source file and rebuild a corpus."""
    return f"name its source: idx build FILE --name {corpus} --force"


def _corpus_of_files(paths: Sequence[Path], name: str | None, reading: ReadOptions) -> Corpus:
    """Return the corpus in a user's files, named after the path unless a name is given."""
    for path in paths:
        if not path.is_dir():
            check_file(path)
    if name is None and len(paths) > 1:
        raise InputError(f"{len(paths)} sources, {paths[0]} and others: give the corpus a name with --name")
    if name is None:
        path = paths[0].resolve() if paths[0].name in ("", "..") else paths[0]
        name = _name_of(path.name.partition(".")[0])
        if not name:
            raise InputError(f"no name for a corpus can be made of '{path.name}': give one with --name")
    if is_known(name):
        raise InputError(f"'{name}' is the name of a corpus that idx knows: choose another one with --name")
    return _of_paths(paths, name, reading)


def _corpus_of_data_set(source: str, name: str | None, reading: ReadOptions) -> Corpus:
    """Return the corpus in a split of a data set of Hugging Face, which is downloaded, or in a local folder of that form."""
    folder = fetch(source) if source.startswith(PREFIX) else Path(source)
    if not folder.is_dir():
        raise InputError(f"{source} is no folder of a data set: --config and --split-name are for those, and for hf://OWNER/NAME")
    files = split_files(folder, reading.config, reading.split_name)
    return _corpus_of_files(files, name or _name_of(source.rstrip("/").rpartition("/")[2]), reading)


def _name_of(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")


def _of_paths(paths: Sequence[Path], name: str, reading: ReadOptions) -> Corpus:
    if len(paths) > 1 or paths[0].is_dir() or is_archive(paths[0]):
        return gathered_corpus(paths, name, reading)
    return custom_corpus(paths[0], name, reading)


def _reject_file_options(corpus: str, name: str | None, reading: ReadOptions) -> None:
    given = {"--name": name, "--format": reading.file_format, "--split": reading.split}
    given |= {f"--{name.replace('_', '-')}": value for name, value in reading.fields.recorded().items()}
    for option in (option for option, value in given.items() if value is not None):
        raise InputError(f"{option} is for corpora from a file; '{corpus}' has its own")


def _unknown_corpus(name: str) -> IdxError:
    """Return (not raise) the error for an unknown corpus or a missing file."""
    if "/" in name or "." in name:
        return InputError(f"there is no file {name}")
    return unknown_name_error("corpus (and no file of that name is here)", name, {*known_names(), *built_names()})
