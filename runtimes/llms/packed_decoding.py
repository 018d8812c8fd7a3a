"""Packed forward passes: no padding, equal beginnings of prompts are computed once, and recent ones are kept between batches.

A model on the CPU is packed if a small pass gives the same scores as transformers' own attention. Others (on a GPU, with sliding windows,
attention biases, states instead of keys and values) are run in padded batches (``transformers_decoding``).
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .packed_attention import NAME, Group, Pass, Reading, Text, Writing, group_rows, running
from .prefixes import Prefixes
from .transformers_decoding import MAX_LOGITS, Generators, Ids, Model, Row, append_tokens, make_generators

_PASS_TOKENS = 2_048
_PREFIX_BYTES = 512 << 20
_EXPECTED_TOKENS = 64  # of a generated text, when rows are admitted
_UNSTABLE_ROTATIONS = ("dynamic", "longrope")  # rotary embeddings that depend on the longest text of a pass


@dataclass(slots=True, kw_only=True)
class PackedModel(Model):
    """A model whose passes are packed.

    Attributes:
        prefixes: keys and values of recent prompts.
    """

    prefixes: Prefixes = field(init=False)

    def __post_init__(self) -> None:
        """Allocate nothing yet."""
        self.prefixes = Prefixes(_PREFIX_BYTES)

    def _scores(self, forward_pass: Pass, ids: Ids, positions: Sequence[int], kept: Sequence[int] | None = None) -> torch.Tensor:
        """Return the logits after packed tokens, float32 (tokens, vocabulary); after the tokens ``kept`` if given."""
        places = None if kept is None else torch.tensor(kept, device=self.device)
        arguments = {"logits_to_keep": places} if places is not None and "logits_to_keep" in self.accepts else {}
        packed_ids, packed_positions = (torch.tensor([each], device=self.device) for each in (ids, positions))
        with running(forward_pass):
            logits: torch.Tensor = self.forward(input_ids=packed_ids, position_ids=packed_positions, use_cache=False, **arguments).logits[0]
        return (logits if places is None or arguments else logits[places]).float()

    def _read(self, texts: Sequence[Ids], n_last: Sequence[int]) -> Iterator[tuple[int, Text, torch.Tensor]]:
        """Yield each text with the logits after its last tokens, float32 (n_last, vocabulary). Equal texts are read once."""
        numbers: dict[tuple[tuple[int, ...], int], list[int]] = {}
        for number, key in enumerate(zip(map(tuple, texts), n_last, strict=True)):
            numbers.setdefault(key, []).append(number)
        limit, reading = min(self.batch_tokens, _PASS_TOKENS), Reading()
        n_scored, most_scored = 0, MAX_LOGITS // int(self.forward.config.get_text_config().vocab_size)
        for ids, last in sorted(numbers):
            blocks, n_known = self.prefixes.match(ids, len(ids) - last)
            text = Text(ids, last, blocks, n_known)
            if reading.texts and (reading.n_tokens + len(ids) - text.n_past > limit or n_scored + last > most_scored):
                yield from self._finish(reading, numbers)
                reading, n_scored = Reading(), 0
            reading.add(text)
            n_scored += last
        if reading.texts:
            yield from self._finish(reading, numbers)

    def _finish(self, reading: Reading, numbers: dict[tuple[tuple[int, ...], int], list[int]]) -> Iterator[tuple[int, Text, torch.Tensor]]:
        ids = [token for text in reading.texts for token in text.ids[text.n_past :]]
        positions = [place for text in reading.texts for place in range(text.n_past, len(text.ids))]
        kept = [place for text in reading.texts for place in range(text.stop - text.n_last, text.stop)]
        try:
            logits = self._scores(reading, ids, positions, kept)
            reading.keep()
        except BaseException:
            self.prefixes.clear()  # blocks that nothing will fill
            raise
        self.prefixes.trim()
        parts = torch.split(logits, [text.n_last for text in reading.texts])
        for text, scores in zip(reading.texts, parts, strict=True):
            for number in numbers[tuple(text.ids), text.n_last]:
                yield number, text, scores

    @torch.inference_mode()
    def next_token_probabilities(self, prompts: Sequence[Ids]) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the number of each prompt with the probabilities of the token after it, float32 (vocabulary,)."""
        for number, _, logits in self._read(prompts, [1] * len(prompts)):
            yield number, logits[0].softmax(-1).cpu()

    @torch.inference_mode()
    def continuation_nlls(self, prompts: Sequence[Ids], continuations: Sequence[Ids]) -> list[float]:
        """Return the NLL of each continuation (nats), summed over its tokens."""
        texts = [[*prompt, *continuation] for prompt, continuation in zip(prompts, continuations, strict=True)]
        nlls = [0.0] * len(texts)
        for number, _, logits in self._read(texts, [len(continuation) + 1 for continuation in continuations]):
            scored = torch.tensor(continuations[number], dtype=torch.int64, device=self.device)[:, None]
            nlls[number] = -float((logits[:-1].gather(1, scored)[:, 0] - logits[:-1].logsumexp(-1)).double().sum())
        return nlls

    @torch.inference_mode()
    def generate(self, rows: Sequence[Row], on_finished: Callable[[], None] = lambda: None) -> None:
        """Generate tokens until every row is finished; the rows are changed in place. Rows that do not fit the memory wait."""
        generators, groups = make_generators(rows), list[Group]()
        waiting = sorted(rows, key=lambda row: tuple(row.prompt), reverse=True)
        n_open = len(rows)
        while waiting or groups:
            if waiting and 2 * _count_entries(groups) <= self.batch_tokens:
                groups += self._admit(waiting, self.batch_tokens - _count_entries(groups), generators)
            else:
                self._write(groups, generators)
                waiting += self._make_room(groups)
            groups = [group for group in groups if group.rows]
            if n_open > (n_open := sum(row.finish is None for row in rows)):
                on_finished()

    def _admit(self, waiting: list[Row], room: int, generators: Generators) -> list[Group]:
        """Read the prompts of waiting rows, as many as fit, and begin their texts."""
        rows, latest = list[Row](), tuple[int, ...]()
        while waiting:
            ids = (*waiting[-1].prompt, *waiting[-1].generated)
            room -= len(ids) - len(os.path.commonprefix([ids, latest])) + _EXPECTED_TOKENS
            if rows and room < 0:
                break
            latest = ids
            rows.append(waiting.pop())
        begun = list[tuple[Row, Text]]()
        for number, text, logits in self._read([(*row.prompt, *row.generated) for row in rows], [1] * len(rows)):
            append_tokens([rows[number]], logits, generators, self.end)
            begun.append((rows[number], text))
        return group_rows([(row, text) for row, text in begun if row.finish is None])

    def _write(self, groups: Sequence[Group], generators: Generators) -> None:
        """Generate one token of each row, and remove the finished rows."""
        rows: list[Row] = [row for group in groups for row in group.rows]
        for group in groups:
            group.prepare()
        positions = [len(row.prompt) + len(row.generated) - 1 for row in rows]
        logits = self._scores(Writing(groups), [row.generated[-1] for row in rows], positions)
        append_tokens(rows, logits, generators, self.end)
        for group in groups:
            group.advance()
            for number in reversed(range(len(group.rows))):
                if group.rows[number].finish is not None:
                    group.remove(number)

    def _make_room(self, groups: list[Group]) -> list[Row]:
        """Remove rows beyond the memory limit. They are read again later."""
        removed = list[Row]()
        while _count_entries(groups) > 2 * self.batch_tokens and sum(len(group.rows) for group in groups) > 1:
            widest = max(groups, key=lambda group: group.n_entries)
            removed.append(widest.remove(len(widest.rows) - 1))
        return removed


