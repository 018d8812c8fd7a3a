"""Natural language inference (NLI) models, which judge whether a premise entails a hypothesis. Do not compare figures of different models.

    true                  google/t5_xxl_true_nli_mixture, the model of ALCE and Self-Reasoning: 11 billion parameters
    small                 a model with 184 million parameters, trained also on long premises (MultiNLI, FEVER, LingNLI, DocNLI)
    hf:NAME[@REVISION]    any other checkpoint on the Hugging Face hub
    FOLDER                a local checkpoint

A checkpoint is of one of two kinds, which its configuration determines:

- a sequence-to-sequence model, which reads ``premise: … hypothesis: …`` and generates ``1`` for entailment, as TRUE does (Honovich et al.,
  2022);
- a classifier of pairs, with a label called entailment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from wikidx.base.errors import ArtifactMismatch, InputError, require_packages
from wikidx.base.machine.devices import resolve_device
from wikidx.base.machine.failures import device_errors
from wikidx.indexer.networks.batching import batches
from wikidx.indexer.networks.loading import check_weights, n_positions, opening_by_transformers
from wikidx.runtimes.execution.identity import folder_digest
from wikidx.runtimes.llms.options import EngineOptions

if TYPE_CHECKING:
    import torch

NLI_MODELS: Mapping[str, str] = {
    "true": "hf:google/t5_xxl_true_nli_mixture",
    "small": "hf:MoritzLaurer/DeBERTa-v3-base-mnli-fever-docnli-ling-2c",
}

_ENTAILMENT = frozenset({"entailment", "entails", "entailed", "entail"})
_YES = "1"
_MAX_NEW_TOKENS = 10  # as in ALCE's evaluator
_CPU_BATCH_TOKENS = 2_048
_GPU_BATCH_TOKENS = 32_768


class Pair(NamedTuple):
    """A premise and a hypothesis."""

    premise: str
    hypothesis: str


class NLI(Protocol):
    """A natural language inference model."""

    def metadata(self) -> dict[str, Any]:
        """Return the model's name and settings as JSON values."""
        ...

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the premise entails the hypothesis."""
        ...


class Checkpoint:
    """An NLI model from a checkpoint. The configuration is read immediately, the weights on first use.

    Args:
        name: a key of ``NLI_MODELS``, ``hf:NAME[@REVISION]``, or a folder.
        options: engine options; the field ``revision`` is ignored. The dtype "auto" is bfloat16 for a sequence-to-sequence model on a GPU,
            as in ALCE's evaluator, else float32.

    Raises:
        InputError: the checkpoint does not exist or is of neither kind, or the device does not exist.
        ArtifactMismatch: a classifier's labels are unsuitable; see ``entailment_label``.
        MissingExtraError: torch, transformers or safetensors is not installed.
    """

    def __init__(self, name: str, options: EngineOptions | None = None) -> None:
        self._name, self._options = name, options or EngineOptions()
        self._model, self._revision = _locate(name)
        require_packages(f"the NLI model '{name}'", "llm", "torch", "transformers", "safetensors")
        with opening_by_transformers(self._name, "NLI checkpoint") as transformers:
            self._config = transformers.AutoConfig.from_pretrained(self._model, revision=self._revision)
        self._is_generative = _is_generative(self._config, name)
        self._labels = {int(number): str(label) for number, label in self._config.id2label.items()}
        self._label = None if self._is_generative else entailment_label(self._labels, self._model)
        self._device = resolve_device(self._options.device)
        self._batch_tokens = self._options.batch_tokens or (_CPU_BATCH_TOKENS if self._device == "cpu" else _GPU_BATCH_TOKENS)
        self._tokenizer: Any = None
        self._network: Any = None
        self._n_truncated = 0

    def _open(self) -> None:
        auto = "bfloat16" if self._is_generative and self._device != "cpu" else "float32"
        with opening_by_transformers(self._name, "NLI checkpoint") as transformers:
            kind = transformers.AutoModelForSeq2SeqLM if self._is_generative else transformers.AutoModelForSequenceClassification
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(self._model, revision=self._revision)
            network, report = kind.from_pretrained(
                self._model,
                revision=self._revision,
                dtype=auto if self._options.dtype == "auto" else self._options.dtype,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
            check_weights(network, report, f"'{self._model}'")
        if Path(self._model).is_dir():
            self._revision = folder_digest(Path(self._model))
        else:
            self._revision = getattr(self._config, "_commit_hash", None) or self._revision
        with device_errors(self._device, f"the NLI model '{self._name}'", "take a smaller one, or dtype bfloat16"):
            self._network = network.eval().to(self._device)

    def metadata(self) -> dict[str, Any]:
        """Return the model's properties; for a classifier, also the maximum length and the number of truncated pairs.

        Before the first use, only the model's name is known.
        """
        if self._network is None:
            return {"model": self._name, "opened": False}
        dtype = str(self._network.dtype).removeprefix("torch.")
        kind = f"writes {_YES} for entailment" if self._label is None else f"the likeliest label is '{self._labels[self._label]}'"
        metadata = {"model": self._model, "revision": self._revision, "kind": kind, "device": self._device, "dtype": dtype}
        return metadata | (
            {"max_tokens": None} if self._is_generative else {"max_tokens": self._max_tokens(), "pairs_truncated": self._n_truncated}
        )

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return True for each pair that the model judges as entailment: it generates "1", or entailment is its likeliest label.

        Raises:
            InputError: the model's weights cannot be read.
            ArtifactMismatch: weights are missing.
            IdxError: the device has too little memory, or fails otherwise.
        """
        if not pairs:
            return []
        if self._network is None:
            self._open()
        import torch

        encoded = self._encode(pairs)
        entailed = np.zeros(len(pairs), dtype=bool)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]], dtype=np.int64)
        with (
            device_errors(self._device, f"a batch of {self._batch_tokens} tokens", "use a smaller model, or --device cpu"),
            torch.inference_mode(),
        ):
            for indices in batches(lengths, self._batch_tokens):
                rows = {name: [values[number] for number in indices] for name, values in encoded.items()}
                entailed[indices] = self._predict(self._tokenizer.pad(rows, return_tensors="pt", verbose=False).to(self._device))
        return entailed.tolist()

    def _encode(self, pairs: Sequence[Pair]) -> dict[str, list[list[int]]]:
        """Return the tokenizer's output for the pairs; only a classifier's pairs are truncated."""
        if self._is_generative:
            return dict(self._tokenizer([f"premise: {pair.premise} hypothesis: {pair.hypothesis}" for pair in pairs], verbose=False))
        texts, limit = ([pair.premise for pair in pairs], [pair.hypothesis for pair in pairs]), self._max_tokens()
        encoded = self._tokenizer(*texts, verbose=False)
        if n_truncated := sum(len(ids) > limit for ids in encoded["input_ids"]):
            encoded = self._tokenizer(*texts, verbose=False, truncation="longest_first", max_length=limit)
            self._n_truncated += n_truncated
        return dict(encoded)

    def _predict(self, batch: dict[str, torch.Tensor]) -> list[bool]:
        if self._is_generative:
            ids = self._network.generate(**batch, max_new_tokens=_MAX_NEW_TOKENS, do_sample=False, num_beams=1)
            return [text == _YES for text in self._tokenizer.batch_decode(ids, skip_special_tokens=True)]
        return [label == self._label for label in self._network(**batch).logits.argmax(dim=-1).tolist()]

    def _max_tokens(self) -> int:
        """Return a classifier's maximum number of tokens per pair."""
        limit = int(self._tokenizer.model_max_length)
        return min(limit, n_positions(self._config.to_dict()) or limit)


