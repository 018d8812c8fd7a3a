"""Forward passes over left-padded batches of token ids: generation, scores of the next token, scores of a continuation.

Log-probabilities are float32, before temperature and constraints. Each row samples with its own random generator, independently of the
other rows. Only rounding depends on the batch: scores of a row in different batches agree within about 1e-5. A generated text may differ
between batches if two tokens have nearly equal scores.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from wikidx.indexer.networks.batching import batches

from .growing_cache import make_room
from .prompts import Decoding
from .repetition import is_endless

Ids = Sequence[int]


@dataclass(slots=True, kw_only=True)
class Row:
    """A text being generated.

    Attributes:
        prompt: ids of the prompt.
        decoding: decoding parameters; sampling without a seed is not reproducible.
        choices: the permitted texts, as ids; empty: any text.
        control: ids of control tokens.
        ends: generated ids -> whether they contain a stop text.
        generated: ids generated so far.
        logprobs: log-probabilities of the generated ids.
        noted: number of generated ids before, and log-probabilities of all control tokens, of the first id and of each control token.
        finish: as in ``Gen``, and "length" for an endless loop; None: not finished.
    """

    prompt: Ids
    decoding: Decoding
    choices: tuple[tuple[int, ...], ...] = ()
    control: tuple[int, ...] = ()
    ends: Callable[[Ids], bool] = lambda ids: False
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    noted: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    finish: Literal["stop", "length"] | None = None


class Batch(NamedTuple):
    """Padded ids and their attention mask, both int64 (rows, longest)."""

    ids: torch.Tensor
    mask: torch.Tensor


_MAX_LOGITS = 1 << 28  # of a pass: 1 GiB in float32

_Generators = dict[int, torch.Generator]
"""Random generators of sampled rows, by ``id`` of the row."""


@dataclass(slots=True, kw_only=True)
class Model:
    """A causal language model with the settings for its batches.

    Attributes:
        forward: the model, as transformers loads it.
        accepts: names of the arguments that ``forward`` supports.
        end: token ids that end a text.
        padding: id of the padding token.
        device: the model's device.
        batch_tokens: maximum number of tokens of a batch.
    """

    pads_left: ClassVar[bool] = True

    forward: Any
    accepts: frozenset[str]
    end: frozenset[int]
    padding: int
    device: str
    batch_tokens: int

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield the positions of each batch. The longest texts come first, so that an oversized batch fails early."""
        return (batch.tolist() for batch in batches(np.array(lengths, dtype=np.int64), self.batch_tokens))

    def _pad(self, rows: Sequence[Ids]) -> Batch:
        column, lengths = torch.arange(max(map(len, rows))), torch.tensor([len(row) for row in rows])[:, None]
        mask = (column.flip(0) if self.pads_left else column) < lengths
        ids = torch.full(mask.shape, self.padding).masked_scatter(mask, torch.tensor([token for row in rows for token in row]))
        return Batch(ids.to(self.device), mask.long().to(self.device))

    def _logits(self, batch: Batch, last: int, past: Any = None, *, use_cache: bool = False) -> tuple[torch.Tensor, Any]:  # noqa: ANN401
        """Return the logits of the ``last`` positions, float32 (rows, last, vocabulary), and the key-value cache if ``use_cache``.

        If ``past`` is a key-value cache, the mask of the batch also covers the cached positions.
        """
        n_new = batch.ids.shape[1]
        positions = (batch.mask.cumsum(1) - 1).clamp(min=0)[:, -n_new:]
        optional = {"position_ids": positions, "logits_to_keep": last}
        arguments = {name: value for name, value in optional.items() if name in self.accepts}
        output = self.forward(input_ids=batch.ids, attention_mask=batch.mask, past_key_values=past, use_cache=use_cache, **arguments)
        return output.logits[:, -last:].float(), output.past_key_values

    @torch.inference_mode()
    def next_token_probabilities(self, prompts: Sequence[Ids]) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the number of each prompt with the probabilities of the token after it, float32 (vocabulary,)."""
        for batch in self._batches([len(prompt) for prompt in prompts]):
            yield from zip(batch, self._logits(self._pad([prompts[number] for number in batch]), 1)[0][:, 0].softmax(-1).cpu(), strict=True)

    @torch.inference_mode()
    def continuation_nlls(self, prompts: Sequence[Ids], continuations: Sequence[Ids]) -> list[float]:
        """Return the NLL of each continuation (nats), summed over its tokens."""
        texts = [[*prompt, *continuation] for prompt, continuation in zip(prompts, continuations, strict=True)]
        nlls: dict[int, float] = {}
        for numbers in self._scored_batches(texts, continuations):
            batch, longest = self._pad([texts[number] for number in numbers]), max(1, *(len(continuations[number]) for number in numbers))
            logits = self._logits(batch, longest + 1)[0][:, :-1]
            scored = (logits.gather(2, batch.ids[:, -longest:, None])[:, :, 0] - logits.logsumexp(-1)).double().cpu()
            for number, row in zip(numbers, scored, strict=True):
                nlls[number] = -float(row[longest - len(continuations[number]) :].sum())
        return [nlls[number] for number in range(len(prompts))]

    def _scored_batches(self, texts: Sequence[Ids], continuations: Sequence[Ids]) -> Iterator[list[int]]:
        """Yield the positions of each batch, whose logits after the tokens of continuations are bounded too."""
        n_words = int(self.forward.config.get_text_config().vocab_size)
        for numbers in self._batches([len(text) for text in texts]):
            longest = 1 + max(len(continuations[number]) for number in numbers)
            n_rows = max(1, _MAX_LOGITS // (longest * n_words))
            yield from (numbers[start : start + n_rows] for start in range(0, len(numbers), n_rows))

    @torch.inference_mode()
    def generate(self, rows: Sequence[Row], on_finished: Callable[[], None] = lambda: None) -> None:
        """Generate tokens until every row is finished; the rows are changed in place. ``on_finished`` is called when some are."""
        for batch in self._batches([len(row.prompt) + row.decoding.max_tokens for row in rows]):
            self._generate_together([rows[number] for number in batch], on_finished)

    def _generate_together(self, rows: Sequence[Row], on_finished: Callable[[], None]) -> None:
        generators = _make_generators(rows)
        batch, open_rows, n_open = self._pad([row.prompt for row in rows]), list(rows), len(rows)
        logits, past = self._logits(batch, 1, use_cache=True)
        make_room(past, batch.ids.shape[1] + max(row.decoding.max_tokens for row in rows) - 1)  # the last token is not read
        while True:
            _append_tokens(open_rows, logits[:, 0], generators, self.end)
            unfinished = [number for number, row in enumerate(open_rows) if row.finish is None]
            if n_open > (n_open := len(unfinished)):
                on_finished()
            if not unfinished:
                return
            if 2 * len(unfinished) <= len(open_rows) and hasattr(past, "batch_select_indices"):
                selected = torch.tensor(unfinished, device=self.device)
                past.batch_select_indices(selected)
                batch, open_rows = Batch(batch.ids[selected], batch.mask[selected]), [open_rows[number] for number in unfinished]
            newest = torch.tensor([[row.generated[-1]] for row in open_rows], device=self.device)
            batch = Batch(newest, torch.cat([batch.mask, torch.ones_like(newest)], 1))
            logits, past = self._logits(batch, 1, past, use_cache=True)

    @torch.inference_mode()
    def mix(self, prompts: Sequence[Ids], weights: Sequence[float], row: Row) -> None:
        """Generate the ids of a row, each from the weighted mean of the distributions after all prompts, which are read together."""
        logits, past = self._logits(batch := self._pad(prompts), 1, use_cache=True)
        log_weights = torch.tensor(weights, dtype=torch.float64, device=self.device).log()[:, None]
        while True:
            mean = (logits[:, 0].double().log_softmax(-1) + log_weights).logsumexp(0, keepdim=True)
            _append_tokens([row], mean, {}, self.end)
            if row.finish is not None:
                return
            newest = torch.tensor([[row.generated[-1]]] * len(prompts), device=self.device)
            batch = Batch(newest, torch.cat([batch.mask, torch.ones_like(newest)], 1))
            logits, past = self._logits(batch, 1, past, use_cache=True)


def _make_generators(rows: Sequence[Row]) -> _Generators:
    """Return the random generators of the rows that sample."""
    seeds = {id(row): row.decoding.seed for row in rows if row.decoding.temperature}
    return {row: torch.Generator().manual_seed(secrets.randbits(63) if seed is None else seed) for row, seed in seeds.items()}


def _append_tokens(rows: Sequence[Row], logits: torch.Tensor, generators: _Generators, end: frozenset[int]) -> None:
    """Append the next token to each unfinished row, from logits float32 (rows, vocabulary)."""
    tokens = _next_tokens(rows, logits, generators, end)
    chosen = logits.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0]
    totals = logits.logsumexp(-1)
    for number, (row, token, logprob) in enumerate(zip(rows, tokens, (chosen - totals).tolist(), strict=True)):
        if row.finish is None:
            if row.control and (not row.generated or token in row.control):
                row.noted.append((len(row.generated), tuple((logits[number, list(row.control)] - totals[number]).tolist())))
            _append_token(row, token, logprob, end)


def _next_tokens(rows: Sequence[Row], logits: torch.Tensor, generators: _Generators, end: frozenset[int]) -> list[int]:
    """Return the next token of each row from logits (rows, vocabulary)."""
    tokens: list[int] = logits.argmax(-1).tolist()
    for number, row in enumerate(rows):
        if row.finish is None and (row.choices or row.decoding.temperature):
            tokens[number] = _choose_token(row, logits[number].cpu(), generators.get(id(row)), end)
    return tokens


def _choose_token(row: Row, logits: torch.Tensor, generator: torch.Generator | None, end: frozenset[int]) -> int:
    """Return the next token of a row that samples or has choices."""
    if row.choices:
        allowed = torch.tensor(sorted(_continuations(row) | (end if tuple(row.generated) in row.choices else set())))
        logits = torch.full_like(logits, -torch.inf).index_copy(0, allowed, logits[allowed])
    if generator is None:
        return int(logits.argmax())
    probabilities, order = (logits / row.decoding.temperature).softmax(-1).sort(descending=True)
    is_outside = probabilities.cumsum(-1) - probabilities >= row.decoding.top_p  # the token that reaches top_p is kept
    return int(order[torch.multinomial(probabilities.masked_fill(is_outside, 0.0), 1, generator=generator)])


def _continuations(row: Row) -> set[int]:
    """Return the next tokens of the choices that begin with the generated ids."""
    prefix = tuple(row.generated)
    return {choice[len(prefix)] for choice in row.choices if choice[: len(prefix)] == prefix and len(choice) > len(prefix)}


def _append_token(row: Row, token: int, logprob: float, end: frozenset[int]) -> None:
    """Append a token to a row, and set ``finish`` if the token ends the text."""
    row.generated.append(token)
    row.logprobs.append(logprob)
    is_complete = tuple(row.generated) in row.choices and not _continuations(row)
    if token in end or is_complete or row.ends(row.generated):
        row.finish = "stop"
    elif len(row.generated) >= row.decoding.max_tokens or (row.decoding.is_greedy and is_endless(row.generated)):
        row.finish = "length"
