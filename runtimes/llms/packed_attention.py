"""Attention of packed texts: all tokens of a pass in one row, without padding. Each text attends to its own tokens.

``attention`` is an attention function of transformers. The pass that runs decides which tokens attend to which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from transformers import AttentionInterface

from .prefixes import BLOCK, Block

NAME = "wikidx_packed"
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")
_QUERIES = 64  # tokens of a text whose scores are computed together; the scores then fit a processor's cache


class UnsupportedAttention(Exception):
    """The model's attention is more than a softmax over the tokens before."""


class KeysValues(NamedTuple):
    """Keys and values of tokens, (heads, tokens, width) for a layer, (layers, heads, tokens, width) for all."""

    keys: torch.Tensor
    values: torch.Tensor

    def cut(self, start: int, stop: int) -> KeysValues:
        """Return a copy of the tokens in a range."""
        return KeysValues(self.keys[..., start:stop, :].clone(), self.values[..., start:stop, :].clone())


class Pass(Protocol):
    """A forward pass over packed tokens."""

    def attend(self, layer: int, queries: torch.Tensor, new: KeysValues) -> torch.Tensor:
        """Return the attention of a layer, (heads, tokens, width), for scaled queries (heads, tokens, width)."""
        ...


_running: ContextVar[Pass] = ContextVar("_running")


@contextmanager
def running(forward_pass: Pass) -> Iterator[None]:
    """Let a pass decide the attention within the context."""
    token = _running.set(forward_pass)
    try:
        yield
    finally:
        _running.reset(token)


def attention(
    module: Any,  # noqa: ANN401 - a layer of transformers
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,  # noqa: ANN401 - of the model
) -> tuple[torch.Tensor, None]:
    """Compute the attention of a layer, (1, tokens, heads, width)."""
    if attention_mask is not None or any(options.get(name) is not None for name in _UNSUPPORTED):
        raise UnsupportedAttention
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = _running.get().attend(module.layer_idx, query[0] * scale, KeysValues(key[0], value[0]))
    return output.transpose(0, 1)[None], None


AttentionInterface.register(NAME, attention)


@dataclass(slots=True, eq=False)
class Text:
    """A text that is read.

    Attributes:
        ids: the tokens.
        n_last: number of last tokens after which the next token's scores are wanted.
        blocks: blocks of the whole text.
        n_known: number of blocks that need not be computed.
        start: place of the first computed token in the pass.
        rest: keys and values of the tokens after the last block.
    """

    ids: Sequence[int]
    n_last: int
    blocks: list[Block]
    n_known: int
    start: int = 0
    rest: KeysValues | None = None

    @property
    def n_past(self) -> int:
        """Number of tokens that need not be computed."""
        return self.n_known * BLOCK

    @property
    def stop(self) -> int:
        """End of the text in the pass."""
        return self.start + len(self.ids) - self.n_past


@dataclass(slots=True, eq=False)
class Reading:
    """A pass over texts. A text that shares a beginning with an earlier one uses its keys and values."""

    texts: list[Text] = field(default_factory=list)
    n_tokens: int = 0
    _layers: dict[int, KeysValues] = field(default_factory=dict)
    _past: tuple[int, list[Block], KeysValues | None] = (-1, [], None)  # of the latest text: layer, blocks, keys and values

    def add(self, text: Text) -> None:
        """Add a text at the end of the pass."""
        text.start = self.n_tokens
        for number, block in enumerate(text.blocks[text.n_known :]):
            block.start = text.start + number * BLOCK
        self.texts.append(text)
        self.n_tokens = text.stop

    def attend(self, layer: int, queries: torch.Tensor, new: KeysValues) -> torch.Tensor:
        """Return the attention of a layer."""
        self._layers[layer] = new
        output = queries.new_empty(*queries.shape[:2], new.values.shape[-1])
        for text in self.texts:
            place = slice(text.start, text.stop)
            own = KeysValues(new.keys[:, place], new.values[:, place])
            output[:, place] = attend_before(queries[:, place], own, self._past_of(text, layer))
        return output

    def _past_of(self, text: Text, layer: int) -> KeysValues | None:
        blocks = text.blocks[: text.n_known]
        if self._past[0] != layer or self._past[1] != blocks:
            new = self._layers[layer]
            parts = [
                (new.keys[:, block.start : block.start + BLOCK], new.values[:, block.start : block.start + BLOCK])
                if block.keys is None or block.values is None
                else (block.keys[layer], block.values[layer])
                for block in blocks
            ]
            keys, values = zip(*parts, strict=True) if parts else ((), ())
            self._past = (layer, blocks, KeysValues(torch.cat(keys, 1), torch.cat(values, 1)) if parts else None)
        return self._past[2]

    def keep(self) -> None:
        """Fill the blocks of the texts after the pass."""
        layers = [self._layers[layer] for layer in sorted(self._layers)]
        whole = KeysValues(torch.stack([each.keys for each in layers]), torch.stack([each.values for each in layers]))
        for text in self.texts:
            for block in text.blocks[text.n_known :]:
                block.keys, block.values = whole.cut(block.start, block.start + BLOCK)
            text.rest = whole.cut(text.stop - len(text.ids) % BLOCK, text.stop)


