"""Name -> corpus: a known corpus, a built one, or a user's own file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from . import CORPORA
from .artifacts.home import corpus_names, split_name
from .artifacts.manifest import MANIFEST, is_finished, manifest_from_json
from .build import StoreOptions, store_name, store_path
from .corpus import Corpus
from .errors import ArtifactMissing, IdxError, InputError
from .known.custom import Reading, custom_corpus
from .registry import load, near_names


class Resolved(NamedTuple):
    """A corpus and its build options.

    Attributes:
        corpus: the corpus.
        options: of the store.
        keeps_store: the user named a store built from a file, not the file: the store is used unchanged.
    """

    corpus: Corpus
    options: StoreOptions
    keeps_store: bool = False

    @property
    def name(self) -> str:
        """Name of the corpus on disk."""
        return store_name(self.corpus, self.options.limit)


def known_corpora() -> list[Corpus]:
    """Return the corpora that idx knows by name."""
    return [known_corpus(name) for name in CORPORA]


def known_corpus(name: str) -> Corpus:
    """Return the known corpus of that name."""
    corpus: Corpus = load("corpus", name, CORPORA)
    return corpus


def is_known(name: str) -> bool:
    """Return whether idx knows the corpus, or the whole of a subset such as ``sample@100``."""
    return name.partition("@")[0] in CORPORA


def built_names() -> list[str]:
    """Return the names of all corpora that are built, usable or not."""
    return [name for name in corpus_names() if is_finished(store_path(name))]


def require_built(name: str) -> None:
    """Raise the most helpful error unless a corpus of that name is built, usable or not."""
    if name in built_names():
        return
    split_name(name)
    if is_known(name):
        raise ArtifactMissing(f"the corpus '{name}' is not built: run 'idx build {name}'")
    raise near_names("corpus", name, {*CORPORA, *built_names()})


def require_built_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return built corpora, each once: those of these names, or all if no names are given.

    Raises:
        IdxError: one is not built, as ``require_built`` says, or none is.
    """
    found = tuple(dict.fromkeys(names or built_names()))
    if not found:
        raise InputError("no corpus is built: run 'idx build sample'")
    for name in found:
        require_built(name)
    return found


def is_name(corpus: str) -> bool:
    """Return whether ``corpus`` is the name of a known or built corpus rather than a file."""
    return is_known(corpus) or corpus in built_names()


def resolve(
    corpus: str,
    *,
    name: str | None = None,
    options: StoreOptions = StoreOptions(),  # noqa: B008 - it cannot be changed
    reading: Reading = Reading(),  # noqa: B008
) -> Resolved:
    """Resolve a corpus and the options of its store.

    Args:
        corpus: the name of a known or a built corpus, or the path of a file.
        name: of a corpus from a file; default: the file's name.
        options: of the store.
        reading: format and splitting of a file.

    Raises:
        InputError, UnknownNameError: there is no such corpus or file, or an option does not apply to it.
    """
    if is_name(corpus):
        _refuse_file_options(corpus, name, reading)
        return _known(corpus, options) if is_known(corpus) else _built(corpus, options)
    if not Path(corpus).exists():
        raise _unknown(corpus)
    if options.source:
        raise InputError(f"--source is for known corpora; '{corpus}' is a file itself")
    return Resolved(_from_file(Path(corpus), name, reading), options)


def _known(corpus: str, options: StoreOptions) -> Resolved:
    base, limit = split_name(corpus)
    if limit is not None and options.limit not in (None, limit):
        raise InputError(f"'{corpus}' has {limit:,} passages, --limit says {options.limit:,}")
    return Resolved(known_corpus(base), dataclasses.replace(options, limit=limit or options.limit))


def _built(name: str, options: StoreOptions) -> Resolved:
    """Return a corpus built from a file, as its manifest describes it."""
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
    options = dataclasses.replace(options, limit=limit, skip_bad=was_skipping)
    return Resolved(custom_corpus(Path(source), base, reading), options, keeps_store=True)


def name_source(corpus: str) -> str:
    """Return the advice for rebuilding a corpus from a file that is not recorded."""
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
    """Return (not raise) the error for a name that is neither known, nor built, nor a file."""
    if "/" in name or "." in name:
        return InputError(f"there is no file {name}")
    return near_names("corpus (and no file of that name is here)", name, {*CORPORA, *built_names()})
