"""An encoder on a node of a Ray cluster: it receives the passages of ranges of rows, and returns their vectors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.batching import pieces
from wikidx.indexer.embedding.options import Resources, Share
from wikidx.indexer.embedding.pipeline import Measured, Part, PassageEncoder, encoded_ranges, explain_device_errors, measured
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer, joined
from wikidx.indexer.machine.workers import processes

from .nodes import load_ray


class Encoder:
    """A plain class, made an actor by ``embedding``. ``encode`` may be called from several threads: one uses the model, others tokenise.

    Args:
        spec: the encoder.
        found: its resources.
        home: the data home of the calling process, used here if that folder exists.
    """

    def __init__(self, spec: EncoderSpec, found: Resources, home: Path) -> None:
        self._spec, self._found, self._home = spec, found, home
        self._loading, self._computing = threading.Lock(), threading.Lock()
        self._loaded: tuple[Tokenizer, Model] | None = None
        self._tokenise: Callable[[Sequence[Passage]], Future[Tokens]] | None = None
        self._until_killed = contextlib.ExitStack()  # tokenising processes live as long as this one

    def node(self) -> str:
        """Return Ray's id for its node."""
        return str(load_ray().get_runtime_context().get_node_id())

    def encode(self, rows: range, passages: Sequence[Passage]) -> tuple[Vectors, int]:
        """Return the vectors of a range, float32 of shape (len(rows), dim), and its number of tokens; raises as ``embed_ranges`` does."""
        with explain_device_errors(self._found.devices[0], self._found, aftermath="; the finished vectors are kept"):
            tokenizer, model = self._load()
            if self._tokenise is None:
                tokens = tokenizer.passages(passages)
            else:
                parts = [self._tokenise(passages[part.start : part.stop]) for part in pieces(range(len(rows)))]
                tokens = joined([part.result() for part in parts])
            with self._computing:
                ((_, vectors),) = encoded_ranges(model, [Part(rows, rows, tokens)], self._found.batch_tokens, lambda *done: None)
        return vectors, int(tokens.lengths().sum())

    def _load(self) -> tuple[Tokenizer, Model]:
        """Load the model on first use, so that an error in loading is reported to the caller of the work."""
        with self._loading:
            if self._loaded is None:
                set_up(self._home, self._found.share)
                model = Model(self._spec, "passage", self._found.devices[0], self._found.precision.computed)
                tokenizer = Tokenizer(self._spec, "passage")
                if self._found.n_tokenizing:
                    tokenising = processes(self._found.n_tokenizing, "tokenises", _start_tokenising, self._spec)
                    self._tokenise = self._until_killed.enter_context(tokenising)
                self._loaded = tokenizer, model
            return self._loaded


def _start_tokenising(spec: EncoderSpec) -> Callable[[Sequence[Passage]], Tokens]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are already as many processes as CPUs
    return Tokenizer(spec, "passage").passages


def set_up(home: Path, share: Share | None) -> None:
    """Use a data home for checkpoints, if this node has it, and limit torch to the encoder's CPUs.

    The number of threads changes the rounding of sums.
    """
    if home.is_dir():
        os.environ["IDX_HOME"] = str(home)
    if share is not None and not share.n_gpus:
        with contextlib.suppress(ImportError):  # reported when the model is loaded
            import torch

            torch.set_num_threads(share.n_cpus)


def time_sample(spec: EncoderSpec, found: Resources, home: Path, passages: Sequence[Passage]) -> Measured:
    """Time an encoder on some passages; raises as ``PassageEncoder`` does."""
    set_up(home, found.share)
    return measured(PassageEncoder(spec, found), passages)
