"""Cross-encoders: networks that read a query together with a passage and score the passage's relevance.

A cross-encoder is a Hugging Face sequence-classification checkpoint with one label, or two (no and yes). ``retrievers.RERANKERS`` maps
names to the import paths of functions that open a reranker on a device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import ArtifactMismatch, MissingExtraError
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Scores
from wikidx.indexer.embedding.batching import batches
from wikidx.indexer.encoders.checkpoints import Checkpoint, HubCheckpoint, locate, required_files
from wikidx.indexer.encoders.loading import load_network, n_positions
from wikidx.indexer.encoders.tokenizing import checkpoint_tokenizer
from wikidx.indexer.machine.devices import resolve_device
from wikidx.indexer.machine.failures import device_errors

from .cancellation import raise_if_cancelled

if TYPE_CHECKING:
    import tokenizers

_WINDOW = 4096  # pairs that are tokenised and sorted by length together; the number bounds the memory
_CPU_BATCH_TOKENS = 1_024  # including padding; small enough for the CPU's caches
_GPU_BATCH_TOKENS = 32_768
_ALIGNED = 8  # multiple of a batch's width on a GPU: attention has fewer shapes, and aligned rows of its mask
_ADVICE = "end what else uses it, or name another one with --device"


def title_and_text(passage: Passage) -> str:
    """Return title and text with a space between them; only the text if the title is empty."""
    return f"{passage.title} {passage.text}" if passage.title else passage.text


def title_colon_text(passage: Passage) -> str:
    """Return title and text in the format of SimLM's reranker, with "-" for a missing title."""
    return f"{passage.title or '-'}: {passage.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderSpec:
    """A sequence-classification checkpoint, and its input format.

    Attributes:
        name: the reranker's name in idx.
        checkpoint: weights and tokenizer.
        max_tokens: maximum length of a pair, including special tokens; the longer of query and passage is truncated first.
        passage_text: function that returns the network's input text for a passage.
    """

    name: str
    checkpoint: Checkpoint
    max_tokens: int = 512
    passage_text: Callable[[Passage], str] = title_and_text


class CrossEncoder:
    """A cross-encoder on a device; thread-safe.

    Args:
        spec: the checkpoint, and its input format.
        device: "auto" (the first GPU, else the CPU) or the name of a torch device.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        InputError: the device does not exist, or the directory is not a checkpoint.
        ArtifactMismatch: the checkpoint is not a cross-encoder.
        ArtifactCorrupt: the checkpoint cannot be read.
        IdxError: the device has too little memory, or fails.
        DownloadError: the checkpoint is missing and cannot be downloaded.
    """

    def __init__(self, spec: CrossEncoderSpec, device: str = "cpu") -> None:
        try:
            import torch
            import transformers  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"the reranker '{spec.name}'", "dense") from error
        folder = locate(spec.checkpoint, spec.name, required_files())
        self._spec = spec
        self._device = torch.device(resolve_device(device))
        self._on_cpu = self._device.type == "cpu"
        model = load_network("AutoModelForSequenceClassification", folder, spec.name, "float32" if self._on_cpu else "float16")
        if model.config.num_labels > 2:
            raise ArtifactMismatch(f"{folder} tells {model.config.num_labels} labels apart: a cross-encoder for reranking has one or two")
        with device_errors(str(self._device), f"the reranker '{spec.name}'", _ADVICE):
            self._model = model.to(self._device)
        self._has_types = "token_type_ids" in inspect.signature(model.forward).parameters
        self._pad = model.config.pad_token_id or 0
        self._tokenizer = checkpoint_tokenizer(folder, spec.name)  # joins query and text in the network's format
        self._max_tokens = min(spec.max_tokens, n_positions(model.config.to_dict()) or spec.max_tokens)
        self._tokenizer.enable_truncation(self._max_tokens, strategy="longest_first")
        self._tokenizer.no_padding()

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return a score for each pair ``(queries[i], passages[i])``, float32 of shape (n,).

        The score is the logit of a single label or, with two labels, the logit of yes minus that of no.

        Raises:
            DeadlineExceeded: the search is cancelled; see ``cancellation``.
            IdxError: the device has too little memory, or fails.
        """
        scores = np.empty(len(queries), dtype=np.float32)
        for start in range(0, len(queries), _WINDOW):
            window = slice(start, start + _WINDOW)
            texts = [self._spec.passage_text(passage) for passage in passages[window]]
            pairs = self._tokenizer.encode_batch_fast(list(zip(queries[window], texts, strict=True)))
            lengths = np.array([len(pair.ids) for pair in pairs])
            for batch in batches(lengths, _CPU_BATCH_TOKENS if self._on_cpu else _GPU_BATCH_TOKENS):
                raise_if_cancelled()
                scores[start + batch] = self._compute_logits([pairs[number] for number in batch], lengths[batch])
        return scores

    def _compute_logits(self, pairs: Sequence[tokenizers.Encoding], lengths: NDArray[np.int64]) -> Scores:
        import torch

        mask = np.arange(self._width(int(lengths.max()))) < lengths[:, None]
        ids, types = np.full(mask.shape, self._pad), np.zeros(mask.shape, dtype=np.int64)
        ids[mask] = np.concatenate([pair.ids for pair in pairs])
        types[mask] = np.concatenate([pair.type_ids for pair in pairs])
        arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64)} | ({"token_type_ids": types} if self._has_types else {})
        with device_errors(str(self._device), f"a batch of {mask.size:,} tokens to rerank", _ADVICE), torch.inference_mode():
            logits = self._model(**{name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}).logits.float()
            relevance: Scores = (logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)).cpu().numpy()
        return relevance

    def _width(self, longest: int) -> int:
        """Return the width of a batch in tokens, including padding."""
        return longest if self._on_cpu else max(longest, min(-(-longest // _ALIGNED) * _ALIGNED, self._max_tokens))


SIMLM_SPEC = CrossEncoderSpec(  # Wang et al., 2023; format from the model card; the reranker of RetroRAG
    name="simlm",
    checkpoint=HubCheckpoint("intfloat/simlm-msmarco-reranker", "main"),
    max_tokens=192,
    passage_text=title_colon_text,
)
MINILM_SPEC = CrossEncoderSpec(name="minilm-msmarco", checkpoint=HubCheckpoint("cross-encoder/ms-marco-MiniLM-L6-v2", "main"))
BGE_BASE_SPEC = CrossEncoderSpec(name="bge-base", checkpoint=HubCheckpoint("BAAI/bge-reranker-base", "main"))

SIMLM = partial(CrossEncoder, SIMLM_SPEC)
MINILM = partial(CrossEncoder, MINILM_SPEC)
BGE_BASE = partial(CrossEncoder, BGE_BASE_SPEC)