def _count_entries(groups: Sequence[Group]) -> int:
    return sum(group.n_entries for group in groups if group.rows)


def pack(model: Model) -> PackedModel | None:
    """Return the model with packed passes; None if it is on a GPU or its attention does not allow them.

    The model's attention function is set.
    """
    if model.device != "cpu":
        return None
    own = model.forward.config._attn_implementation
    packed = PackedModel(**{name: getattr(model, name) for name in Model.__dataclass_fields__})
    try:
        if _rotation(model.forward.config) not in _UNSTABLE_ROTATIONS and "position_ids" in model.accepts and _is_same(model, packed):
            return packed
    except Exception:  # noqa: BLE001, S110 - a model that is no transformer with keys and values may fail in any way
        pass
    model.forward.set_attn_implementation(own)
    return None


def _rotation(config: Any) -> str | None:  # noqa: ANN401 - transformers has no types
    parameters = getattr(config, "rope_parameters", None) or {}
    return parameters.get("rope_type") if isinstance(parameters, dict) else None


@torch.inference_mode()
def _is_same(model: Model, packed: PackedModel) -> bool:
    """Return whether two packed texts have the scores of transformers' own attention."""
    texts = [[token % model.forward.config.vocab_size for token in ids] for ids in ((3, 5, 7, 11, 13, 17), (19, 5, 3, 2))]
    expected = [model.forward(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0].float() for ids in texts]
    model.forward.set_attn_implementation(NAME)
    scores = [logits for _, _, logits in sorted(packed._read(texts, [len(ids) for ids in texts]), key=lambda read: read[0])]
    packed.prefixes.clear()
    tolerance = 1e-3 if model.forward.dtype == torch.float32 else 0.5
    return all(float((ours - theirs).std() / theirs.std()) < tolerance for ours, theirs in zip(scores, expected, strict=True))
