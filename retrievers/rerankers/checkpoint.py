"""Checkpoints of rerankers: ``RerankerSpec``, and ``Network``, a checkpoint's network on a device, which reads batches of tokens."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import MissingExtraError
from wikidx.base.machine.devices import may_use_gpus, resolve_device
from wikidx.base.machine.failures import device_errors
from wikidx.base.machine.fit import Demand
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Scores
from wikidx.indexer.networks.batching import batches
from wikidx.indexer.networks.checkpoints import CONFIG, Checkpoint, HubCheckpoint, locate, read_json_object, required_files
from wikidx.indexer.networks.loading import load_network, n_positions
from wikidx.indexer.networks.network_size import network_demand
from wikidx.retrievers.cancellation import raise_if_cancelled

if TYPE_CHECKING:
    import torch

ST_CONFIG = "config_sentence_transformers.json"
ST_LENGTH = "sentence_bert_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
MODULES = "modules.json"

_WINDOW = 4096  # pairs that are tokenised and sorted by length together; the number bounds the memory
_CPU_BATCH_TOKENS = 1_024  # including padding; small enough for the CPU's caches
GPU_BATCH_TOKENS = 32_768
_ALIGNED = 8  # multiple of a batch's width on a GPU: attention has fewer shapes, and aligned rows of its mask
_ADVICE = "end what else uses it, or name another one with --device"
_OPTIONAL = (ST_CONFIG, ST_LENGTH, TOKENIZER_CONFIG, MODULES)  # files that only some repositories have

Ids = Sequence[int]


def title_and_text(passage: Passage) -> str:
    """Return title and text with a space between them; only the text if the title is empty."""
    return f"{passage.title} {passage.text}" if passage.title else passage.text


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


class Network:
    """The network of a checkpoint on a device; thread-safe.

    Args:
        model_class: transformers class that loads the network.
        spec: the checkpoint.
        device: "auto" (the first GPU, else the CPU) or the name of a torch device.

    Attributes:
        folder: the checkpoint's directory.
        model: the network.
        device: torch's device.
        max_tokens: maximum length of an input; None: unlimited.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        InputError: the device does not exist, or the directory is not a checkpoint.
        ArtifactMismatch: the weights are not those of such a network.
        ArtifactCorrupt: the checkpoint cannot be read.
        IdxError: the device has too little memory, or fails.
        DownloadError: the checkpoint is missing and cannot be downloaded.
    """

    def __init__(self, model_class: str, spec: RerankerSpec, device: str) -> None:
        try:
            import torch
            import transformers  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"the reranker '{spec.name}'", "dense") from error
        self._spec, self.folder = spec, find_folder(spec.checkpoint, spec.name)
        self.device = torch.device(resolve_device(device, _demand(spec) if may_use_gpus(device) else None))
        self._on_cpu = self.device.type == "cpu"
        model = load_network(model_class, self.folder, spec.name, "float32" if self._on_cpu else "float16")
        with device_errors(str(self.device), f"the reranker '{spec.name}'", _ADVICE):
            self.model: Any = model.to(self.device)
        # only networks with embeddings of types: GPT-2 takes types, and adds the embeddings of the tokens with these numbers
        self._has_types = (
            getattr(model.config, "type_vocab_size", 0) > 1 and "token_type_ids" in inspect.signature(model.forward).parameters
        )
        self._pad = model.config.pad_token_id or 0
        # GPT-2 stores the number of positions under a name of its own, which transformers maps to the usual one
        config = model.config.to_dict() | {"max_position_embeddings": getattr(model.config, "max_position_embeddings", None)}
        self.max_tokens = min(filter(None, (spec.max_tokens, n_positions(config))), default=None)

    def score(
        self,
        queries: Sequence[str],
        passages: Sequence[Passage],
        split: Callable[[Sequence[str], Sequence[str]], tuple[Sequence[Ids], Sequence[Ids] | None]],
        relevance: Callable[[dict[str, torch.Tensor]], torch.Tensor],
        *,
        singly: bool = False,
        pads_left: bool = False,
    ) -> Scores:
        """Return the relevance of each passage to the query of the same place, float32 of shape (n,).

        Args:
            queries: a query for each passage.
            passages: the passages.
            split: queries and texts of passages -> the tokens of each pair, and their types (None: all 0).
            relevance: see ``compute``.
            singly: see ``batches``.
            pads_left: see ``compute``.

        Raises:
            DeadlineExceeded: the search is cancelled; see ``cancellation``.
            IdxError: the device has too little memory, or fails.
        """
        scores = np.empty(len(queries), dtype=np.float32)
        for window in windows(len(queries)):
            ids, types = split(queries[window], [self._spec.passage_text(passage) for passage in passages[window]])
            for batch in self.batches(np.array([len(pair) for pair in ids]), singly=singly):
                of_batch = None if types is None else [types[number] for number in batch]
                computed = self.compute(relevance, [ids[number] for number in batch], types=of_batch, pads_left=pads_left)
                scores[window.start + batch] = computed.cpu().numpy()
        return scores

    def batches(self, lengths: NDArray[np.int64], *, singly: bool = False) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of the texts of each batch, longest texts first.

        Args:
            lengths: tokens of each text, shape (n,).
            singly: each text is a batch.

        Raises:
            DeadlineExceeded: the search is cancelled; see ``cancellation``.
        """
        for batch in batches(lengths, 1 if singly else _CPU_BATCH_TOKENS if self._on_cpu else GPU_BATCH_TOKENS):
            raise_if_cancelled()
            yield batch

    def compute(
        self,
        forward: Callable[[dict[str, torch.Tensor]], torch.Tensor],
        texts: Sequence[Ids],
        *,
        types: Sequence[Ids] | None = None,
        n_attended: NDArray[np.int64] | None = None,
        pads_left: bool = False,
    ) -> torch.Tensor:
        """Return what a function computes of the network's arguments for a batch of texts.

        Args:
            forward: arguments of the network by name, on the device -> the result.
            texts: token ids of each text.
            types: token types of each text; None: all 0.
            n_attended: first tokens of each text that others attend to; None: all.
            pads_left: put the padding before the tokens, so that all texts end in the last column; positions count tokens only.

        Raises:
            IdxError: the device has too little memory, or fails.
        """
        import torch

        lengths = np.array([len(ids) for ids in texts])
        column = np.arange(self._width(int(lengths.max())))
        mask = column[::-1] < lengths[:, None] if pads_left else column < lengths[:, None]
        attended = mask if n_attended is None else column < n_attended[:, None]
        arrays = {"input_ids": np.full(mask.shape, self._pad), "attention_mask": attended.astype(np.int64)}
        arrays["input_ids"][mask] = np.concatenate(texts)
        if types is not None and self._has_types:
            arrays["token_type_ids"] = np.zeros(mask.shape, dtype=np.int64)
            arrays["token_type_ids"][mask] = np.concatenate(types)
        if pads_left:
            arrays["position_ids"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        with self.computing(f"a batch of {mask.size:,} tokens to rerank"):
            return forward({name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()})

    @contextlib.contextmanager
    def computing(self, task: str) -> Iterator[None]:
        """Compute without gradients inside the ``with`` block, and translate errors of the device; the task is for their message."""
        import torch

        with device_errors(str(self.device), task, _ADVICE), torch.inference_mode():
            yield

    def _width(self, longest: int) -> int:
        """Return the width of a batch in tokens, including padding."""
        aligned = min(-(-longest // _ALIGNED) * _ALIGNED, self.max_tokens or longest + _ALIGNED)
        return longest if self._on_cpu else max(longest, aligned)


def _demand(spec: RerankerSpec) -> Demand:
    """Return the memory of a reranker on a GPU, with a batch of its longest inputs; raises as ``Network`` does."""
    folder = find_folder(spec.checkpoint, spec.name)
    positions = n_positions(read_json_object(folder / CONFIG, spec.name))
    width = min(filter(None, (spec.max_tokens, positions)), default=GPU_BATCH_TOKENS)
    return network_demand(folder, f"the reranker '{spec.name}'", n_tokens=GPU_BATCH_TOKENS, width=width, dtype="float16")


def find_folder(checkpoint: Checkpoint, name: str) -> Path:
    """Return the directory of a checkpoint, downloaded with its optional files if it is not on this machine; raises as ``locate`` does."""
    optional = ((file, CONFIG) for file in _OPTIONAL) if isinstance(checkpoint, HubCheckpoint) else ()
    return locate(checkpoint, name, (*optional, *required_files()))


def windows(n_pairs: int) -> Iterator[slice]:
    """Yield consecutive ranges of pairs, which bound the memory of their tokens."""
    for start in range(0, n_pairs, _WINDOW):
        yield slice(start, start + _WINDOW)


def optional_json(folder: Path, file: str, name: str) -> Mapping[str, Any]:
    """Return the object in a JSON file of a checkpoint, empty without the file; raises ``ArtifactCorrupt`` as ``read_json_object``."""
    return read_json_object(folder / file, name) if (folder / file).is_file() else {}
