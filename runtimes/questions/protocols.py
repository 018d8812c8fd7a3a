"""The papers' selections of evaluation questions, the tables of ``protocols.toml``.

If a paper leaves a detail of the selection open, the value there is our choice, and ``unstated`` names the detail.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wikidx.corpora.reading.compression import read_toml


class Protocol(NamedTuple):
    """A paper's evaluation questions from one data set.

    Attributes:
        name: value of ``--protocol``.
        file: data set, split and format of the file.
        n_in_file: permitted numbers of questions in the file; (): any number.
        n: number of questions that the selection must have; None: any positive number.
        type: gold ``type`` of the selected questions; None: any.
        popularity_below: exclusive upper limit of the gold ``popularity``; None: no limit.
        n_excluded: number of questions to exclude; ``sample`` draws them with ``seed``.
        is_shuffled: whether ``random.Random(seed).shuffle`` orders the remaining questions.
        n_first: number of questions to keep from the beginning; None: all.
        seed: seed of the exclusion and the order.
        questions: the set that fits the file, such as ``nq:test``; empty: ``idx questions`` fetches none.
        unstated: details of the selection that the paper leaves open or that the question file does not contain.
    """

    name: str
    file: str
    n_in_file: tuple[int, ...] = ()
    n: int | None = None
    type: str | None = None
    popularity_below: int | None = None
    n_excluded: int = 0
    is_shuffled: bool = False
    n_first: int | None = None
    seed: int = 0
    questions: str = ""
    unstated: str = ""


def _read() -> dict[str, Protocol]:
    tables = read_toml(Path(__file__).with_name("protocols.toml"))
    return {name: Protocol(name, **{**table, "n_in_file": tuple(table.get("n_in_file", ()))}) for name, table in tables.items()}


PROTOCOLS = _read()
