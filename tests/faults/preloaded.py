"""Preloaded state of the process that all commands are forked from: their imports, compiled kernels, and small units of work."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

import wikidx.corpora.store.writer
import wikidx.indexer.build
import wikidx.indexer.encoders.transformer
import wikidx.indexer.indexes.bm25
import wikidx.indexer.indexes.faiss.ivf
import wikidx.indexer.planning  # noqa: F401
import wikidx.indexer.vectors.corpus_vectors
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.runtimes.cli import main

with contextlib.suppress(ImportError):  # absent where the tests are run without extras, and an error here would preload nothing
    import faiss  # noqa: F401
    import torch  # noqa: F401


def _load_commands() -> None:
    """Run the common commands once, so that every forked one has their modules and kernels."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, IDX_HOME=folder), Path(os.devnull).open("w") as nowhere:
        passages = Path(folder, "loading.jsonl")
        passages.write_text('{"id": "a", "title": "Fox", "text": "The red fox digs a den."}\n')
        build = ["build", str(passages), "--bm25"]
        for line in (build, ["list"], ["search", "loading", "fox", "den"], ["check", "loading"], ["remove", "loading", "--yes"]):
            with (
                mock.patch.object(sys, "argv", ["idx", *line]),
                contextlib.redirect_stdout(nowhere),
                contextlib.redirect_stderr(nowhere),
                contextlib.suppress(SystemExit),
            ):
                main()
    logging.getLogger().handlers.clear()  # which write there


_load_commands()
wikidx.corpora.store.writer._BATCH_PASSAGES = 100
setattr(wikidx.indexer.build, "RANGE_ROWS", 150)  # noqa: B010 - it has it from another module
for module in (wikidx.indexer.vectors.corpus_vectors, wikidx.indexer.indexes.faiss.ivf):
    setattr(module, "BATCH_ROWS", 150)  # noqa: B010
wikidx.indexer.indexes.faiss.ivf._SHARD_BATCHES = 1
ENCODERS["contriever"] = dataclasses.replace(ENCODERS["contriever"], dim=32)  # the golden checkpoint stands for it
