"""Local checkpoints of causal language models through transformers: exact yes/no and NLL, left-padded batches.

Needs the extra ``hf``. Structured output: choices are enforced; JSON and regular expressions are not.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wikidx.corpora.errors import InputError, MissingExtraError
from wikidx.indexer.embedding.batching import batches
from wikidx.indexer.encoders.loading import silent_transformers
from wikidx.indexer.machine.devices import chosen_device
from wikidx.indexer.machine.failures import device_errors, first_line
from wikidx.runtimes.errors import LLMError, PromptTooLong

from .base import AskYesNo, Call, Choice, Gen, Generate, MeanNll, Nll, Reply, YesNo
from .checkpoint import CheckpointLLM, Prepared, padding_id
from .options import EngineOptions
from .text import FREE_TEXT, NO_THINKING, cut_at, variants, without_thinking

if TYPE_CHECKING:
    from .transformers_decoding import Model, Row

_CPU_BATCH_TOKENS = 8_192
_GPU_BATCH_TOKENS = 65_536
_STOP_MARGIN = 8  # tokens decoded beyond a stop text's length in characters: a character may take several

_SEVERAL_TOKENS = "a side has no word that is one token: its probability is 0"


class TransformersEngine(CheckpointLLM):
    """A checkpoint in this process.

    Args:
        model: a directory, or a repository on the Hugging Face hub.
        options: of running it.

    Raises:
        InputError: there is no such checkpoint.
        MissingExtraError: transformers is not installed.
    """

    def __init__(self, model: str, *, options: EngineOptions | None = None) -> None:
        options = options or EngineOptions()
        tokenizer, self._model = _load(model, options)
        self._batch_tokens = options.batch_tokens or (_CPU_BATCH_TOKENS if self._model.device == "cpu" else _GPU_BATCH_TOKENS)
        context: int | None = getattr(self._model.forward.config, "max_position_embeddings", None)
        super().__init__(f"hf:{model}", tokenizer, top_logprobs=None, structured=frozenset({"choice"}), context=context)

    def run(self, calls: Sequence[Call]) -> list[Reply | LLMError]:
        """Answer a batch of calls; a call whose prompt does not fit has its error in place of a reply.

        Raises:
            IdxError: the device has too little memory, or fails otherwise.
        """
        prepared = list(map(self._prepare, calls))
        replies: dict[int, Reply | LLMError] = {number: one for number, one in enumerate(prepared) if isinstance(one, PromptTooLong)}
        with device_errors(self._model.device, f"a batch of {self._batch_tokens} tokens", "set fewer with batch_tokens"):
            for kind, answer in ((Generate, self._generate), (AskYesNo, self._yes_no), (MeanNll, self._nll)):
                asked = {number: one for number, one in enumerate(prepared) if isinstance(one, Prepared) and isinstance(one.call, kind)}
                replies |= zip(asked, answer(list(asked.values())), strict=True)
        return [replies[number] for number in range(len(calls))]

    def close(self) -> None:
        """Release the model."""
        del self._model

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Yield the positions of each batch, longest first, so that a batch that is too large fails at once."""
        return (which.tolist() for which in batches(np.array(lengths, dtype=np.int64), self._batch_tokens))

    def _generate(self, asked: list[Prepared]) -> list[Reply]:
        texts = [[self._row(one, number) for number in range(one.call.n)] for one in asked]
        rows = list(itertools.chain.from_iterable(texts))
        for which in self._batches([len(row.prompt) + row.decoding.max_tokens for row in rows]):
            self._model.generate([rows[number] for number in which])
        return [
            Reply(tuple(self._gen(one, row) for row in own), len(one.ids), sum(len(row.generated) for row in own))
            for one, own in zip(asked, texts, strict=True)
        ]

    def _row(self, one: Prepared, number: int) -> Row:
        from .transformers_decoding import Row

        call: Generate = one.call
        seed = None if call.decoding.seed is None else random.Random(f"{call.decoding.seed}:{number}").getrandbits(63)
        choices = tuple(tuple(self._ids(text)) for text in call.schema.texts) if isinstance(call.schema, Choice) else ()
        own = dataclasses.replace(call.decoding, seed=seed)
        return Row(prompt=one.ids, decoding=own, choices=choices, ends=self._stops(own.stop))

    def _stops(self, stop: tuple[str, ...]) -> Callable[[Sequence[int]], bool]:
        if not stop:
            return lambda ids: False
        window = max(map(len, stop)) + _STOP_MARGIN
        return lambda ids: cut_at(self._tokenizer.decode(list(ids[-window:])), stop)[1]

    def _gen(self, one: Prepared, row: Row) -> Gen:
        call: Generate = one.call
        text, has_thought = without_thinking(self._tokenizer.decode(row.generated, skip_special_tokens=True))
        degraded = one.degraded if call.schema is None or isinstance(call.schema, Choice) else (*one.degraded, FREE_TEXT)
        return Gen(
            text=cut_at(text, call.decoding.stop)[0],
            finish=row.finish or "length",
            logprobs=tuple(row.logprobs) if call.logprobs else None,
            token_ids=tuple(row.generated),
            degraded=(*degraded, NO_THINKING) if has_thought else degraded,
        )

    def _yes_no(self, asked: list[Prepared]) -> list[Reply]:
        replies: dict[int, Reply] = {}
        for which in self._batches([len(one.ids) for one in asked]):
            probabilities = self._model.next_token_probabilities([asked[number].ids for number in which])
            for number, row in zip(which, probabilities, strict=True):
                one = asked[number]
                sides = [self._single_tokens(side) for side in (one.call.positive, one.call.negative)]
                positive, negative = (float(row[ids].sum()) for ids in sides)
                degraded = one.degraded if all(sides) else (*one.degraded, _SEVERAL_TOKENS)
                replies[number] = Reply(YesNo(p_positive=positive, p_negative=negative, degraded=degraded), len(one.ids), 1)
        return [replies[number] for number in range(len(asked))]

    def _single_tokens(self, words: Sequence[str]) -> list[int]:
        ids = [self._ids(form) for form in sorted(variants(words))]
        return sorted({form[0] for form in ids if len(form) == 1})

    def _nll(self, asked: list[Prepared]) -> list[Reply]:
        totals: dict[int, float] = {}
        for which in self._batches([len(one.ids) + len(one.continuation) for one in asked]):
            batch = [asked[number] for number in which]
            found = self._model.continuation_nlls([one.ids for one in batch], [one.continuation for one in batch])
            totals |= zip(which, found, strict=True)
        return [
            Reply(Nll(total=totals[number], n_tokens=len(one.continuation), degraded=one.degraded), len(one.ids) + len(one.continuation))
            for number, one in enumerate(asked)
        ]


