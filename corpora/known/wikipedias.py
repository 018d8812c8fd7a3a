"""The Wikipedias of DPR and of Atlas, by the table ``wikipedias.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from wikidx.base.net.download import SourceFile
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, OnBad
from wikidx.corpora.reading.readers import read


def _read(file_format: str, prefixes: Sequence[str], files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
    for path, prefix in zip(files, prefixes, strict=True):
        records = read(path, file_format, on_bad)
        yield from _add_prefix(records, prefix) if prefix else records


def _add_prefix(records: Iterator[LocatedPassage], prefix: str) -> Iterator[LocatedPassage]:
    for record in records:
        yield record._replace(passage=record.passage._replace(id=f"{prefix}{record.passage.id}"))


def _corpus_of(name: str, entry: dict[str, Any]) -> Corpus:
    """Return the corpus of an entry of the table."""
    file_format, files = entry.pop("format"), entry.pop("files")
    entry |= {"estimate": tuple(entry["estimate"]), "reading": {"format": file_format, **entry.get("reading", {})}}
    prefixes = [file.pop("id_prefix", "") for file in files]
    sources = tuple(SourceFile(**file) for file in files)
    return Corpus(name=name, files=sources, read=partial(_read, file_format, prefixes), **entry)


_TABLE = tomllib.loads(resources.files(__package__).joinpath("wikipedias.toml").read_text(encoding="utf-8"))
WIKI2018, WIKI2020 = (_corpus_of(name, entry) for name, entry in _TABLE.items())
