"""Cross-encoders: networks that read a query together with a passage and score the passage's relevance.

A cross-encoder is a Hugging Face sequence-classification checkpoint with one label, or two (no and yes). It is read as
sentence-transformers' ``CrossEncoder`` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wikidx.base.errors import ArtifactMismatch
from wikidx.corpora.passage import Passage
from wikidx.indexer.networks.checkpoints import CONFIG, HubCheckpoint, read_json_object
from wikidx.indexer.networks.dense import load_activation
from wikidx.indexer.networks.module_folders import SETTINGS, TOKENIZER_SETTINGS, optional_json, transformer_settings
from wikidx.indexer.networks.network import Ids
from wikidx.indexer.networks.tokenizers import checkpoint_tokenizer

from .checkpoint import RerankerNetwork, RerankerSpec

if TYPE_CHECKING:
    import torch

_MAX_TOKENS = 512  # of a checkpoint that states no length
_UNLIMITED = 1_000_000  # transformers writes 10^30 for no limit


class CrossEncoder(RerankerNetwork):
    """A cross-encoder on a device; thread-safe.

    A score is the activation of a single label's logit or, with two labels, that of yes minus that of no.

    Args:
        spec: the checkpoint, and its input format; the longer of query and passage is truncated first.
        device: "auto" (the first GPU, else the CPU) or the name of a torch device.

    Raises:
        ArtifactMismatch: the checkpoint is not a cross-encoder.
        IdxError: see ``RerankerNetwork``.
    """

    def __init__(self, spec: RerankerSpec, device: str = "cpu") -> None:
        super().__init__("AutoModelForSequenceClassification", spec, device)
        config, folder = self.module.config, self.folder
        if config.num_labels > 2:
            raise ArtifactMismatch(f"{folder} tells {config.num_labels} labels apart: a cross-encoder for reranking has one or two")
        default = f"torch.nn.{'Sigmoid' if config.num_labels == 1 else 'Identity'}"
        self._activation = load_activation(spec.activation or _stored_activation(folder, spec.name) or default, folder / CONFIG)
        # A decoder with a classifier finds the ends of texts by their padding.
        self._singly = config.pad_token_id is None
        self._tokenizer = checkpoint_tokenizer(folder, spec.name)  # joins query and text in the network's format
        lengths = filter(None, (_stored_length(folder, spec.name), self.max_tokens))
        self._tokenizer.enable_truncation(min(lengths, default=_MAX_TOKENS), strategy="longest_first")
        self._tokenizer.no_padding()

    def _split(self, queries: Sequence[str], texts: Sequence[str]) -> tuple[list[Ids], list[Ids]]:
        pairs = self._tokenizer.encode_batch_fast(list(zip(queries, texts, strict=True)))
        return [pair.ids for pair in pairs], [pair.type_ids for pair in pairs]

    def _relevance(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        labels: torch.Tensor = self._activation(self.module(**batch).logits.float())
        return labels[:, -1] - labels[:, 0] if labels.shape[1] == 2 else labels[:, 0]


def _stored_activation(folder: Path, name: str) -> str | None:
    """Return the import path of the activation in any of the places where versions of sentence-transformers store it."""
    config = read_json_object(folder / CONFIG, name)
    stored = (
        optional_json(folder, SETTINGS, name).get("activation_fn"),
        (config.get("sentence_transformers") or {}).get("activation_fn"),
        config.get("sbert_ce_default_activation_function"),
    )
    return next((path for path in stored if isinstance(path, str)), None)


def _stored_length(folder: Path, name: str) -> int | None:
    """Return the maximum number of tokens that sentence-transformers or the tokenizer stores; None: neither."""
    stored = (
        transformer_settings(folder, name).get("max_seq_length"),
        optional_json(folder, TOKENIZER_SETTINGS, name).get("model_max_length"),
    )
    return next((length for length in stored if isinstance(length, int) and 0 < length < _UNLIMITED), None)


def _title_colon_text(passage: Passage) -> str:
    """Return title and text in the format of SimLM's reranker, with "-" for a missing title."""
    return f"{passage.title or '-'}: {passage.text}"


_LOGIT = "torch.nn.Identity"

SIMLM_SPEC = RerankerSpec(  # Wang et al., 2023; format from the model card; the reranker of RetroRAG
    name="simlm",
    checkpoint=HubCheckpoint("intfloat/simlm-msmarco-reranker", "main"),
    max_tokens=192,
    passage_text=_title_colon_text,
    activation=_LOGIT,
)
MINILM_SPEC = RerankerSpec(
    name="minilm-msmarco",
    checkpoint=HubCheckpoint("cross-encoder/ms-marco-MiniLM-L6-v2", "main"),
    max_tokens=512,
    activation=_LOGIT,
)
BGE_BASE_SPEC = RerankerSpec(name="bge-base", checkpoint=HubCheckpoint("BAAI/bge-reranker-base", "main"), max_tokens=512, activation=_LOGIT)

SIMLM = partial(CrossEncoder, SIMLM_SPEC)
MINILM = partial(CrossEncoder, MINILM_SPEC)
BGE_BASE = partial(CrossEncoder, BGE_BASE_SPEC)