def _load(model: str, options: EngineOptions) -> tuple[Any, Model]:
    """Return a checkpoint's tokenizer and its model."""
    try:
        import transformers

        from .transformers_decoding import Model
    except ImportError as error:
        raise MissingExtraError(f"the model 'hf:{model}'", "hf") from error
    device = chosen_device(options.device)
    dtype = "float32" if options.dtype == "auto" and device == "cpu" else options.dtype
    try:
        with silent_transformers():
            tokenizer = transformers.AutoTokenizer.from_pretrained(model, revision=options.revision)
            forward = transformers.AutoModelForCausalLM.from_pretrained(model, revision=options.revision, dtype=dtype)
    except (OSError, ValueError) as error:
        raise InputError(f"'{model}' is no checkpoint that transformers can load: {first_line(error)}") from error
    with device_errors(device, f"the model '{model}'", "use a smaller one, or dtype bfloat16"):
        forward = forward.eval().to(device)
    takes = frozenset(inspect.signature(forward.forward).parameters)
    return tokenizer, Model(forward, takes, _end_ids(forward, tokenizer), padding_id(tokenizer), device)


def _end_ids(forward: Any, tokenizer: Any) -> frozenset[int]:  # noqa: ANN401 - transformers has no types
    said = getattr(forward.generation_config, "eos_token_id", None)
    ids = said if isinstance(said, list) else [said]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)
