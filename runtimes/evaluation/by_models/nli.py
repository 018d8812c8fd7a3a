"""Models of natural language inference (NLI), which tell whether a premise entails a hypothesis. Figures by one are not figures by another.

    true                  google/t5_xxl_true_nli_mixture, which ALCE's and Self-Reasoning's figures are by: 11 billion weights
    small                 a model of 184 million weights that was trained on long premises too (MultiNLI, FEVER, LingNLI, DocNLI)
    hf:NAME[@REVISION]    any other checkpoint of Hugging Face's hub
    FOLDER                a checkpoint on this machine

A checkpoint is one of two kinds, told apart by its configuration: a sequence-to-sequence model that reads
``premise: … hypothesis: …`` and writes ``1`` for yes, as TRUE does (Honovich et al., 2022); or a classifier of pairs, one of whose labels
is called entailment.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

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
_MAX_NEW_TOKENS = 10  # as in ALCE's evaluator; the answer itself is one token and the end
_CPU_BATCH_TOKENS = 2_048
_GPU_BATCH_TOKENS = 32_768

Encoded = dict[str, list[list[int]]]
"""Token ids of texts and what belongs to them, by the names that transformers gives; a list for each text."""


class Pair(NamedTuple):
    """A premise, and what it may entail."""

    premise: str
    hypothesis: str


class NLI(Protocol):
    """A model of natural language inference."""

    def about(self) -> dict[str, Any]:
        """Return which model it is and how it is read, as JSON has it."""
        ...

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the premise entails the hypothesis."""
        ...


class Checkpoint(NamedTuple):
    """A loaded checkpoint.

    Attributes:
        name: of the repository or folder.
        revision: the hub's commit, or a checksum of the folder's files; None: unknown.
        tokenizer, network: of transformers; the network is on the device.
        device: its name.
        batch_tokens: tokens of a batch, padding included.
    """

    name: str
    revision: str | None
    tokenizer: Any
    network: Any
    device: str
    batch_tokens: int

    def about(self, kind: str) -> dict[str, Any]:
        """Return what both kinds of models have to say."""
        dtype = str(self.network.dtype).removeprefix("torch.")
        return {"model": self.name, "revision": self.revision, "kind": kind, "device": self.device, "dtype": dtype}

    def encoded(self, *texts: list[str], max_tokens: int | None = None) -> Encoded:
        """Return the tokens of texts, or of pairs of texts; nothing is padded, and nothing cut unless ``max_tokens`` says where."""
        cut = {} if max_tokens is None else {"truncation": "longest_first", "max_length": max_tokens}
        return dict(self.tokenizer(*texts, verbose=False, **cut))

    def verdicts(self, encoded: Encoded, verdicts_of: Callable[[dict[str, torch.Tensor]], list[bool]]) -> list[bool]:
        """Return the verdicts on texts, which ``verdicts_of`` finds for a batch of padded tokens.

        Raises:
            IdxError: the device has too little memory, or fails otherwise.
        """
        import torch

        found = np.zeros(len(encoded["input_ids"]), dtype=bool)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]], dtype=np.int64)
        padding = {"input_ids": self.network.config.pad_token_id or 0}
        with device_errors(self.device, f"a batch of {self.batch_tokens} tokens", "set fewer with batch_tokens"), torch.inference_mode():
            for which in batches(lengths, self.batch_tokens):
                batch = {name: _padded([rows[number] for number in which], padding.get(name, 0)) for name, rows in encoded.items()}
                found[which] = verdicts_of({name: torch.from_numpy(rows).to(self.device) for name, rows in batch.items()})
        return [bool(verdict) for verdict in found]


class WritingNLI:
    """A sequence-to-sequence model that writes its verdict, as TRUE does."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def about(self) -> dict[str, Any]:
        """Return which model it is."""
        return {**self._checkpoint.about(f"writes {_YES} for entailment"), "max_tokens": None}

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the model writes "1"; no premise is cut."""
        if not pairs:
            return []
        texts = [f"premise: {pair.premise} hypothesis: {pair.hypothesis}" for pair in pairs]
        return self._checkpoint.verdicts(self._checkpoint.encoded(texts), self._written)

    def _written(self, batch: dict[str, torch.Tensor]) -> list[bool]:
        ids = self._checkpoint.network.generate(**batch, max_new_tokens=_MAX_NEW_TOKENS, do_sample=False, num_beams=1)
        return [text == _YES for text in self._checkpoint.tokenizer.batch_decode(ids, skip_special_tokens=True)]


class ClassifyingNLI:
    """A classifier of pairs: entailment is its likeliest label, or is not.

    Raises:
        ArtifactMismatch: not exactly one of its labels is called entailment.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        labels = {int(number): str(name) for number, name in checkpoint.network.config.id2label.items()}
        self._label = entailment_label(labels, checkpoint.name)
        self._label_name = labels[self._label]
        self._max_tokens = _max_tokens(checkpoint)
        self._n_cut = 0

    def about(self) -> dict[str, Any]:
        """Return which model it is, and how many pairs were cut to what it reads so far: the longer text of each, mostly the premise."""
        about = self._checkpoint.about(f"the likeliest label is '{self._label_name}'")
        return {**about, "max_tokens": self._max_tokens, "pairs_cut": self._n_cut}

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether entailment is the likeliest label."""
        if not pairs:
            return []
        texts = [pair.premise for pair in pairs], [pair.hypothesis for pair in pairs]
        encoded = self._checkpoint.encoded(*texts)
        if n_cut := sum(len(ids) > self._max_tokens for ids in encoded["input_ids"]):
            encoded = self._checkpoint.encoded(*texts, max_tokens=self._max_tokens)
            self._n_cut += n_cut
        return self._checkpoint.verdicts(encoded, self._labelled)

    def _labelled(self, batch: dict[str, torch.Tensor]) -> list[bool]:
        likeliest: list[int] = self._checkpoint.network(**batch).logits.argmax(dim=-1).tolist()
        return [label == self._label for label in likeliest]


