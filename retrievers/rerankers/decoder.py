"""Decoders as rerankers: language models that judge a passage by the probability of yes against no, in Qwen3-Reranker's form.

The prompts are those of the model card of Qwen/Qwen3-Reranker-0.6B (Zhang et al., 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from wikidx.base.errors import ArtifactMismatch
from wikidx.indexer.networks.checkpoints import HubCheckpoint
from wikidx.indexer.networks.module_folders import SETTINGS, default_prompt, optional_json
from wikidx.indexer.networks.network import Ids
from wikidx.indexer.networks.tokenizers import checkpoint_tokenizer

from .checkpoint import RerankerNetwork, RerankerSpec

if TYPE_CHECKING:
    import torch

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"

_START = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_MAX_TOKENS = 8192


class Decoder(RerankerNetwork):
    """A decoder on a device; thread-safe. A score is the probability of yes, if the answer is yes or no.

    Args:
        spec: the checkpoint. Its ``instruction`` says when a passage is relevant; a passage is truncated to ``max_tokens`` of the prompt.
        device: "auto" (the first GPU, else the CPU) or the name of a torch device.

    Raises:
        ArtifactMismatch: the tokenizer has no token for yes or no, or the network reads too few tokens for the prompt.
        IdxError: see ``RerankerNetwork``.
    """

    def __init__(self, spec: RerankerSpec, device: str = "cpu") -> None:
        super().__init__("AutoModelForCausalLM", spec, device, pads_left=True)
        folder = self.folder
        self._tokenizer = checkpoint_tokenizer(folder, spec.name)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._yes, self._no = (self._tokenizer.token_to_id(answer) for answer in ("yes", "no"))
        if self._yes is None or self._no is None:
            raise ArtifactMismatch(
                f"the tokenizer in {folder} has no token for yes or no: a decoder for reranking answers with one of them"
            )
        self._instruction = spec.instruction or default_prompt(optional_json(folder, SETTINGS, spec.name)) or INSTRUCTION
        self._start, self._end = self._tokens([_START, _END])
        self._budget = (self.max_tokens or spec.max_tokens or _MAX_TOKENS) - len(self._start) - len(self._end)
        if self._budget < 1:
            raise ArtifactMismatch(f"the network in {folder} reads {self.max_tokens} tokens: the prompt alone has more")

    def _split(self, queries: Sequence[str], texts: Sequence[str]) -> tuple[list[Ids], None]:
        pairs = zip(queries, texts, strict=True)
        turns = [f"<Instruct>: {self._instruction}\n<Query>: {query}\n<Document>: {text}" for query, text in pairs]
        return [[*self._start, *ids[: self._budget], *self._end] for ids in self._tokens(turns)], None

    def _tokens(self, texts: list[str]) -> list[Ids]:
        return [text.ids for text in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _relevance(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        logits: torch.Tensor = self.module(**batch, logits_to_keep=1, use_cache=False).logits[:, -1].float()
        return (logits[:, self._yes] - logits[:, self._no]).sigmoid()


QWEN3 = partial(Decoder, RerankerSpec(name="qwen3", checkpoint=HubCheckpoint("Qwen/Qwen3-Reranker-0.6B", "main"), max_tokens=_MAX_TOKENS))
