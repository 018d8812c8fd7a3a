"""Contract of an analyzer, English among them, and the numbering of terms by an analyzer without kernels."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.manifest import Parameters
from wikidx.base.errors import InputError
from wikidx.base.plugins import check_same, find, recorded

ENGLISH = "lucene-english"  # the default, which names of indexes leave out
ANALYZERS = {ENGLISH: "wikidx.indexer.analysis.english:ANALYZER"}
MAX_TERM_BYTES = 32_766  # of UTF-8, as in Lucene

_NAME = re.compile(r"[a-z][a-z0-9._]*(-[a-z][a-z0-9._]*)*")
_SHOWN = 40  # characters of a text in messages


class AnalyzerFailed(InputError):
    """Texts that an analyzer fails for: the reasons by position."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons


class TermTable(NamedTuple):
    """Terms by number. Term i is the UTF-8 text ``pool[ends[i - 1]:ends[i]]``; term 0 starts at 0. A lone surrogate has three bytes."""

    pool: NDArray[np.uint8]
    ends: NDArray[np.uint32]

    def terms(self) -> list[str]:
        """Return the terms as strings, in order of their numbers."""
        pool = self.pool.tobytes()
        ends = self.ends.tolist()
        return [pool[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip([0, *ends], ends, strict=False)]


class TermNumbering(Protocol):
    """Numbering of the distinct terms of many texts, from 0 in order of first appearance. It is used by one thread."""

    def __len__(self) -> int:
        """Return the number of distinct terms."""
        ...

    def add(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Analyse texts and return the numbers of their terms.

        Returns:
            The concatenated term numbers of all texts (int32), and the position after each text's last number (int64, one per text).

        Raises:
            AnalyzerFailed: the analyzer fails for some of the texts.
        """
        ...

    def table(self) -> TermTable:
        """Return the terms numbered so far; later calls of ``add`` do not change the returned table."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyzer:
    """An analysis of texts into the terms that an index counts and finds.

    Attributes:
        name: its name, also in names of indexes. The parts between its hyphens begin with letters: numbers there are parameters.
        terms: text -> list of its terms in order; the same for passages and queries, and the same at each call. Several threads call it.
        numbering: makes a faster numbering of the same terms; None: the terms are numbered in Python.
    """

    plugin_kind: ClassVar[str] = "analyzer"

    name: str
    terms: Callable[[str], list[str]]
    numbering: Callable[[], TermNumbering] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"'{self.name:.80}' cannot be the name of an analyzer: use lower-case letters, digits, '.', '_' and '-', "
                "with a letter first and after each '-'"
            )

    def new_numbering(self) -> TermNumbering:
        """Return a numbering without terms."""
        return self.numbering() if self.numbering else NumberingInPython(self)


class NumberingInPython:
    """Numbering of an analyzer's terms in a dictionary; see ``TermNumbering``."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer, self._numbers = analyzer, _Numbers()

    def __len__(self) -> int:
        """Return the number of distinct terms."""
        return len(self._numbers)

    def add(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Analyse texts and return the numbers of their terms; see ``TermNumbering.add``."""
        occurrences, ends, reasons = array("i"), np.empty(len(texts), dtype=np.int64), dict[int, str]()
        for i, text in enumerate(texts):
            try:
                occurrences.extend(map(self._numbers.__getitem__, _check_type(self._analyzer.terms(text))))
            except Exception as error:  # noqa: BLE001 - of a user's code
                reasons[i] = (
                    f"the analyzer '{self._analyzer.name}' fails for the text {text[:_SHOWN]!r}{'…' * (len(text) > _SHOWN)}: "
                    f"{type(error).__name__}: {error}; correct it, then run the same command again"
                )
            ends[i] = len(occurrences)
        if reasons:
            raise AnalyzerFailed(reasons)
        return np.array(occurrences, dtype=np.int32), ends

    def table(self) -> TermTable:
        """Return the terms numbered so far."""
        terms = [term.encode("utf-8", "surrogatepass") for term in self._numbers]
        return TermTable(np.frombuffer(b"".join(terms), dtype=np.uint8), np.cumsum([*map(len, terms)], dtype=np.uint32))


class _Numbers(dict[str, int]):
    """Numbers of terms; a term that is looked up for the first time gets the next number."""

    def __missing__(self, term: str) -> int:
        if not isinstance(term, str) or not term:
            raise ValueError(f"{term!r:.80} is no term: a term is a text of at least one character")
        if (n_bytes := len(term.encode("utf-8", "surrogatepass"))) > MAX_TERM_BYTES:
            raise ValueError(f"a term, {term[:_SHOWN]!r}…, has {n_bytes:,} bytes, {MAX_TERM_BYTES:,} are possible")
        number = self[term] = len(self)
        return number


def _check_type(terms: object) -> list[str]:
    if not isinstance(terms, list):
        raise TypeError(f"its terms are a '{type(terms).__name__}', not a list")
    return terms


def analyzer_parameters(name: str) -> Parameters:
    """Return the parameters by which a manifest records an analyzer: its name, and for a plug-in the sha256 of its file."""
    return {"analyzer": name, **recorded("analyzer", name, ANALYZERS)}


def recorded_analyzer(parameters: Parameters, artifact: Path) -> Analyzer:
    """Return the analyzer that a manifest records.

    Raises:
        PlugInMismatch: it is a plug-in that has not been named, or that has another checksum now.
        UnknownNameError: it is none that this version of idx has.
    """
    name = str(parameters.get("analyzer"))
    if sha256 := parameters.get("analyzer_sha256"):
        check_same("analyzer", name, str(sha256), artifact)
    analyzer: Analyzer = find(
        "analyzer", name, ANALYZERS, lambda plugged: plugged.instance_of(Analyzer, "an analyzer is a wikidx.Analyzer")
    )
    return analyzer