def open_nli(name: str, options: EngineOptions | None = None) -> NLI:
    """Open an NLI model.

    Args:
        name: one of ``NLIS``, ``hf:NAME[@REVISION]``, or a folder.
        options: how it is run; dtype "auto" is float32, but for a model that writes bfloat16 on a GPU, as in ALCE's evaluator.

    Raises:
        InputError: there is no such checkpoint, it cannot be read or is of neither kind, or the device is not there.
        ArtifactMismatch: its weights are not all there, or it has no label for entailment.
        MissingExtraError: transformers is not installed.
        IdxError: the device has too little memory.
    """
    options = options or EngineOptions()
    model, revision, config = _found(name, options.revision)
    is_writing = _is_writing(config, name)
    device = chosen_device(options.device)
    with _loading(name) as transformers:
        dtype = options.dtype if options.dtype != "auto" else "bfloat16" if is_writing and device != "cpu" else "float32"
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, revision=revision)
        network = _network(model, revision, dtype, is_writing=is_writing)
    with device_errors(device, f"the NLI model '{name}'", "take a smaller one, or dtype bfloat16"):
        network = network.eval().to(device)
    found = folder_digest(Path(model)) if Path(model).is_dir() else getattr(config, "_commit_hash", None) or revision
    batch_tokens = options.batch_tokens or (_CPU_BATCH_TOKENS if device == "cpu" else _GPU_BATCH_TOKENS)
    checkpoint = Checkpoint(model, found, tokenizer, network, device, batch_tokens)
    return WritingNLI(checkpoint) if is_writing else ClassifyingNLI(checkpoint)


class LazyNLI:
    """An NLI model that is found at once, by its configuration, and opened when it is first asked about a pair.

    Args:
        name, options: as ``open_nli`` takes them.

    Raises:
        InputError: there is no such checkpoint, it is of neither kind, or the device is not there.
        ArtifactMismatch: it has no label for entailment.
        MissingExtraError: transformers is not installed.
    """

    def __init__(self, name: str, options: EngineOptions | None = None) -> None:
        self._name, self._options = name, options or EngineOptions()
        self._opened: NLI | None = None
        _found(name, self._options.revision)
        chosen_device(self._options.device)

    def about(self) -> dict[str, Any]:
        """Return which model it is; only its name as long as it was not opened."""
        return {"model": self._name, "opened": False} if self._opened is None else self._opened.about()

    def entails(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for each pair whether the premise entails the hypothesis; raises as ``open_nli`` does."""
        if not pairs:
            return []
        self._opened = self._opened or open_nli(self._name, self._options)
        return self._opened.entails(pairs)


def _found(name: str, revision: str | None) -> tuple[str, str | None, Any]:
    """Return the folder or the repository that is meant, its revision, and its configuration, which is of either kind."""
    model, revision = _located(name, revision)
    with _loading(name) as transformers:
        config = transformers.AutoConfig.from_pretrained(model, revision=revision)
    if not _is_writing(config, name):
        entailment_label({int(number): str(label) for number, label in config.id2label.items()}, model)
    return model, revision, config


@contextlib.contextmanager
def _loading(name: str) -> Iterator[Any]:
    """Give transformers, silent, and translate what it raises."""
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


def _network(model: str, revision: str | None, dtype: str, *, is_writing: bool) -> Any:  # noqa: ANN401 - transformers has no types
    import transformers

    kind = transformers.AutoModelForSeq2SeqLM if is_writing else transformers.AutoModelForSequenceClassification
    network, report = kind.from_pretrained(
        model, revision=revision, dtype=dtype, trust_remote_code=False, ignore_mismatched_sizes=True, output_loading_info=True
    )
    check_weights(network, report, f"'{model}'")
    return network


def entailment_label(labels: Mapping[int, str], model: str) -> int:
    """Return the number of the one label that is called entailment, however it is written.

    Raises:
        ArtifactMismatch: there is none, or there are several, or nothing besides it.
    """
    found = [number for number, name in labels.items() if re.sub(r"[^a-z]", "", name.casefold()) in _ENTAILMENT]
    if len(found) != 1 or len(labels) < 2:
        told = ", ".join(repr(labels[number]) for number in sorted(labels))
        raise ArtifactMismatch(f"'{model}' has the labels {told}: an NLI model has one called entailment, and others")
    return found[0]


def _located(name: str, revision: str | None) -> tuple[str, str | None]:
    """Return the folder or the repository that is meant, and its revision."""
    named = NLIS.get(name, name)
    if named.startswith("hf:"):
        model, _, said = named.removeprefix("hf:").partition("@")
        return model, said or revision
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


def _max_tokens(checkpoint: Checkpoint) -> int:
    """Return how many tokens of a pair the network reads."""
    limit = int(checkpoint.tokenizer.model_max_length)
    return min(limit, n_positions(checkpoint.network.config.to_dict()) or limit)


def _padded(rows: Sequence[Sequence[int]], padding: int) -> NDArray[np.int64]:
    """Return rows as one array, the shorter ones filled up behind."""
    array = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array
