"""Forward passes over left-padded batches, on token ids: generate, score the next token, score a continuation.

Log-probabilities are float32, of the model's own distribution: before temperature and constraints. Each row samples with a random generator
of its own, so that its samples do not depend on the other rows. Rounding does: scores in different batches are equal within about 1e-5, and
a text may differ where two tokens are that close.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from .base import Decoding

Ids = Sequence[int]


@dataclass(slots=True, kw_only=True)
class Row:
    """A text being generated.

    Attributes:
        prompt: ids of the prompt.
        decoding: decoding parameters; without a seed sampling is not reproducible.
        choices: the only permitted texts, as ids; empty: unconstrained.
        ends: tells whether the generated ids contain a stop text.
        generated, logprobs: ids generated so far, with log-probabilities.
        finish: as in ``Gen``; None: not finished.
    """

    prompt: Ids
    decoding: Decoding
    choices: tuple[tuple[int, ...], ...] = ()
    ends: Callable[[Ids], bool] = lambda ids: False
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Literal["stop", "length"] | None = None


class _Batch(NamedTuple):
    """Left-padded ids and their attention mask, both int64 (rows, longest)."""

    ids: torch.Tensor
    mask: torch.Tensor


class Model(NamedTuple):
    """A causal language model with the settings of its batches.

    Attributes:
        forward: transformers' model.
        takes: the optional arguments that it supports.
        end: token ids that end a text.
        padding: id of the padding token.
        device: of the model.
    """

    forward: Any
    takes: frozenset[str]
    end: frozenset[int]
    padding: int
    device: str

    def _padded(self, rows: Sequence[Ids]) -> _Batch:
        longest = max(map(len, rows))
        ids = [[self.padding] * (longest - len(row)) + list(row) for row in rows]
        mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
        return _Batch(torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device))

    def _logits(self, batch: _Batch, last: int, past: Any = None, *, keeps: bool = False) -> tuple[torch.Tensor, Any]:  # noqa: ANN401
        """Return the logits of the ``last`` positions, float32 (rows, last, vocabulary), and with ``keeps`` the key-value cache.

        The batch's mask also covers the past.
        """
        n_new = batch.ids.shape[1]
        positions = (batch.mask.cumsum(1) - 1).clamp(min=0)[:, -n_new:]
        optional = {"position_ids": positions, "logits_to_keep": last}
        arguments = {name: value for name, value in optional.items() if name in self.takes}
        output = self.forward(input_ids=batch.ids, attention_mask=batch.mask, past_key_values=past, use_cache=keeps, **arguments)
        return output.logits[:, -last:].float(), output.past_key_values

    @torch.inference_mode()
    def next_token_probabilities(self, prompts: Sequence[Ids]) -> torch.Tensor:
        """Return the probabilities of the token after each prompt, float32 (prompts, vocabulary)."""
        return self._logits(self._padded(prompts), 1)[0][:, 0].softmax(-1).cpu()

    @torch.inference_mode()
    def continuation_nlls(self, prompts: Sequence[Ids], continuations: Sequence[Ids]) -> list[float]:
        """Return the NLL of each continuation (nats), summed over its tokens."""
        batch = self._padded([[*prompt, *continuation] for prompt, continuation in zip(prompts, continuations, strict=True)])
        longest = max(1, *map(len, continuations))
        logprobs = self._logits(batch, longest + 1)[0][:, :-1].log_softmax(-1)
        scored = logprobs.gather(2, batch.ids[:, -longest:, None])[:, :, 0].double().cpu()
        return [-float(row[longest - len(continuation) :].sum()) for row, continuation in zip(scored, continuations, strict=True)]

    @torch.inference_mode()
    def generate(self, rows: Sequence[Row]) -> None:
        """Generate all rows until they finish."""
        drawn = {id(row): row.decoding.seed for row in rows if row.decoding.temperature}
        generators = {row: torch.Generator().manual_seed(secrets.randbits(63) if seed is None else seed) for row, seed in drawn.items()}
        batch, past, open_rows = self._padded([row.prompt for row in rows]), None, list(rows)
        while True:
            logits, past = self._logits(batch, 1, past, keeps=True)
            logits = logits[:, 0]
            tokens = _next_tokens(open_rows, logits, generators, self.end)
            chosen = torch.tensor(tokens, device=self.device)[:, None]
            logprobs = logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist()
            for row, token, logprob in zip(open_rows, tokens, logprobs, strict=True):
                if row.finish is None:
                    _take(row, token, logprob, self.end)
            stay = [number for number, row in enumerate(open_rows) if row.finish is None]
            if not stay:
                return
            if 2 * len(stay) <= len(open_rows) and hasattr(past, "batch_select_indices"):
                kept = torch.tensor(stay, device=self.device)
                past.batch_select_indices(kept)
                batch, open_rows = _Batch(batch.ids[kept], batch.mask[kept]), [open_rows[number] for number in stay]
            newest = torch.tensor([[row.generated[-1]] for row in open_rows], device=self.device)
            batch = _Batch(newest, torch.cat([batch.mask, torch.ones_like(newest)], 1))


def _next_tokens(rows: Sequence[Row], logits: torch.Tensor, generators: dict[int, torch.Generator], end: frozenset[int]) -> list[int]:
    """Return the next token of each row from logits (rows, vocabulary); only rows that sample or have choices are handled one by one."""
    tokens: list[int] = logits.argmax(-1).tolist()
    for number, row in enumerate(rows):
        if row.finish is None and (row.choices or row.decoding.temperature):
            tokens[number] = _chosen(row, logits[number].cpu(), generators.get(id(row)), end)
    return tokens


def _chosen(row: Row, logits: torch.Tensor, generator: torch.Generator | None, end: frozenset[int]) -> int:
    """Return the next token of a row that samples or has choices."""
    if row.choices:
        allowed = torch.tensor(sorted(_ways_on(row) | (end if tuple(row.generated) in row.choices else set())))
        logits = torch.full_like(logits, -torch.inf).index_copy(0, allowed, logits[allowed])
    if generator is None:
        return int(logits.argmax())
    probabilities, order = (logits / row.decoding.temperature).softmax(-1).sort(descending=True)
    outside = probabilities.cumsum(-1) - probabilities >= row.decoding.top_p  # the token that reaches top_p is inside
    return int(order[torch.multinomial(probabilities.masked_fill(outside, 0.0), 1, generator=generator)])


def _ways_on(row: Row) -> set[int]:
    """Return the tokens that continue towards one of the choices."""
    so_far = tuple(row.generated)
    return {choice[len(so_far)] for choice in row.choices if choice[: len(so_far)] == so_far and len(choice) > len(so_far)}


def _take(row: Row, token: int, logprob: float, end: frozenset[int]) -> None:
    """Add a token to a row, and mark the row if that finishes it."""
    row.generated.append(token)
    row.logprobs.append(logprob)
    is_whole = tuple(row.generated) in row.choices and not _ways_on(row)
    if token in end or is_whole or row.ends(row.generated):
        row.finish = "stop"
    elif len(row.generated) >= row.decoding.max_tokens:
        row.finish = "length"
