"""What a CORPUS on the command line means: a corpus that idx knows, one that is built already, or a file of the user's own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from corpora import CORPORA
from corpora.artifacts import MANIFEST, is_finished, manifest_from_json
from corpora.build import StoreOptions, store_path
from corpora.corpus import Corpus
from corpora.custom import Reading, custom_corpus
from corpora.errors import ArtifactMissing, IdxError, InputError
from corpora.home import corpus_names, split_name
from corpora.registry import load, near_names

from .screen import note


def known_corpora() -> Iterator[Corpus]:
    """Yield the corpora that idx knows by name."""
    for name in CORPORA:
        yield known_corpus(name)


def known_corpus(name: str) -> Corpus:
    """Return the corpus that idx knows by that name."""
    corpus: Corpus = load("corpus", name, CORPORA)
    return corpus


def is_known(name: str) -> bool:
    """Return whether idx knows the corpus, or the one that a name like ``sample@100`` is a subset of."""
    return name.partition("@")[0] in CORPORA


def is_built(name: str) -> bool:
    """Return whether a corpus of that name is built, usable or not."""
    return name in built_names()


def built_names() -> list[str]:
    """Return the names of all corpora that are built, usable or not."""
    return [name for name in corpus_names() if is_finished(store_path(name))]


def require_built(name: str) -> None:
    """Raise the error that helps most unless a corpus of that name is built."""
    if is_built(name):
        return
    split_name(name)
    if is_known(name):
        raise ArtifactMissing(f"the corpus '{name}' is not built: run 'idx build {name}'")
    raise near_names("corpus", name, {*CORPORA, *built_names()})


def understand(corpus: str, name: str | None, options: StoreOptions, reading: Reading) -> tuple[Corpus, StoreOptions]:
    """Return the corpus that is meant and the options that build it.

    Raises:
        InputError, UnknownNameError: there is no such corpus or file, or an option does not go with it.
    """
    is_name = is_known(corpus) or is_built(corpus)
    if is_name and Path(corpus).is_file():
        note(f"'{corpus}' is taken for the corpus of that name; for the file write ./{corpus}")
    if is_name:
        _refuse_file_options(corpus, name, reading)
        return _known(corpus, options) if is_known(corpus) else _built(corpus, options)
    if not Path(corpus).exists():
        raise _unknown(corpus)
    if options.source:
        raise InputError(f"--source is for known corpora; '{corpus}' is a file itself")
    return _from_file(Path(corpus), name, reading), options


def _known(corpus: str, options: StoreOptions) -> tuple[Corpus, StoreOptions]:
    base, limit = split_name(corpus)
    if limit is not None and options.limit not in (None, limit):
        raise InputError(f"'{corpus}' has {limit:,} passages, --limit says {options.limit:,}")
    return known_corpus(base), dataclasses.replace(options, limit=limit or options.limit)


def _built(name: str, options: StoreOptions) -> tuple[Corpus, StoreOptions]:
    """Return the corpus that was once built from a file, as its manifest tells."""
    base, limit = split_name(name)
    if options.source or options.limit not in (None, limit):
        raise InputError(f"'{name}' is built from a file of yours: name the file again to build it with --source or --limit")
    try:
        manifest = manifest_from_json((store_path(name) / MANIFEST).read_bytes())
        parameters = manifest.recipe.parameters
        reading = Reading(
            file_format=str(parameters["format"]), split=str(parameters["split"]), n_words=int(parameters.get("words") or 100)
        )
        (source,) = manifest.sources.values()
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"the manifest of '{name}' does not say which file it was built from ({error}): {name_source(base)}") from error
    was_skipping = parameters.get("on_error") == "skip"
    if options.skip_bad and not was_skipping:
        raise InputError(f"'{name}' was built without --on-error skip: {name_source(base)}")
    return custom_corpus(Path(source), base, reading), dataclasses.replace(options, limit=limit, skip_bad=was_skipping)


def name_source(corpus: str) -> str:
    """Return the advice for a corpus from a file that has to be built again and does not know its file."""
    return f"name its source: idx build FILE --name {corpus} --force"


def _from_file(path: Path, name: str | None, reading: Reading) -> Corpus:
    """Return the corpus of a user's file, named after the file unless a name is given."""
    if name is None:
        name = re.sub(r"[^a-z0-9._-]+", "-", path.name.partition(".")[0].lower()).strip("-._")
        if not name:
            raise InputError(f"no name for a corpus can be made of '{path.name}': give one with --name")
    if name in CORPORA:
        raise InputError(f"'{name}' is the name of a corpus that idx knows: choose another one with --name")
    return custom_corpus(path, name, reading)


def _refuse_file_options(corpus: str, name: str | None, reading: Reading) -> None:
    default = Reading()
    given = {
        "--name": name is not None,
        "--format": reading.file_format is not None,
        "--split": reading.split is not None,
        "--words": reading.n_words != default.n_words,
    }
    for option, is_given in given.items():
        if is_given:
            raise InputError(f"{option} is for corpora from a file; '{corpus}' has its own")


def _unknown(name: str) -> IdxError:
    """Return (not raise) the error for what is neither known, nor built, nor a file."""
    if "/" in name or "." in name:
        return InputError(f"there is no file {name}")
    return near_names("corpus (and no file of that name is here)", name, {*CORPORA, *built_names()})
