"""Local checkpoints of causal language models through transformers: exact yes/no and NLL, left-padded batches.

Needs the extra ``hf``. Structured output: choices are held to; JSON and expressions are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from wikidx.corpora.errors import InputError, MissingExtraError
from wikidx.indexer.machine.failures import device_errors, first_line
from wikidx.runtimes.errors import LLMError, PromptTooLong

from .base import AskYesNo, Call, Capabilities, Choice, Gen, Generate, MeanNll, Nll, Prompt, Reply, TokenIds, YesNo, text_of
from .fitting import fit
from .options import EngineOptions
from .text import cut_at, variants

if TYPE_CHECKING:
    from .transformers_decoding import Model, Row

_CPU_BATCH_TOKENS = 8_192
_GPU_BATCH_TOKENS = 65_536
_STOP_MARGIN = 8  # tokens looked at beyond a stop text's characters: a character may take several

_NO_TEMPLATE = "no chat template: the turns are one text"
_FREE = "no structured output: the text is free"
_SEVERAL_TOKENS = "a side has no word that is one token: its probability is 0"


class _Prepared(NamedTuple):
    """A call with its prompt as token ids that fit."""

    number: int
    call: Any
    ids: tuple[int, ...]
    degraded: tuple[str, ...]


_T = TypeVar("_T")


class TransformersEngine:
    """A checkpoint in this process.

    Args:
        model: a directory, or a repository of Hugging Face's hub.
        options: how it is run.

    Raises:
        InputError: there is no such checkpoint.
        MissingExtraError: transformers is not installed.
    """

    def __init__(self, model: str, *, options: EngineOptions | None = None) -> None:
        options = options or EngineOptions()
        self.name = f"hf:{model}"
        self._tokenizer, forward, device = _load(model, options)
        from .transformers_decoding import model_of

        end = _end_ids(forward, self._tokenizer)
        padding = self._tokenizer.pad_token_id
        self._model: Model = model_of(forward, end, padding if padding is not None else min(end, default=0), device)
        self._batch_tokens = options.batch_tokens or (_CPU_BATCH_TOKENS if device == "cpu" else _GPU_BATCH_TOKENS)
        self.capabilities = Capabilities(
            chat=bool(self._tokenizer.chat_template),
            logprobs=True,
            top_logprobs=None,
            prompt_logprobs=True,
            structured=frozenset({"choice"}),
            n=True,
            seed=True,
            token_ids=True,
            context=_context(forward.config),
        )

    def run(self, calls: Sequence[Call]) -> list[Reply | LLMError]:
        """Answer a batch of calls; one whose prompt does not fit has its error in place of a reply.

        Raises:
            IdxError: the device has too little memory, or fails otherwise.
        """
        replies: dict[int, Reply | LLMError] = {}
        prepared: list[_Prepared] = []
        for number, call in enumerate(calls):
            try:
                prepared.append(self._prepared(number, call))
            except PromptTooLong as error:
                replies[number] = error
        with device_errors(self._model.device, f"a batch of {self._batch_tokens} tokens", "set fewer with batch_tokens"):
            for kind, answer in ((Generate, self._generate), (AskYesNo, self._yes_no), (MeanNll, self._nll)):
                answer([one for one in prepared if isinstance(one.call, kind)], replies)
        return [replies[number] for number in range(len(calls))]

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has, special tokens not counted."""
        return len(self._ids(text))

    def truncate(self, text: str, max_tokens: int, *, keep: Literal["start", "end"] = "start") -> str:
        """Return the first or last tokens of a text."""
        ids = self._ids(text)
        if len(ids) <= max_tokens:
            return text
        kept: str = self._tokenizer.decode(ids[:max_tokens] if keep == "start" else ids[-max_tokens:])
        return kept.strip()

    def close(self) -> None:
        """Let go of the model."""
        del self._model

    def _prepared(self, number: int, call: Call) -> _Prepared:
        degraded: tuple[str, ...] = ()
        prompt = call.prompt
        if not isinstance(prompt, str | TokenIds) and not self.capabilities.chat:
            degraded = (_NO_TEMPLATE,)
        n_after = call.decoding.max_tokens if isinstance(call, Generate) else 1
        if isinstance(call, MeanNll):
            n_after = self.count_tokens(call.continuation)
        if self.capabilities.context is not None:
            fitted = fit(prompt, self.capabilities.context - n_after, lambda prompt: len(self._prompt_ids(prompt)))
            prompt, degraded = fitted.prompt, (*degraded, *fitted.degraded)
        return _Prepared(number, call, self._prompt_ids(prompt), degraded)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, TokenIds):
            return prompt.ids
        if isinstance(prompt, str) or not self.capabilities.chat:
            return tuple(self._tokenizer(text_of(prompt))["input_ids"]) or (self._model.padding,)
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt]
        goes_on = prompt[-1].role == "assistant"
        ids = self._tokenizer.apply_chat_template(
            turns, add_generation_prompt=not goes_on, continue_final_message=goes_on, return_dict=False, enable_thinking=False
        )
        return tuple(ids)

    def _batches(self, rows: list[_T], tokens: Callable[[_T], int]) -> Iterator[list[_T]]:
        """Part rows into batches, longest first, so that a batch that is too large fails at once."""
        batch: list[_T] = []
        for row in sorted(rows, key=tokens, reverse=True):
            if batch and tokens(batch[0]) * (len(batch) + 1) > self._batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _generate(self, prepared: list[_Prepared], replies: dict[int, Reply | LLMError]) -> None:
        from . import transformers_decoding as decoding

        rows = {one.number: [self._row(one, number) for number in range(one.call.n)] for one in prepared}
        for batch in self._batches([row for several in rows.values() for row in several], lambda row: len(row.prompt) + row.max_tokens):
            decoding.generate(self._model, batch)
        for one in prepared:
            gens = tuple(self._gen(one, row) for row in rows[one.number])
            replies[one.number] = Reply(gens, len(one.ids), sum(len(row.generated) for row in rows[one.number]))

    def _row(self, one: _Prepared, number: int) -> Row:
        from .transformers_decoding import Row

        call: Generate = one.call
        how = call.decoding
        seed = None if how.seed is None else random.Random(f"{how.seed}:{number}").getrandbits(63)
        choices = tuple(tuple(self._ids(text)) for text in call.schema.texts) if isinstance(call.schema, Choice) else ()
        return Row(
            prompt=one.ids,
            max_tokens=how.max_tokens,
            temperature=how.temperature,
            top_p=how.top_p,
            seed=seed,
            choices=choices,
            ends=self._stops(how.stop),
        )

    def _stops(self, stop: tuple[str, ...]) -> Callable[[Sequence[int]], bool]:
        if not stop:
            return lambda ids: False
        window = max(map(len, stop)) + _STOP_MARGIN
        return lambda ids: cut_at(self._tokenizer.decode(list(ids[-window:])), stop)[1]

    def _gen(self, one: _Prepared, row: Row) -> Gen:
        call: Generate = one.call
        text, _ = cut_at(self._tokenizer.decode(row.generated, skip_special_tokens=True), call.decoding.stop)
        degraded = one.degraded if call.schema is None or isinstance(call.schema, Choice) else (*one.degraded, _FREE)
        return Gen(
            text=text,
            finish="stop" if row.ended_by_itself else "length",
            logprobs=tuple(row.logprobs) if call.logprobs else None,
            token_ids=tuple(row.generated),
            degraded=degraded,
        )

    def _yes_no(self, prepared: list[_Prepared], replies: dict[int, Reply | LLMError]) -> None:
        from . import transformers_decoding as decoding

        for batch in self._batches(prepared, lambda one: len(one.ids)):
            probabilities = decoding.next_token_probabilities(self._model, [one.ids for one in batch])
            for one, row in zip(batch, probabilities, strict=True):
                sides = [self._single_tokens(side) for side in (one.call.positive, one.call.negative)]
                positive, negative = (float(row[ids].sum()) for ids in sides)
                degraded = one.degraded if all(sides) else (*one.degraded, _SEVERAL_TOKENS)
                replies[one.number] = Reply(YesNo(p_positive=positive, p_negative=negative, degraded=degraded), len(one.ids), 1)

    def _single_tokens(self, words: Sequence[str]) -> list[int]:
        ids = [self._ids(form) for form in sorted(variants(words))]
        return sorted({form[0] for form in ids if len(form) == 1})

    def _nll(self, prepared: list[_Prepared], replies: dict[int, Reply | LLMError]) -> None:
        from . import transformers_decoding as decoding

        continuations = {one.number: self._ids(one.call.continuation) for one in prepared}
        for one in prepared:
            if not continuations[one.number]:
                replies[one.number] = Reply(Nll(total=0.0, n_tokens=0, degraded=one.degraded), len(one.ids))
        scored = [one for one in prepared if continuations[one.number]]
        for batch in self._batches(scored, lambda one: len(one.ids) + len(continuations[one.number])):
            texts = [continuations[one.number] for one in batch]
            totals = decoding.continuation_nlls(self._model, [one.ids for one in batch], texts)
            for one, total, text in zip(batch, totals, texts, strict=True):
                replies[one.number] = Reply(Nll(total=total, n_tokens=len(text), degraded=one.degraded), len(one.ids) + len(text))


