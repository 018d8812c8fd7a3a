"""Checkpoints of rerankers: ``RerankerSpec``, and ``RerankerNetwork``, the base of the classes that score pairs by a network in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import require_packages
from wikidx.base.machine.devices import may_use_gpus, resolve_device
from wikidx.base.machine.fit import Demand
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.base import Scores
from wikidx.indexer.networks.batching import batches
from wikidx.indexer.networks.checkpoints import CONFIG, Checkpoint, HubCheckpoint, locate, read_json_object, required_files
from wikidx.indexer.networks.loading import load_network, n_positions
from wikidx.indexer.networks.module_folders import OPTIONAL
from wikidx.indexer.networks.network import Batch, Ids, Network
from wikidx.indexer.networks.network_size import network_demand
from wikidx.retrievers.cancellation import raise_if_cancelled

if TYPE_CHECKING:
    import torch

_WINDOW = 4096  # pairs that are tokenised and sorted by length together; the number bounds the memory
_CPU_BATCH_TOKENS = 1_024  # including padding; small enough for the CPU's caches
GPU_BATCH_TOKENS = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSpec:
    """A checkpoint, and the input format of its reranker.

    Attributes:
        name: the reranker's name in idx.
        checkpoint: weights and tokenizer.
        max_tokens: maximum length of the input; None: as the checkpoint says.
        passage_text: function that returns the network's input text for a passage.
        activation: function of torch.nn that is applied to a cross-encoder's logits; None: as the checkpoint says.
        instruction: task of a decoder; None: as the checkpoint says.
    """

    name: str
    checkpoint: Checkpoint
    max_tokens: int | None = None
    passage_text: Callable[[Passage], str] = title_and_text
    activation: str | None = None
    instruction: str | None = None


class RerankerNetwork(Network):
    """The network of a reranker's checkpoint on a device; thread-safe.

    Args:
        model_class: transformers class that loads the network.
        spec: the checkpoint.
        device: "auto" (the first GPU, else the CPU) or the name of a torch device.
        pads_left: see ``Network``.

    Attributes:
        folder: the checkpoint's directory.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        InputError: the device does not exist, or the directory is not a checkpoint.
        ArtifactMismatch: the weights are not those of such a network.
        ArtifactCorrupt: the checkpoint cannot be read.
        IdxError: the device has too little memory, or fails.
        DownloadError: the checkpoint is missing and cannot be downloaded.
    """

    _singly = False  # whether each text is a batch

    def __init__(self, model_class: str, spec: RerankerSpec, device: str, *, pads_left: bool = False) -> None:
        name = f"the reranker '{spec.name}'"
        require_packages(name, "dense", "torch", "transformers")
        self._spec, self.folder = spec, find_folder(spec.checkpoint, spec.name)
        device = resolve_device(device, _demand(spec) if may_use_gpus(device) else None)
        module = load_network(model_class, self.folder, spec.name, "float32" if device == "cpu" else "float16")
        # GPT-2 stores the number of positions under a name of its own, which transformers maps to the usual one
        config = module.config.to_dict() | {"max_position_embeddings": getattr(module.config, "max_position_embeddings", None)}
        max_tokens = min(filter(None, (spec.max_tokens, n_positions(config))), default=None)
        super().__init__(module, device, name, max_tokens, pads_left=pads_left)

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return a score for each pair ``(queries[i], passages[i])``, float32 of shape (n,).

        Raises:
            DeadlineExceeded: the search is cancelled; see ``cancellation``.
            IdxError: the device has too little memory, or fails.
        """
        scores = np.empty(len(queries), dtype=np.float32)
        for window in windows(len(queries)):
            ids, types = self._split(queries[window], [self._spec.passage_text(passage) for passage in passages[window]])
            for batch in self.batches(np.array([len(pair) for pair in ids])):
                of_batch = None if types is None else [types[number] for number in batch]
                computed = self.compute(self._relevance, self.pad([ids[number] for number in batch], of_batch))
                scores[window.start + batch] = computed.cpu().numpy()
        return scores

    def _split(self, queries: Sequence[str], texts: Sequence[str]) -> tuple[Sequence[Ids], Sequence[Ids] | None]:
        """Return the tokens of each pair of a query and the text of a passage, and their types (None: all 0)."""
        raise NotImplementedError

    def _relevance(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the scores of a batch of pairs; see ``compute``."""
        raise NotImplementedError

    def batches(self, lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of the texts of each batch, longest texts first; ``lengths`` are the tokens of each text, shape (n,).

        Raises:
            DeadlineExceeded: the search is cancelled; see ``cancellation``.
        """
        most = _CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS
        for batch in batches(lengths, 1 if self._singly else most):
            raise_if_cancelled()
            yield batch

    def compute(self, forward: Callable[[dict[str, torch.Tensor]], torch.Tensor], batch: Batch) -> torch.Tensor:
        """Return what a function computes of the network's arguments for a batch; raises ``IdxError`` if the device fails."""
        with self.computing(f"a batch of {batch.ids.numel():,} tokens"):
            return forward(self.inputs(batch))


def _demand(spec: RerankerSpec) -> Demand:
    """Return the memory of a reranker on a GPU, with a batch of its longest inputs; raises as ``RerankerNetwork`` does."""
    folder = find_folder(spec.checkpoint, spec.name)
    positions = n_positions(read_json_object(folder / CONFIG, spec.name))
    width = min(filter(None, (spec.max_tokens, positions)), default=GPU_BATCH_TOKENS)
    return network_demand(folder, f"the reranker '{spec.name}'", n_tokens=GPU_BATCH_TOKENS, width=width, dtype="float16")


def find_folder(checkpoint: Checkpoint, name: str) -> Path:
    """Return the directory of a checkpoint, downloaded with its optional files if it is not on this machine; raises as ``locate`` does."""
    optional = ((file, CONFIG) for file in OPTIONAL) if isinstance(checkpoint, HubCheckpoint) else ()
    return locate(checkpoint, name, (*optional, *required_files()))


def windows(n_pairs: int) -> Iterator[slice]:
    """Yield consecutive ranges of pairs, which bound the memory of their tokens."""
    for start in range(0, n_pairs, _WINDOW):
        yield slice(start, start + _WINDOW)
