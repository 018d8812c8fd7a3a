"""A store or an index that is served, as it was when it was opened: what it is, and whether other files lie at its place by now."""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any

from wikidx.corpora.artifacts.manifest import MANIFEST, Manifest
from wikidx.corpora.errors import ArtifactMismatch
from wikidx.retrievers.naming import RetrieverName

from .settings import Settings

Identity = tuple[int, int, int] | None
Name = tuple[str, str]  # corpus, index or PASSAGES

PASSAGES = "passages"


def identity_of(path: Path) -> Identity:
    """Return what tells the artefact at a path from all others that are ever there; None if there is none."""
    try:
        stat = os.stat(path / MANIFEST)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns


class FirstOpened:
    """What was opened first, in memory that processes share: one that is started later must not serve other files than they do.

    Args:
        settings: of the server; what is served follows from them, so that all processes have the same places.
    """

    def __init__(self, settings: Settings) -> None:
        offers = ((corpus, RetrieverName.parse(retriever)) for corpus, retriever in settings.offers)
        names = dict.fromkeys((corpus, part) for corpus, retriever in offers for part in (PASSAGES, *retriever.parts))
        self._places = {name: place for place, name in enumerate(names)}
        self._found = RawArray("q", len(names))

    def check(self, name: Name, identity: Identity) -> None:
        """Take note of an artefact that is about to be opened for the first time.

        Raises:
            ArtifactMismatch: it is another one than was opened before.
        """
        if identity is None:
            return  # to open it says why
        place, found = self._places[name], hash(identity)
        if self._found[place] == 0:
            self._found[place] = found
        elif self._found[place] != found:
            corpus, index = name
            raise ArtifactMismatch(
                f"'{index}' of '{corpus}' has been replaced since the server was started: restart it to serve the new one"
            )


@dataclass(frozen=True, slots=True)
class Part:
    """An artefact; its files stay mapped, and are served, until the process ends, whatever comes to lie at its path."""

    path: Path
    manifest: Manifest
    identity: Identity

    def describe(self) -> dict[str, Any]:
        """Return what it is, and whether something else is at its place now."""
        return {
            "rows": self.manifest.count("rows"),
            "bytes": self.manifest.n_bytes,
            "created": self.manifest.created,
            "replaced": identity_of(self.path) != self.identity,
        }