def _load(model: str, options: EngineOptions) -> tuple[Any, Any, str]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError(f"the model 'hf:{model}'", "hf") from error
    device = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "float32" if options.dtype == "auto" and device == "cpu" else options.dtype
    transformers.utils.logging.disable_progress_bar()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, revision=options.revision)
        forward = transformers.AutoModelForCausalLM.from_pretrained(model, revision=options.revision, dtype=dtype)
    except (OSError, ValueError) as error:
        raise InputError(f"'{model}' is no checkpoint that transformers can load: {first_line(error)}") from error
    finally:
        transformers.utils.logging.enable_progress_bar()
    with device_errors(device, f"the model '{model}'", "use a smaller one, or dtype bfloat16"):
        forward = forward.eval().to(device)
    return tokenizer, forward, device


def _end_ids(forward: Any, tokenizer: Any) -> frozenset[int]:  # noqa: ANN401 - transformers has no types
    said = getattr(forward.generation_config, "eos_token_id", None)
    ids = said if isinstance(said, list) else [said]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)


def _context(config: Any) -> int | None:  # noqa: ANN401 - transformers has no types
    known = (getattr(config, name, None) for name in ("max_position_embeddings", "n_positions", "max_sequence_length"))
    return next((length for length in known if isinstance(length, int)), None)
