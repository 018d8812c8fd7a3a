"""The table of question sets that ``idx questions`` fetches, ``sets.csv``: a line for each split of a set.

Columns: name and split; number of questions, as published; format (a name in ``FORMATS``); size and sha256 of the published file, if known;
its address; in an archive, the file of questions and further files that its reader needs. A set's name alone means the first of its splits.

Sources of the addresses: facebookresearch/DPR (dpr/data/download_data.py), the READMEs of KILT, ALCE, ASQA, HotpotQA, 2WikiMultihopQA and
natural-questions, huggingface/datasets 2.0 (FEVER), google/BIG-bench. PopQA's file is its authors' on the Hugging Face hub; MuSiQue's is a
copy there, as the authors' archive has no direct address. Sources of the checksums: the file itself, huggingface/datasets 2.0
(``dataset_infos.json``), or projects that state them for the same address.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from wikidx.base.artifacts.home import home
from wikidx.base.net.download import SourceFile
from wikidx.base.registry import unknown_name_error

_FIRST_SPLITS = ("test", "dev")  # of which a name of one's own set means the first that there is


class PublishedSet(NamedTuple):
    """One split of a set of questions, a line of the table.

    Attributes:
        name: name of the set.
        split: name of the split.
        n: number of questions.
        format: a name in ``FORMATS``.
        file: the published file; without a checksum, that of the first download counts.
        members: in an archive, the file of questions and further files that its reader needs; else empty.
        note: what distinguishes the set; may be empty.
    """

    name: str
    split: str
    n: int
    format: str
    file: SourceFile
    members: tuple[str, ...]
    note: str

    @property
    def key(self) -> str:
        """The name of this split, such as ``nq:test``."""
        return f"{self.name}:{self.split}"


@cache
def published_sets() -> tuple[PublishedSet, ...]:
    """Return the table."""
    text = resources.files(__package__).joinpath("sets.csv").read_text(encoding="utf-8")
    return tuple(map(_parse, csv.DictReader(text.splitlines())))


def find_set(name: str) -> PublishedSet | None:
    """Return the split that ``NAME`` or ``NAME:SPLIT`` means; None if there is no such set.

    Raises:
        UnknownNameError: the set has no such split.
    """
    name, colon, split = name.partition(":")
    splits = {entry.split: entry for entry in published_sets() if entry.name == name}
    if not splits:
        return None
    if colon and split not in splits:
        raise unknown_name_error(f"split of '{name}'", split, splits)
    return splits[split] if colon else next(iter(splits.values()))


def converted_path(entry: PublishedSet) -> Path:
    """Return the path of a split's questions in the data home, fetched or not."""
    return home() / "questions" / entry.name / f"{entry.split}.jsonl"


def own_set(name: str) -> Path | None:
    """Return the path of the questions of a corpus of BEIR, by ``NAME`` or ``NAME:SPLIT``; None if there are none."""
    corpus, _, split = name.partition(":")
    files = {path.stem: path for path in (home() / "questions" / corpus).glob("*.jsonl")}
    return files.get(split or next((first for first in (*_FIRST_SPLITS, *sorted(files)) if first in files), ""))


def _parse(row: dict[str, str]) -> PublishedSet:
    url = row["url"]
    file = SourceFile(
        name=url.partition("?")[0].rpartition("/")[2],
        url=url,
        n_bytes=int(row["bytes"]) if row["bytes"] else None,
        sha256=row["sha256"] or None,
    )
    return PublishedSet(
        row["name"],
        row["split"],
        int(row["questions"]),
        row["format"],
        file,
        tuple(row["members"].split()),
        row["note"],
    )
