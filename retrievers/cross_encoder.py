"""Cross-encoders: a network reads query and passage together and says how well they fit.

Any sequence-classification checkpoint of Hugging Face's that has one label, or two: no and yes.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpora.errors import ArtifactDamaged, ArtifactMismatch, MissingExtraError
from corpora.passage import Passage
from indexer.base import Scores
from indexer.batching import batches
from indexer.encoders.checkpoints import located, wanted_files
from indexer.encoders.failures import first_line
from indexer.encoders.model import chosen_device
from indexer.encoders.tokenizing import checkpoint_tokenizer

from .cancellation import check_wanted
from .rerankers import RerankerSpec

if TYPE_CHECKING:
    import tokenizers
    import torch

_WINDOW = 4096  # pairs that are tokenised and sorted by length together; more would take memory
_CPU_BATCH_TOKENS = 1_024  # padding included; what stays in the caches
_GPU_BATCH_TOKENS = 32_768


class CrossEncoder:
    """A cross-encoder on a device; may be called from several threads at once.

    Args:
        spec: which.
        device: "auto" (the first GPU, else the CPU) or a device that torch knows.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        InputError: the device is not there, or the directory is no checkpoint.
        ArtifactMismatch: the checkpoint is not of a cross-encoder.
        ArtifactDamaged: its files cannot be read.
        DownloadError: it is not here and cannot be had.
    """

    def __init__(self, spec: RerankerSpec, device: str = "cpu") -> None:
        try:
            import torch
            import transformers  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"the reranker '{spec.name}'", "dense") from error
        folder = located(spec.checkpoint, spec.name, wanted_files(has_projection=False))
        self._spec = spec
        self._device = torch.device(chosen_device(device))
        self._on_cpu = self._device.type == "cpu"
        model = _model(folder, spec, torch.float32 if self._on_cpu else torch.float16)
        self._model = model.to(self._device).eval()
        self._has_types = "token_type_ids" in inspect.signature(model.forward).parameters
        self._pad = model.config.pad_token_id or 0
        self._tokenizer = checkpoint_tokenizer(folder, spec.name)  # it joins a query and a text as the network expects them
        self._tokenizer.enable_truncation(_max_tokens(model.config, spec.max_tokens), strategy="longest_first")
        self._tokenizer.no_padding()

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return the logit of each pair ``(queries[i], passages[i])``, float32 (n,): of the one label, or of yes less that of no.

        Raises:
            DeadlineExceeded: nobody waits any more for the search that this belongs to; see ``cancellation``.
        """
        scores = np.empty(len(queries), dtype=np.float32)
        for start in range(0, len(queries), _WINDOW):
            some = slice(start, start + _WINDOW)
            texts = [self._spec.passage_text(passage) for passage in passages[some]]
            pairs = self._tokenizer.encode_batch_fast(list(zip(queries[some], texts, strict=True)))
            lengths = np.array([len(pair.ids) for pair in pairs])
            for which in batches(lengths, _CPU_BATCH_TOKENS if self._on_cpu else _GPU_BATCH_TOKENS):
                check_wanted()
                scores[start + which] = self._logits([pairs[number] for number in which], lengths[which])
        return scores

    def _logits(self, pairs: Sequence[tokenizers.Encoding], lengths: NDArray[np.int64]) -> Scores:
        import torch

        inside = np.arange(lengths.max()) < lengths[:, None]
        ids, types = np.full(inside.shape, self._pad), np.zeros(inside.shape, dtype=np.int64)
        ids[inside] = np.concatenate([pair.ids for pair in pairs])
        types[inside] = np.concatenate([pair.type_ids for pair in pairs])
        arrays = {"input_ids": ids, "attention_mask": inside.astype(np.int64)} | ({"token_type_ids": types} if self._has_types else {})
        with torch.inference_mode():
            logits = self._model(**{name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}).logits.float()
            found: Scores = (logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)).cpu().numpy()
        return found


def _model(folder: Path, spec: RerankerSpec, dtype: torch.dtype) -> Any:  # noqa: ANN401 - a network of transformers
    """Return the checkpoint's network, on the CPU."""
    from safetensors import SafetensorError
    from transformers import AutoModelForSequenceClassification

    try:
        with _silence():
            model, about = AutoModelForSequenceClassification.from_pretrained(
                folder, dtype=dtype, local_files_only=True, output_loading_info=True
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ArtifactDamaged(f"{folder} cannot be read as the reranker '{spec.name}': {first_line(error)}") from error
    if about["missing_keys"]:
        missing = ", ".join(sorted(about["missing_keys"])[:3])
        raise ArtifactMismatch(f"{folder} is no cross-encoder: it lacks {missing}, which would be random")
    if model.config.num_labels > 2:
        raise ArtifactMismatch(f"{folder} tells {model.config.num_labels} labels apart: a cross-encoder for reranking has one or two")
    return model


def _max_tokens(config: Any, wanted: int) -> int:  # noqa: ANN401 - a configuration of transformers
    """Return how many tokens a pair may have; RoBERTa's positions begin behind the number of its padding token."""
    n_positions = getattr(config, "max_position_embeddings", wanted)
    return min(wanted, n_positions - (config.pad_token_id + 1 if "roberta" in config.model_type else 0))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep transformers from printing while it loads."""
    from transformers.utils import logging

    verbosity, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bar:
            logging.enable_progress_bar()
