"""Encoding with a transformer checkpoint: everything that a model's authors fixed stands in its ``EncoderSpec``, nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from corpora.durable import file_sha256
from corpora.errors import ArtifactMismatch, InputError, MissingExtraError
from corpora.passage import Passage
from indexer.base import Vectors, check_device

if TYPE_CHECKING:
    import torch

_BATCH = 32  # texts a forward pass; larger batches gain nothing on a CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """How texts become vectors.

    Attributes:
        name: the encoder's name in idx.
        checkpoint: returns the local directory of the weights in Hugging Face's layout.
        weights_sha256: checksum of ``model.safetensors``.
        dim: components of a vector.
        pooling: "mean" over the tokens that are not padding, or "cls", the first token.
        normalize: whether vectors are brought to length 1.
        max_query_tokens, max_passage_tokens: where texts are cut, special tokens included.
        passage_text: joins title and text.
    """

    name: str
    checkpoint: Callable[[], Path]
    weights_sha256: str
    dim: int
    pooling: Literal["mean", "cls"]
    normalize: bool
    max_query_tokens: int
    max_passage_tokens: int
    passage_text: Callable[[Passage], str]


class TransformerEncoder:
    """An encoder with its weights loaded, in float32."""

    def __init__(self, spec: EncoderSpec, device: str = "cpu") -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise MissingExtraError(f"the encoder '{spec.name}'", "dense") from error
        folder = spec.checkpoint()
        found = file_sha256(folder / "model.safetensors")
        if found != spec.weights_sha256:
            raise ArtifactMismatch(
                f"{folder / 'model.safetensors'} is not the checkpoint of '{spec.name}': sha256 {found}, expected {spec.weights_sha256}"
            )
        transformers.utils.logging.disable_progress_bar()
        self.dim = spec.dim
        self._spec = spec
        self._device = torch.device(_chosen_device(device))
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        self._model = model.to(self._device).eval()

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim)."""
        return self._encode(queries, self._spec.max_query_tokens)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim)."""
        return self._encode([self._spec.passage_text(passage) for passage in passages], self._spec.max_passage_tokens)

    def _encode(self, texts: Sequence[str], max_tokens: int) -> Vectors:
        """Encode in batches of texts of like length, so that little of a batch is padding."""
        import torch

        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        with torch.inference_mode():
            for start in range(0, len(order), _BATCH):
                batch = order[start : start + _BATCH]
                tokens = self._tokenizer(
                    [texts[i] for i in batch], padding=True, truncation=True, max_length=max_tokens, return_tensors="pt"
                )
                tokens = tokens.to(self._device)
                hidden = self._model(**tokens).last_hidden_state  # (batch, tokens, hidden)
                vectors[batch] = self._pooled(hidden, tokens["attention_mask"]).float().cpu().numpy()
        return vectors

    def _pooled(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return one vector a text, shape (batch, dim)."""
        import torch

        if self._spec.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            weights = mask.unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
        return torch.nn.functional.normalize(pooled, dim=1) if self._spec.normalize else pooled


def _chosen_device(device: str) -> str:
    """Return a device torch knows; "auto" is the first GPU, else the CPU.

    Raises:
        InputError: torch does not know the device, or it is not there.
    """
    import torch

    check_device(device)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device '{device}' cannot be used: {str(error).splitlines()[0]}") from error
    return device
