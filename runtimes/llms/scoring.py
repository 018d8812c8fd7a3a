"""Checkpoints that score texts and write none: encoders, by the inner product of mean vectors (Contriever), and classifiers, by a logit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wikidx.base.errors import require_packages
from wikidx.base.machine.devices import encoder_device, resolve_device
from wikidx.base.machine.failures import device_errors
from wikidx.indexer.networks.loading import check_weights, encoder_class, n_positions, opening_by_transformers
from wikidx.runtimes.errors import LLMError

from .base import Call, Capabilities, Deliver, Reply, Score, Scores
from .checkpoint import CheckpointLLM
from .gguf_files import find_gguf
from .options import EngineOptions

if TYPE_CHECKING:
    import torch

_CLASSIFIER = "ForSequenceClassification"
_ENCODERS = ("EncoderModel", "ForMaskedLM", "Contriever", "BertModel", "DistilBertModel", "MPNetModel", "RobertaModel")
_MAX_TOKENS = 512  # of a checkpoint that states no length
_BATCH = 32  # texts


def scores_texts(model: str, revision: str | None = None) -> bool:
    """Return whether a checkpoint is an encoder or a classifier.

    Raises:
        InputError: the checkpoint does not exist or cannot be read.
        MissingExtraError: transformers is not installed.
    """
    require_packages(f"the model 'hf:{model}'", "llm", "torch", "transformers")
    if find_gguf(model) is not None:
        return False
    with opening_by_transformers(model, "checkpoint") as transformers:
        config = transformers.AutoConfig.from_pretrained(model, revision=revision)
    return str((config.architectures or [""])[0]).endswith((_CLASSIFIER, *_ENCODERS))


class ScoringEngine(CheckpointLLM):
    """An encoder or a classifier with one label in this process. Texts are truncated to what it reads.

    Args:
        model: a directory, or a repository on the Hugging Face hub.
        options: options for loading and running the checkpoint.

    Raises:
        InputError: the checkpoint cannot be loaded.
        ArtifactMismatch: it lacks weights, such as those of the classifier.
    """

    def __init__(self, model: str, *, options: EngineOptions | None = None) -> None:
        options = options or EngineOptions()
        self._device = resolve_device(encoder_device(options.device))
        with opening_by_transformers(model, "checkpoint") as transformers:
            tokenizer = transformers.AutoTokenizer.from_pretrained(model, revision=options.revision)
            config = transformers.AutoConfig.from_pretrained(model, revision=options.revision)
            self._classifies = str(config.architectures[0]).endswith(_CLASSIFIER)
            loader = getattr(transformers, f"AutoModel{_CLASSIFIER}" if self._classifies else encoder_class(config.to_dict()))
            dtype = "float32" if options.dtype == "auto" else options.dtype
            network, report = loader.from_pretrained(model, revision=options.revision, dtype=dtype, output_loading_info=True)
        check_weights(network, report, model)
        self._network: Any = network.eval().to(self._device)
        super().__init__(
            f"hf:{model}", tokenizer, top_logprobs=0, structured=frozenset(), context=n_positions(config.to_dict()) or _MAX_TOKENS
        )
        self.capabilities = Capabilities(context=self.capabilities.context)

    def close(self) -> None:
        """Release the network."""
        self._is_closed = True
        self.__dict__.pop("_network", None)

    def _run(self, calls: Sequence[Call], deliver: Deliver) -> list[Reply | LLMError]:
        with device_errors(self._device, f"a batch of {_BATCH} texts", "name another one with --device"):
            return [self._score(call) if isinstance(call, Score) else self._refuse(call) for call in calls]

    def _refuse(self, call: Call) -> LLMError:
        return LLMError(f"{self.name} scores texts and writes none: give the role '{call.role}' a language model")

    def _score(self, call: Score) -> Reply:
        import torch

        with torch.inference_mode():
            scored = self._classify(call) if self._classifies else self._compare(call)
        return Reply(Scores(values=tuple(scored)), sum(map(self.count_tokens, (call.prompt, *call.texts))))

    def _classify(self, call: Score) -> list[float]:
        inputs = [(call.prompt, text) for text in call.texts] if call.prompt else call.texts
        return [float(logits[-1]) for batch in _batches(inputs) for logits in self._network(**self._read(batch)).logits]

    def _compare(self, call: Score) -> list[float]:
        import torch

        query, *texts = torch.cat([self._embed(batch) for batch in _batches((call.prompt, *call.texts))])
        return [float(query @ text) for text in texts]

    def _embed(self, texts: list[str]) -> torch.Tensor:
        """Return the mean of the tokens' vectors of each text, float64 (texts, width)."""
        read = self._read(texts)
        mask = read["attention_mask"][..., None]
        mean: torch.Tensor = (self._network(**read).last_hidden_state.double() * mask).sum(1) / mask.sum(1)
        return mean

    def _read(self, texts: list[Any]) -> Any:  # noqa: ANN401 - a batch of transformers
        read = self._tokenizer(texts, padding=True, truncation=True, max_length=self.capabilities.context, return_tensors="pt")
        return read.to(self._device)


def _batches(inputs: Sequence[Any]) -> list[list[Any]]:
    return [list(inputs[start : start + _BATCH]) for start in range(0, len(inputs), _BATCH)]
