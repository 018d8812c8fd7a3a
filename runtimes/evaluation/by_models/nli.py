"""Natural language inference (NLI) models, which judge whether a premise entails a hypothesis. Figures of different models do not compare.

    true                  google/t5_xxl_true_nli_mixture, the model of ALCE and Self-Reasoning: 11 billion weights
    small                 a model of 184 million weights, trained on long premises too (MultiNLI, FEVER, LingNLI, DocNLI)
    hf:NAME[@REVISION]    any other checkpoint on the Hugging Face hub
    FOLDER                a checkpoint on this machine

A checkpoint is of one of two kinds, according to its configuration: a sequence-to-sequence model that reads
``premise: … hypothesis: …`` and writes ``1`` for yes, as TRUE does (Honovich et al., 2022); or a classifier of pairs with a label called
entailment.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from wikidx.corpora.errors import ArtifactMismatch, InputError, MissingExtraError
from wikidx.indexer.embedding.batching import batches
from wikidx.indexer.encoders.loading import check_weights, n_positions, silent_transformers
from wikidx.indexer.machine.devices import chosen_device
from wikidx.indexer.machine.failures import device_errors, first_line
from wikidx.runtimes.execution.identity import folder_digest
from wikidx.runtimes.llms.options import EngineOptions

if TYPE_CHECKING:
    import torch

NLIS: Mapping[str, str] = {
    "true": "hf:google/t5_xxl_true_nli_mixture",
    "small": "hf:MoritzLaurer/DeBERTa-v3-base-mnli-fever-docnli-ling-2c",
}

_ENTAILMENT = frozenset({"entailment", "entails", "entailed", "entail"})
_YES = "1"
_MAX_NEW_TOKENS = 10  # as in ALCE's evaluator; the answer is one token and the end token
_CPU_BATCH_TOKENS = 2_048
_GPU_BATCH_TOKENS = 32_768


class Pair(NamedTuple):
    """A premise and a hypothesis."""

    premise: str
    hypothesis: str


class NLI(Protocol):
    """A model of natural language inference."""

    def about(self) -> dict[str, Any]:
        """Return the model's name and settings as JSON values."""
        ...

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the premise entails the hypothesis."""
        ...


class Checkpoint:
    """An NLI model whose configuration is read at once, and whose weights are loaded on first use.

    Args:
        name: one of ``NLIS``, ``hf:NAME[@REVISION]``, or a folder.
        options: of running it; dtype "auto" is float32, except bfloat16 for a sequence-to-sequence model on a GPU, as in ALCE's evaluator.
            Its revision is ignored: the revision is part of the name.

    Raises:
        InputError: there is no such checkpoint, it is of neither kind, or the device does not exist.
        ArtifactMismatch: not exactly one of its labels is called entailment.
        MissingExtraError: transformers is not installed.
    """

    def __init__(self, name: str, options: EngineOptions | None = None) -> None:
        self._name, self._options = name, options or EngineOptions()
        self._model, self._revision = _located(name)
        with _loading(name) as transformers:
            self._config = transformers.AutoConfig.from_pretrained(self._model, revision=self._revision)
        self._is_writing = _is_writing(self._config, name)
        self._labels = {int(number): str(label) for number, label in self._config.id2label.items()}
        self._label = None if self._is_writing else entailment_label(self._labels, self._model)
        self._device = chosen_device(self._options.device)
        self._batch_tokens = self._options.batch_tokens or (_CPU_BATCH_TOKENS if self._device == "cpu" else _GPU_BATCH_TOKENS)
        self._tokenizer: Any = None
        self._network: Any = None
        self._n_cut = 0

    def _open(self) -> None:
        auto = "bfloat16" if self._is_writing and self._device != "cpu" else "float32"
        with _loading(self._name) as transformers:
            kind = transformers.AutoModelForSeq2SeqLM if self._is_writing else transformers.AutoModelForSequenceClassification
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

    def about(self) -> dict[str, Any]:
        """Return the opened model, and for a classifier the number of pairs truncated, mostly in the premise, to its maximum length."""
        if self._network is None:
            return {"model": self._name, "opened": False}
        dtype = str(self._network.dtype).removeprefix("torch.")
        kind = f"writes {_YES} for entailment" if self._label is None else f"the likeliest label is '{self._labels[self._label]}'"
        about = {"model": self._model, "revision": self._revision, "kind": kind, "device": self._device, "dtype": dtype}
        return about | ({"max_tokens": None} if self._is_writing else {"max_tokens": self._max_tokens(), "pairs_cut": self._n_cut})

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the model generates "1", or entailment is its likeliest label.

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

        encoded = self._encoded(pairs)
        found = np.zeros(len(pairs), dtype=bool)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]], dtype=np.int64)
        with device_errors(self._device, f"a batch of {self._batch_tokens} tokens", "set fewer with batch_tokens"), torch.inference_mode():
            for which in batches(lengths, self._batch_tokens):
                rows = {name: [of_pairs[number] for number in which] for name, of_pairs in encoded.items()}
                found[which] = self._verdicts(self._tokenizer.pad(rows, return_tensors="pt", verbose=False).to(self._device))
        return found.tolist()

    def _encoded(self, pairs: Sequence[Pair]) -> dict[str, list[list[int]]]:
        """Return the tokens of pairs, under transformers' names; sequence-to-sequence models get untruncated premises."""
        if self._is_writing:
            return dict(self._tokenizer([f"premise: {pair.premise} hypothesis: {pair.hypothesis}" for pair in pairs], verbose=False))
        texts, most = ([pair.premise for pair in pairs], [pair.hypothesis for pair in pairs]), self._max_tokens()
        encoded = self._tokenizer(*texts, verbose=False)
        if n_cut := sum(len(ids) > most for ids in encoded["input_ids"]):
            encoded = self._tokenizer(*texts, verbose=False, truncation="longest_first", max_length=most)
            self._n_cut += n_cut
        return dict(encoded)

    def _verdicts(self, batch: dict[str, torch.Tensor]) -> list[bool]:
        if self._is_writing:
            ids = self._network.generate(**batch, max_new_tokens=_MAX_NEW_TOKENS, do_sample=False, num_beams=1)
            return [text == _YES for text in self._tokenizer.batch_decode(ids, skip_special_tokens=True)]
        return [label == self._label for label in self._network(**batch).logits.argmax(dim=-1).tolist()]

    def _max_tokens(self) -> int:
        """Return the maximum number of tokens of a pair for a classifier."""
        limit = int(self._tokenizer.model_max_length)
        return min(limit, n_positions(self._config.to_dict()) or limit)


