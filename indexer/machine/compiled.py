"""``kernel`` and its cache, which the store needs as well: see ``corpora.machine.compiled``."""

from __future__ import annotations

from wikidx.corpora.machine.compiled import ROOT, Kernel, cache_folders, compile_always, interpreted, kernel, sources_hash

__all__ = ["ROOT", "Kernel", "cache_folders", "compile_always", "interpreted", "kernel", "sources_hash"]
