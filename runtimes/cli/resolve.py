"""What a CORPUS on the command line means: a known corpus, one that is built already, or a file of the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from corpora import CORPORA
from corpora.artifacts import MANIFEST, home, is_finished
from corpora.corpus import Corpus
from corpora.custom import Reading, custom_corpus
from corpora.errors import IdxError, InputError
from corpora.registry import load, near_names

from .screen import note


def built_names() -> list[str]:
    """Return the names of all corpora that are built."""
    return sorted(path.parent.parent.name for path in home().glob(f"*/passages/{MANIFEST}"))


def known_corpora() -> Iterator[Corpus]:
    """Yield the corpora that idx knows by name."""
    for name in CORPORA:
        corpus: Corpus = load("corpus", name, CORPORA)
        yield corpus


def is_known(name: str) -> bool:
    """Return whether idx knows a corpus of that name; says so if a file beside us has the same name."""
    if name in CORPORA and Path(name).is_file():
        note(f"'{name}' is taken for the corpus of that name; for the file write ./{name}")
    return name in CORPORA


def is_built(name: str) -> bool:
    """Return whether a corpus of that name is built."""
    return "/" not in name and is_finished(home() / name / "passages")


def known_corpus(name: str) -> Corpus:
    """Return the corpus that idx knows by that name."""
    corpus: Corpus = load("corpus", name, CORPORA)
    return corpus


def corpus_from_file(path: Path, name: str | None, reading: Reading) -> Corpus:
    """Return the corpus of a user's file, named after the file unless a name is given."""
    if name is None:
        name = re.sub(r"[^a-z0-9._-]+", "-", path.name.partition(".")[0].lower()).strip("-._")
    if name in CORPORA:
        raise InputError(f"'{name}' is the name of a corpus that idx knows: choose another one with --name")
    return custom_corpus(path, name, reading)


def unknown_corpus(name: str) -> IdxError:
    """Return (not raise) the error for a name that is neither known, nor built, nor a file."""
    if "/" in name or "." in name:
        return InputError(f"there is no file {name}")
    return near_names("corpus (and no file of that name is here)", name, {*CORPORA, *built_names()})