@contextlib.contextmanager
def _loading(name: str) -> Iterator[Any]:
    """Yield transformers, silenced, and translate its exceptions."""
    try:
        import torch  # noqa: F401
        import transformers
        from safetensors import SafetensorError
    except ImportError as error:
        raise MissingExtraError(f"the NLI model '{name}'", "hf") from error
    try:
        with silent_transformers():
            yield transformers
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        raise InputError(f"'{name}' is no NLI checkpoint that transformers can load: {first_line(error)}") from error


def entailment_label(labels: Mapping[int, str], model: str) -> int:
    """Return the number of the label called entailment, in any spelling.

    Raises:
        ArtifactMismatch: there is not exactly one such label, or no other label.
    """
    found = [number for number, name in labels.items() if re.sub(r"[^a-z]", "", name.casefold()) in _ENTAILMENT]
    if len(found) != 1 or len(labels) < 2:
        told = ", ".join(repr(labels[number]) for number in sorted(labels))
        raise ArtifactMismatch(f"'{model}' has the labels {told}: an NLI model has one called entailment, and others")
    return found[0]


def _located(name: str) -> tuple[str, str | None]:
    """Return the folder or repository of a name, and its revision."""
    named = NLIS.get(name, name)
    if named.startswith("hf:"):
        model, _, revision = named.removeprefix("hf:").partition("@")
        return model, revision or None
    if not Path(named).is_dir():
        known = ", ".join(f"'{one}'" for one in NLIS)
        raise InputError(f"there is no NLI model '{name}': say {known}, hf:NAME for one of Hugging Face's hub, or a checkpoint's folder")
    return named, None


def _is_writing(config: Any, name: str) -> bool:  # noqa: ANN401 - a configuration of transformers
    architectures = getattr(config, "architectures", None) or ()
    if any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
        return False
    if config.is_encoder_decoder and any(architecture.endswith("ForConditionalGeneration") for architecture in architectures):
        return True
    told = ", ".join(architectures) or "nothing"
    raise InputError(f"'{name}' is no NLI checkpoint: it is made for {told}, not for sequence classification or conditional generation")
