"""Encoder on a node of a Ray cluster: it receives ranges of passages, and returns their vectors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from wikidx.base.machine.workers import worker_processes
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.options import RayResources, Resources
from wikidx.indexer.embedding.pipeline import TokenizedRows, encode_ranges, explain_device_errors
from wikidx.indexer.encoders.batching import tokenizing_chunks
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer, concatenate

from .nodes import load_ray


class Encoder:
    """Encoder that ``embedding`` starts as a Ray actor.

    Several threads may call ``encode`` at the same time: one of them uses the model, while the others tokenise.

    Args:
        spec: the encoder.
        resources: devices, precision and batch size.
        home: data home of the process that starts the actor; used if this folder exists on the actor's node.
    """

    def __init__(self, spec: EncoderSpec, resources: Resources, home: Path) -> None:
        self._spec, self._resources, self._home = spec, resources, home
        self._loading, self._computing = threading.Lock(), threading.Lock()
        self._loaded: tuple[Tokenizer, Model] | None = None
        self._tokenise: Callable[[Sequence[Passage]], Future[Tokens]] | None = None
        self._exit_stack = contextlib.ExitStack()  # tokenising processes live as long as the actor

    def node(self) -> str:
        """Return Ray's id of the node."""
        return str(load_ray().get_runtime_context().get_node_id())

    def encode(self, rows: range, passages: Sequence[Passage]) -> tuple[Vectors, int]:
        """Return the vectors of a range, float32 (len(rows), dim), and its number of tokens; raises as ``embed_ranges`` does."""
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
        """Load the model on first use. The caller of ``encode`` then receives an error in loading; Ray hides errors in a constructor."""
        with self._loading:
            if self._loaded is None:
                configure_node(self._home, self._resources.ray)
                model = Model(self._spec, "passage", self._resources.devices[0], self._resources.precision.computed)
                tokenizer = Tokenizer(self._spec, "passage")
                if self._resources.n_tokenizing:
                    tokenising = worker_processes(self._resources.n_tokenizing, "tokenises", _start_tokenizing, tokenizer)
                    self._tokenise = self._exit_stack.enter_context(tokenising)
                self._loaded = tokenizer, model
            return self._loaded


def _start_tokenizing(tokenizer: Tokenizer) -> Callable[[Sequence[Passage]], Tokens]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are already as many processes as CPUs
    return tokenizer.passages


def configure_node(home: Path, resources: RayResources | None) -> None:
    """Set the data home and torch's threads on this node.

    The data home is used if the folder exists on this node. Without GPUs, torch gets as many threads as the encoder has CPUs, because the
    number of threads affects the rounding of sums.
    """
    if home.is_dir():
        os.environ["IDX_HOME"] = str(home)
    if resources is not None and not resources.n_gpus:
        with contextlib.suppress(ImportError):  # loading the model reports the error
            import torch

            torch.set_num_threads(resources.n_cpus)