def attend_before(queries: torch.Tensor, own: KeysValues, past: KeysValues | None) -> torch.Tensor:
    """Return the attention of a text's tokens to themselves, the tokens before, and the past: (heads, tokens, width)."""
    n_heads, n_tokens, _ = own.keys.shape
    grouped = queries.reshape(n_heads, -1, n_tokens, queries.shape[-1])  # (key heads, queries of a head, tokens, width)
    output = queries.new_empty(*grouped.shape[:3], own.values.shape[-1])
    future = torch.ones(_QUERIES, _QUERIES, dtype=torch.bool, device=queries.device).triu(1)
    for start in range(0, n_tokens, _QUERIES):
        stop = min(start + _QUERIES, n_tokens)
        asked = grouped[:, :, start:stop].flatten(1, 2)
        scores = asked @ own.keys[:, :stop].transpose(1, 2)
        scores.view(n_heads, -1, stop - start, stop)[..., start:].masked_fill_(future[: stop - start, : stop - start], -torch.inf)
        if past is not None:
            scores = torch.cat([asked @ past.keys.transpose(1, 2), scores], -1)
        weights = _softmax(scores)
        mixed = weights[..., weights.shape[-1] - stop :] @ own.values[:, :stop]
        if past is not None:
            mixed += weights[..., :-stop] @ past.values
        output[:, :, start:stop] = mixed.view(n_heads, -1, stop - start, mixed.shape[-1])
    return output.flatten(0, 1)


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)


