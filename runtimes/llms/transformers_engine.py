"""Local checkpoints of language models in transformers, with exact yes/no scores and NLL: decoders, and encoder-decoders such as T5.

This backend needs the extra ``llm``. It enforces choices, but neither JSON schemas nor regular expressions.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wikidx.base.errors import require_packages
from wikidx.base.machine.devices import encoder_device, free_memory, resolve_device
from wikidx.base.machine.failures import device_errors
from wikidx.indexer.networks.loading import opening_by_transformers
from wikidx.runtimes.errors import LLMError

from .base import AskYesNo, Call, Control, Deliver, Gen, Generate, MeanNll, Mix, Nll, Reply, YesNo
from .checkpoint import CheckpointLLM, PreparedCall, padding_id
from .gguf_files import checkpoint_folder
from .options import EngineOptions
from .prompts import Choice
from .text import FREE_TEXT, MAX_BLANKS, NO_SINGLE_TOKEN, NO_TEMPLATE, cut_at_stop
from .thinking import finish_text, split_thinking
from .turns import end_turn, find_end, reply_end

if TYPE_CHECKING:
    from .transformers_decoding import Model, Row

_CPU_BATCH_TOKENS = 32_768
_GPU_BATCH_TOKENS = 65_536  # at most
_LEAST_BATCH_TOKENS = 2_048
_ADVICE = "use a smaller one or --llm-option dtype=bfloat16, or over several GPUs --llm vllm:MODEL --llm-option tensor_parallel_size=2"
_STOP_MARGIN = 8  # tokens added to the window that is searched for a stop text; a character may be several tokens


@dataclasses.dataclass(slots=True)
class _NextAnswer:
    """A yes/no question that is being scored.

    Attributes:
        prepared: the call.
        ids: the prompt, with the tokens of white space after it.
        p_reached: probability of those tokens.
        sums: probabilities of the positive and of the negative answer so far.
        is_open: whether the last token is white space, so that the answer follows.
    """

    prepared: PreparedCall
    ids: tuple[int, ...]
    p_reached: float = 1.0
    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    is_open: bool = True


class TransformersEngine(CheckpointLLM):
    """A checkpoint in this process.

    Args:
        model: a directory, a GGUF file, an embedded model, or a repository on the Hugging Face hub.
        options: options for loading and running the checkpoint.

    Raises:
        InputError: the checkpoint does not exist or cannot be loaded.
        MissingExtraError: transformers is not installed.
    """

    def __init__(self, model: str, *, options: EngineOptions | None = None) -> None:
        options = options or EngineOptions()
        tokenizer, self._model = _load(model, options)
        context: int | None = getattr(self._model.forward.config, "max_position_embeddings", None)
        super().__init__(
            f"hf:{model}", tokenizer, top_logprobs=None, structured=frozenset({"choice"}), context=context, thinking=options.thinking
        )

    def _run(self, calls: Sequence[Call], deliver: Deliver) -> list[Reply | LLMError]:
        prepared_calls = list(map(self._prepare, calls))
        replies: dict[int, Reply | LLMError] = {number: error for number, error in enumerate(prepared_calls) if isinstance(error, LLMError)}
        with device_errors(self._model.device, f"a batch of {self._model.batch_tokens} tokens", "set fewer by --llm-option batch_tokens=N"):
            for kind, answer in ((AskYesNo, self._yes_no), (MeanNll, self._nll)):
                of_kind = self._of_kind(kind, prepared_calls)
                replies |= zip(of_kind, answer(list(of_kind.values())), strict=True)
            replies |= {number: self._mix(call) for number, call in enumerate(calls) if isinstance(call, Mix)}
            deliver(dict(replies))
            replies |= self._generate(self._of_kind(Generate, prepared_calls), deliver)
        return [replies[number] for number in range(len(calls))]

    def close(self) -> None:
        """Release the model."""
        self._is_closed = True
        self.__dict__.pop("_model", None)

    @staticmethod
    def _of_kind(kind: type[Call], prepared_calls: Sequence[PreparedCall | LLMError]) -> dict[int, PreparedCall]:
        """Return the calls of a kind, by number."""
        return {
            number: prepared
            for number, prepared in enumerate(prepared_calls)
            if isinstance(prepared, PreparedCall) and isinstance(prepared.call, kind)
        }

    def _generate(self, calls: Mapping[int, PreparedCall], deliver: Deliver) -> dict[int, Reply]:
        """Generate the texts of all calls together; deliver the reply to a call as soon as its last text is finished."""
        texts = {number: [self._row(prepared, text) for text in range(prepared.call.n)] for number, prepared in calls.items()}
        replies = dict[int, Reply]()

        def deliver_finished() -> None:
            finished = [number for number, rows in texts.items() if number not in replies and all(row.finish is not None for row in rows)]
            new = {number: self._reply(calls[number], texts[number]) for number in finished}
            replies.update(new)
            deliver(new)

        self._model.generate(list(itertools.chain.from_iterable(texts.values())), deliver_finished)
        deliver_finished()
        return replies

    def _reply(self, prepared: PreparedCall, rows: Sequence[Row]) -> Reply:
        return Reply(tuple(self._gen(prepared, row) for row in rows), len(prepared.ids), sum(len(row.generated) for row in rows))

    def _mix(self, call: Mix) -> Reply | LLMError:
        prompts = [self._prepare(call.after(number)) for number in range(len(call.prompts))]
        fitting = [prompt for prompt in prompts if isinstance(prompt, PreparedCall)]
        if failed := [prompt for prompt in prompts if isinstance(prompt, LLMError)]:
            return failed[0]
        row = self._row(fitting[0], 0)
        self._model.mix([prompt.ids for prompt in fitting], call.weights, row)
        return Reply((self._gen(fitting[0], row),), sum(len(prompt.ids) for prompt in fitting), len(row.generated))

    def _row(self, prepared: PreparedCall, number: int) -> Row:
        from .transformers_decoding import Row

        call: Generate = prepared.call
        seed = None if call.decoding.seed is None else random.Random(f"{call.decoding.seed}:{number}").getrandbits(63)
        choices = tuple(tuple(self._ids(text)) for text in call.schema.texts) if isinstance(call.schema, Choice) else ()
        decoding = dataclasses.replace(call.decoding, seed=seed)
        control = tuple(map(self._control_id, call.control))
        return Row(prompt=prepared.ids, decoding=decoding, choices=choices, control=control, ends=self._stops(prepared))

    def _stops(self, prepared: PreparedCall) -> Callable[[Sequence[int]], bool]:
        stop, end = prepared.stop, reply_end(prepared.call.prompt) if NO_TEMPLATE in prepared.degraded else ""
        if not stop and not end:
            return lambda ids: False
        if stop and not prepared.call.decoding.stop:  # a thought is expected: only the text after it ends
            return lambda ids: cut_at_stop(split_thinking(self._decode(ids), is_open=prepared.is_open).answer, stop)[1]
        window = max(map(len, (*stop, end))) + _STOP_MARGIN

        def is_ended(ids: Sequence[int]) -> bool:
            text = self._tokenizer.decode(list(ids[-window:]))
            return cut_at_stop(text, stop)[1] or find_end(text, end) is not None

        return is_ended

    def _gen(self, prepared: PreparedCall, row: Row) -> Gen:
        call: Generate = prepared.call
        gen = Gen(
            text=self._decode(row.generated, call.control),
            finish=row.finish or "stop",
            logprobs=tuple(row.logprobs) if call.logprobs else None,
            token_ids=tuple(row.generated),
            ends=self._ends(row.generated, call.control) if call.logprobs else None,
            control=tuple(Control(len(self._decode(row.generated[:n], call.control)), logprobs) for n, logprobs in row.noted),
            degraded=prepared.degraded if call.schema is None or isinstance(call.schema, Choice) else (*prepared.degraded, FREE_TEXT),
        )
        gen = finish_text(gen, prepared.stop, is_open=prepared.is_open)
        return end_turn(self._limit_answer(gen, prepared), call.prompt)

    def _yes_no(self, calls: list[PreparedCall]) -> list[Reply]:
        answers = [_NextAnswer(prepared, prepared.ids) for prepared in calls]
        pending = answers
        for _ in range(1 + MAX_BLANKS):
            for number, probabilities in self._model.next_token_probabilities([answer.ids for answer in pending]):
                self._add_next_token(pending[number], probabilities)
            pending = [answer for answer in pending if answer.is_open]
        return list(map(self._yes_no_reply, answers))

    def _add_next_token(self, answer: _NextAnswer, probabilities: Any) -> None:  # noqa: ANN401 - a row of torch
        """Add the probabilities of both answers; if the likeliest token is white space, append it to the ids."""
        call: AskYesNo = answer.prepared.call
        for side, words in enumerate((call.positive, call.negative)):
            answer.sums[side] += answer.p_reached * float(probabilities[self._answer_ids(words)].sum())
        likeliest = int(probabilities.argmax())
        answer.is_open = self._is_blank(likeliest)
        answer.ids, answer.p_reached = (*answer.ids, likeliest), answer.p_reached * float(probabilities[likeliest])

    def _yes_no_reply(self, answer: _NextAnswer) -> Reply:
        prepared = answer.prepared
        has_both = all(map(self._answer_ids, (prepared.call.positive, prepared.call.negative)))
        degraded = prepared.degraded if has_both else (*prepared.degraded, NO_SINGLE_TOKEN)
        yes_no = YesNo(p_positive=answer.sums[0], p_negative=answer.sums[1], degraded=degraded)
        return Reply(yes_no, len(prepared.ids), len(answer.ids) - len(prepared.ids))

    def _nll(self, calls: list[PreparedCall]) -> list[Reply]:
        totals = self._model.continuation_nlls([prepared.ids for prepared in calls], [prepared.continuation for prepared in calls])
        return [
            Reply(
                Nll(total=total, n_tokens=len(prepared.continuation), degraded=prepared.degraded),
                len(prepared.ids) + len(prepared.continuation),
            )
            for total, prepared in zip(totals, calls, strict=True)
        ]


def _load(model: str, options: EngineOptions) -> tuple[Any, Model]:
    """Load a checkpoint; return its tokenizer and its model."""
    require_packages(f"the model 'hf:{model}'", "llm", "torch", "transformers")
    folder, device = checkpoint_folder(model), resolve_device(encoder_device(options.device))
    dtype = "float32" if options.dtype == "auto" and device == "cpu" else options.dtype
    with opening_by_transformers(model, "checkpoint") as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, revision=options.revision)
        config = transformers.AutoConfig.from_pretrained(folder, revision=options.revision)
        loader = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
        forward = loader.from_pretrained(folder, revision=options.revision, dtype=dtype)
    with device_errors(device, f"the model '{model}'", _ADVICE):
        forward = forward.eval().to(device)
    from .encoder_decoder import EncoderDecoder, decoder_beginning
    from .transformers_decoding import Model

    settings: dict[str, Any] = {
        "forward": forward,
        "accepts": frozenset(inspect.signature(forward.forward).parameters),
        "end": _end_ids(forward, tokenizer),
        "padding": padding_id(tokenizer),
        "device": device,
        "batch_tokens": options.batch_tokens or default_batch_tokens(forward, device),
    }
    return tokenizer, EncoderDecoder(**settings, beginning=decoder_beginning(forward)) if config.is_encoder_decoder else Model(**settings)


def default_batch_tokens(forward: Any, device: str) -> int:  # noqa: ANN401 - transformers has no types
    """Return the number of tokens in memory together that suits a device: on a GPU, their keys and values take half of what is free."""
    if device == "cpu":
        return _CPU_BATCH_TOKENS
    config = forward.config.get_text_config()
    n_heads = getattr(config, "num_attention_heads", None)
    if not device.startswith("cuda") or not n_heads:
        return _GPU_BATCH_TOKENS
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // n_heads
    n_values = 2 * config.num_hidden_layers * (getattr(config, "num_key_value_heads", None) or n_heads) * head_dim
    token_bytes: int = n_values * forward.dtype.itemsize
    free = free_memory(int(device.partition(":")[2] or 0), is_named=True)
    return max(_LEAST_BATCH_TOKENS, min(_GPU_BATCH_TOKENS, free // 2 // token_bytes))


def _end_ids(forward: Any, tokenizer: Any) -> frozenset[int]:  # noqa: ANN401 - transformers has no types
    eos_ids = getattr(forward.generation_config, "eos_token_id", None)
    ids = eos_ids if isinstance(eos_ids, list) else [eos_ids]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)