def entailment_label(labels: Mapping[int, str], model: str) -> int:
    """Return the number of the entailment label; case, punctuation and inflection of the labels are ignored.

    Raises:
        ArtifactMismatch: none or several of the labels mean entailment, or there is no other label.
    """
    numbers = [number for number, name in labels.items() if re.sub(r"[^a-z]", "", name.casefold()) in _ENTAILMENT]
    if len(numbers) != 1 or len(labels) < 2:
        names = ", ".join(repr(labels[number]) for number in sorted(labels))
        raise ArtifactMismatch(f"'{model}' has the labels {names}: an NLI model has one called entailment, and others")
    return numbers[0]


def _locate(name: str) -> tuple[str, str | None]:
    """Return the folder or the hub's repository that a name denotes, and the revision; None: the default revision."""
    location = NLI_MODELS.get(name, name)
    if location.startswith("hf:"):
        model, _, revision = location.removeprefix("hf:").partition("@")
        return model, revision or None
    if not Path(location).is_dir():
        known = ", ".join(f"'{model}'" for model in NLI_MODELS)
        raise InputError(f"there is no NLI model '{name}': use {known}, hf:NAME for one of Hugging Face's hub, or a checkpoint's folder")
    return location, None


def _is_generative(config: Any, name: str) -> bool:  # noqa: ANN401 - a configuration of transformers
    architectures = getattr(config, "architectures", None) or ()
    if any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
        return False
    if config.is_encoder_decoder and any(architecture.endswith("ForConditionalGeneration") for architecture in architectures):
        return True
    names = ", ".join(architectures) or "nothing"
    raise InputError(f"'{name}' is no NLI checkpoint: it is made for {names}, not for sequence classification or conditional generation")