class Group:
    """Rows that are generated together, and share the first tokens.

    Args:
        items: the rows (anything), each with the text it continues.
        n_shared: number of blocks that all the texts share.
    """

    def __init__(self, items: Sequence[tuple[Any, Text]], n_shared: int) -> None:
        self.rows = [row for row, _ in items]
        texts = [text for _, text in items]
        self.shared = _join(texts[0].blocks[:n_shared], None) if n_shared else None
        own = [_join(text.blocks[n_shared:], text.rest) for text in texts]
        self._lengths = torch.tensor([each.keys.shape[2] for each in own], device=own[0].keys.device)
        self.width = max(each.keys.shape[2] for each in own)
        self._own = KeysValues(*(_pad([each[side] for each in own], self.width + BLOCK) for side in (0, 1)))
        self._mask = torch.empty(0)

    @property
    def n_entries(self) -> int:
        """Number of tokens whose keys and values are in memory."""
        return len(self.rows) * self.width + (0 if self.shared is None else self.shared.keys.shape[2])

    def prepare(self) -> None:
        """Make room for one token of each row."""
        self.width = int(self._lengths.max()) + 1
        if self.width > self._own.keys.shape[3]:
            self._own = KeysValues(*(_pad(list(each.unbind(1)), self.width + self.width // 4 + BLOCK) for each in self._own))
        places = torch.arange(self.width, device=self._lengths.device)
        mask = torch.zeros(len(self.rows), self.width, dtype=self._own.keys.dtype, device=places.device)
        self._mask = mask.masked_fill_(places > self._lengths[:, None], -torch.inf)[:, None, None]

    def attend(self, layer: int, queries: torch.Tensor, new: KeysValues) -> torch.Tensor:
        """Return the attention of the newest token of each row."""
        n_rows = len(self.rows)
        numbers = torch.arange(n_rows, device=queries.device)
        for stored, added in zip(self._own, new, strict=True):
            stored[layer, numbers, :, self._lengths] = added.transpose(0, 1)
        keys, values = (each[layer, :n_rows, :, : self.width] for each in self._own)
        asked = queries.reshape(keys.shape[1], -1, n_rows, queries.shape[-1]).permute(
            2, 0, 1, 3
        )  # (rows, key heads, queries of a head, width)
        scores = asked @ keys.transpose(2, 3) + self._mask
        if self.shared is None:
            mixed = _softmax(scores) @ values
        else:
            together = asked.transpose(0, 1).flatten(1, 2)  # (key heads, rows × queries of a head, width)
            n_heads, n_first = self.shared.keys.shape[1:3]
            first = (together @ self.shared.keys[layer].transpose(1, 2)).view(n_heads, n_rows, -1, n_first).transpose(0, 1)
            weights = _softmax(torch.cat([first, scores], -1))
            of_first = weights[..., :n_first].transpose(0, 1).flatten(1, 2) @ self.shared.values[layer]
            mixed = weights[..., n_first:] @ values + of_first.view(n_heads, n_rows, -1, values.shape[-1]).transpose(0, 1)
        return mixed.permute(1, 2, 0, 3).flatten(0, 1)

    def advance(self) -> None:
        """Count the newest token of each row."""
        self._lengths = self._lengths + 1

    def remove(self, number: int) -> Any:  # noqa: ANN401 - a row
        """Remove and return a row; the last row takes its place."""
        row, last = self.rows[number], self.rows.pop()
        if number < len(self.rows):
            self.rows[number] = last
            for each in self._own:
                each[:, number] = each[:, len(self.rows)]
            self._lengths[number] = self._lengths[-1]
        self._lengths = self._lengths[:-1]
        return row


class Writing(NamedTuple):
    """A pass over the newest tokens of rows."""

    groups: Sequence[Group]

    def attend(self, layer: int, queries: torch.Tensor, new: KeysValues) -> torch.Tensor:
        """Return the attention of a layer."""
        sizes = [len(group.rows) for group in self.groups]
        parts = (torch.split(each, sizes, 1) for each in (queries, *new))
        attended = [group.attend(layer, asked, KeysValues(*own)) for group, asked, *own in zip(self.groups, *parts, strict=True)]
        return torch.cat(attended, 1)


def group_rows(items: Sequence[tuple[Any, Text]], *, min_rows: int = 4, min_blocks: int = 2) -> list[Group]:
    """Group rows by what they share: the whole text, else the first block. Rows that share little are one group."""
    by_text: dict[Text, list[tuple[Any, Text]]] = {}
    for item in items:
        by_text.setdefault(item[1], []).append(item)
    by_start: dict[Block | Text, list[tuple[Any, Text]]] = {}
    for text, same in by_text.items():
        is_own = len(same) >= min_rows or not text.blocks
        by_start.setdefault(text if is_own else text.blocks[0], []).extend(same)
    groups, others = list[Group](), list[tuple[Any, Text]]()
    for near in by_start.values():
        n_shared = _count_shared([text.blocks for _, text in near])
        if len(near) >= min_rows and n_shared >= min_blocks:
            groups.append(Group(near, n_shared))
        else:
            others += near
    return [*groups, Group(others, 0)] if others else groups


def _count_shared(texts: Sequence[Sequence[Block]]) -> int:
    """Return the number of first blocks that all texts share."""
    shortest = min(map(len, texts))
    return next((number for number in range(shortest) if len({text[number] for text in texts}) > 1), shortest)


def _join(blocks: Sequence[Block], rest: KeysValues | None) -> KeysValues:
    """Return keys and values of consecutive blocks and the rest after them, for all layers."""
    parts = [KeysValues(block.keys, block.values) for block in blocks if block.keys is not None and block.values is not None]
    parts += [rest] if rest is not None else []
    return KeysValues(torch.cat([part.keys for part in parts], 2), torch.cat([part.values for part in parts], 2))


def _pad(rows: Sequence[torch.Tensor], width: int) -> torch.Tensor:
    """Return rows (layers, heads, tokens, size) of different lengths as one tensor (layers, rows, heads, width, size), padded with 0."""
    n_layers, n_heads, _, size = rows[0].shape
    padded = rows[0].new_zeros(n_layers, len(rows), n_heads, width, size)
    for number, row in enumerate(rows):
        padded[:, number, :, : row.shape[2]] = row
    return padded
