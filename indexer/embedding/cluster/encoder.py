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
from wikidx.indexer.embedding.batching import tokenizing_chunks
from wikidx.indexer.embedding.options import RayResources, Resources
from wikidx.indexer.embedding.pipeline import (
    Measurement,
    PassageEncoder,
    TokenizedRows,
    encode_ranges,
    explain_device_errors,
    measure_encoder,
)
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer, concatenate
from wikidx.indexer.machine.workers import worker_processes

from .nodes import load_ray


class Encoder:
    """An encoder, made an actor by ``embedding``. ``encode`` may be called from several threads: one uses the model, others tokenise.

    Args:
        spec: the encoder.
        resources: devices, precision and batch size.
        home: data home of the calling process, used on this node if the folder exists here.
    """

    def __init__(self, spec: EncoderSpec, resources: Resources, home: Path) -> None:
        self._spec, self._resources, self._home = spec, resources, home
        self._loading, self._computing = threading.Lock(), threading.Lock()
        self._loaded: tuple[Tokenizer, Model] | None = None
        self._tokenise: Callable[[Sequence[Passage]], Future[Tokens]] | None = None
        self._exit_stack = contextlib.ExitStack()  # tokenising processes live as long as this one

    def node(self) -> str:
        """Return Ray's id of the node."""
        return str(load_ray().get_runtime_context().get_node_id())

    def encode(self, rows: range, passages: Sequence[Passage]) -> tuple[Vectors, int]:
        """Return the vectors of a range, float32 of shape (len(rows), dim), and their number of tokens; raises as ``embed_ranges`` does."""
        with explain_device_errors(self._resources.devices[0], self._resources, aftermath="; the finished vectors are kept"):
            tokenizer, model = self._load()
            if self._tokenise is None:
                tokens = tokenizer.passages(passages)
            else:
                parts = [self._tokenise(passages[part.start : part.stop]) for part in tokenizing_chunks(range(len(rows)))]
                tokens = concatenate([part.result() for part in parts])
            with self._computing:
                ((_, vectors),) = encode_ranges(
                    model, [TokenizedRows(rows, rows, tokens)], self._resources.batch_tokens, lambda *done: None
                )
        return vectors, int(tokens.lengths().sum())

    def _load(self) -> tuple[Tokenizer, Model]:
        """Load the model on first use, so that an error in loading is reported to the caller of the work."""
        with self._loading:
            if self._loaded is None:
                configure_node(self._home, self._resources.ray)
                model = Model(self._spec, "passage", self._resources.devices[0], self._resources.precision.computed)
                tokenizer = Tokenizer(self._spec, "passage")
                if self._resources.n_tokenizing:
                    tokenising = worker_processes(self._resources.n_tokenizing, "tokenises", _start_tokenizing, self._spec)
                    self._tokenise = self._exit_stack.enter_context(tokenising)
                self._loaded = tokenizer, model
            return self._loaded


def _start_tokenizing(spec: EncoderSpec) -> Callable[[Sequence[Passage]], Tokens]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are already as many processes as CPUs
    return Tokenizer(spec, "passage").passages


def configure_node(home: Path, resources: RayResources | None) -> None:
    """Use a data home for checkpoints if the folder exists on this node; without GPUs, limit torch's threads to the encoder's CPUs.

    The number of threads affects the rounding of sums.
    """
    if home.is_dir():
        os.environ["IDX_HOME"] = str(home)
    if resources is not None and not resources.n_gpus:
        with contextlib.suppress(ImportError):  # reported when the model is loaded
            import torch

            torch.set_num_threads(resources.n_cpus)


def time_sample(spec: EncoderSpec, resources: Resources, home: Path, passages: Sequence[Passage]) -> Measurement:
    """Time an encoder on some passages; raises as ``PassageEncoder`` does."""
    configure_node(home, resources.ray)
    return measure_encoder(PassageEncoder(spec, resources), passages)
