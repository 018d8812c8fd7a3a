"""Forward passes of encoder-decoders, such as T5: the encoder reads the prompt, the decoder writes the text after its own first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .transformers_decoding import Batch, Ids, Model


@dataclass(slots=True)
class _Read:
    """Prompts that the encoder has read, and what the decoder keeps of its tokens.

    Attributes:
        states: the encoder's output, float (rows, longest, width).
        mask: int64 (rows, longest), 0 for padding.
        past: the decoder's keys and values; None: it has read nothing.
    """

    states: torch.Tensor
    mask: torch.Tensor
    past: Any = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows."""
        self.states, self.mask = self.states[indices], self.mask[indices]
        for cache in (self.past.self_attention_cache, self.past.cross_attention_cache):
            cache.batch_select_indices(indices)


@dataclass(slots=True, kw_only=True)
class EncoderDecoder(Model):
    """An encoder-decoder with the settings for its batches.

    Attributes:
        beginning: ids that the decoder reads before it writes.
    """

    pads_left: ClassVar[bool] = False  # encoders with absolute positions count from the left

    beginning: tuple[int, ...]

    def _logits(self, batch: Batch, last: int, past: Any = None, *, use_cache: bool = False) -> tuple[torch.Tensor, Any]:  # noqa: ANN401
        """Return the decoder's logits: of its beginning for a batch of prompts, of the newest tokens if ``past`` is what it has read."""
        read: _Read = past or self._encode(batch)
        beginning = torch.tensor([self.beginning] * len(batch.ids), device=self.device)
        output = self._decode(read, beginning if past is None else batch.ids, use_cache=use_cache)
        read.past = output.past_key_values
        return output.logits[:, -last:].float(), read

    @torch.inference_mode()
    def continuation_nlls(self, prompts: Sequence[Ids], continuations: Sequence[Ids]) -> list[float]:
        """Return the NLL of each continuation (nats) as the decoder's text, summed over its tokens."""
        nlls: dict[int, float] = {}
        texts = [[*prompt, *continuation] for prompt, continuation in zip(prompts, continuations, strict=True)]
        for numbers in self._scored_batches(texts, continuations):
            written = self._pad([[*self.beginning, *continuations[number]] for number in numbers]).ids
            logits = self._decode(self._encode(self._pad([prompts[number] for number in numbers])), written).logits[:, :-1].float()
            scored = (logits.gather(2, written[:, 1:, None])[:, :, 0] - logits.logsumexp(-1)).double().cpu()
            for number, row in zip(numbers, scored[:, len(self.beginning) - 1 :], strict=True):
                nlls[number] = -float(row[: len(continuations[number])].sum())
        return [nlls[number] for number in range(len(prompts))]

    def _encode(self, batch: Batch) -> _Read:
        return _Read(self.forward.get_encoder()(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state, batch.mask)

    def _decode(self, read: _Read, ids: torch.Tensor, *, use_cache: bool = False) -> Any:  # noqa: ANN401
        return self.forward(
            encoder_outputs=(read.states,),
            attention_mask=read.mask,
            decoder_input_ids=ids,
            past_key_values=read.past,
            use_cache=use_cache,
        )


def decoder_beginning(forward: Any) -> tuple[int, ...]:  # noqa: ANN401 - transformers has no types
    """Return the ids that a decoder reads first: its own start, and the token that some checkpoints force to come next."""
    settings = (forward.generation_config, forward.config)
    found = (
        next((token for each in settings if (token := getattr(each, name, None)) is not None), None)
        for name in ("decoder_start_token_id", "forced_bos_token_id")
    )
    return tuple(token for token in found if token is not None)
