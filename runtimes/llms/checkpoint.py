"""Base class of engines that run a checkpoint in this process.

The engines get prompts as token ids. The chat template is applied here, so the engine does not add a second beginning-of-text token. Turns
that the template refuses are folded (``turns``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from wikidx.base.errors import ClosedError
from wikidx.runtimes.errors import LLMError, PromptTooLong

from .base import Call, Capabilities, Deliver, Gen, Generate, MeanNll, Reply, Score
from .fitting import fit
from .prompts import Chat, End, Prompt, Thinking, TokenIds
from .text import MAX_BLANKS, NO_SCORES, NO_TEMPLATE, answer_pattern, is_blank
from .thinking import is_thought_mark, lacks_room, limit_answer, make_room, opens_thought, split_thinking
from .turns import FOLDS, adapt_to_text, as_text, fold_turns

_END_TOKENS = 12  # tokens at the end of a prompt that are searched for the beginning of a thought
_NO_FORM = "the chat template refuses the conversation: the turns are joined into one text"


class PreparedCall(NamedTuple):
    """A call as token ids.

    Attributes:
        call: the call.
        ids: the prompt, cut to fit the context.
        stop: texts that end the answer; where a thought is expected, the call itself has none.
        max_tokens: maximum number of tokens of the answer; the call's own also covers thoughts.
        is_open: whether the chat template opens a thought, which cannot be switched off.
        continuation: ids of the text that a ``MeanNll`` scores; empty for other calls.
        degraded: fallbacks used for the prompt.
    """

    call: Any
    ids: tuple[int, ...]
    continuation: tuple[int, ...]
    degraded: tuple[str, ...]
    stop: tuple[str, ...] = ()
    max_tokens: int = 0
    is_open: bool = False


class CheckpointLLM:
    """A model with a local tokenizer.

    Args:
        name: backend and model, as named by the user.
        tokenizer: a tokenizer of transformers.
        top_logprobs, structured, context: see ``Capabilities``.
        thinking: way of thinking of calls that name none.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Any,  # noqa: ANN401 - transformers has no types
        *,
        top_logprobs: int | None,
        structured: frozenset[str],
        context: int | None,
        thinking: Thinking = "off",
    ) -> None:
        self.name, self._tokenizer = name, tokenizer
        self._thinking, self._thinks, self._is_closed = thinking, False, False  # as set; although switched off
        self._known_answer_ids: dict[tuple[str, ...], list[int]] = {}
        self.capabilities = Capabilities(
            chat=bool(tokenizer.chat_template),
            logprobs=True,
            top_logprobs=top_logprobs,
            prompt_logprobs=True,
            structured=structured,
            n=True,
            seed=True,
            token_ids=True,
            context=context,
        )

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer a batch of calls. Texts that end within unexpected thoughts are generated again, with room for thoughts.

        A call whose prompt does not fit the context has an error in place of a reply.

        Raises:
            ClosedError: the model is closed.
            IdxError: no call can be answered, for instance because the device runs out of memory.
        """

        def deliver_final(part: Mapping[int, Reply | LLMError]) -> None:
            final = {n: reply for n, reply in part.items() if self._thinks or not isinstance(reply, Reply) or not lacks_room(reply)}
            if deliver is not None and final:
                deliver(final)

        if self._is_closed:
            raise ClosedError(f"{self.name} is closed: open it again")
        replies = self._run(calls, deliver_final)
        if self._thinks:
            return replies
        short = [number for number, reply in enumerate(replies) if isinstance(reply, Reply) and lacks_room(reply)]
        unexpected = [number for number in short if self._mode(calls[number]) == "off"]
        self._thinks = bool(unexpected)
        again = self._run([calls[number] for number in unexpected], _ignore) if unexpected else []
        for number, reply in zip(unexpected, again, strict=True):
            replies[number] = reply
        return replies

    def _run(self, calls: Sequence[Call], deliver: Deliver) -> list[Reply | LLMError]:
        raise NotImplementedError

    def _limit_answer(self, gen: Gen, prepared: PreparedCall) -> Gen:
        has_room = prepared.call.decoding.max_tokens > prepared.max_tokens
        return limit_answer(gen, prepared.max_tokens, self.truncate) if has_room else gen

    def _mode(self, call: Call) -> Thinking:
        own = call.decoding.thinking if isinstance(call, Generate) else "off"
        return self._thinking if own is None else own

    def _control_id(self, token: str) -> int:
        """Return the id of a control token, which the vocabulary has."""
        return int(self._tokenizer.get_vocab()[token])

    def _decode(self, ids: Sequence[int], control: Sequence[str] = ()) -> str:
        """Return the text of generated ids without special tokens, except for control tokens and those around thoughts."""
        if control:
            dropped = {token for token in self._tokenizer.all_special_ids if self._tokenizer.convert_ids_to_tokens(token) not in control}
            return str(self._tokenizer.decode([token for token in ids if token not in dropped], skip_special_tokens=False))
        text = str(self._tokenizer.decode(list(ids), skip_special_tokens=True))
        if split_thinking(text).reasoning is None and not set(self._tokenizer.all_special_ids).isdisjoint(ids):
            whole = str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
            if split_thinking(whole).reasoning is not None:
                for special in self._tokenizer.all_special_tokens:
                    whole = whole if is_thought_mark(special) else whole.replace(special, "")
                return whole
        return text

    def _ends(self, ids: Sequence[int], control: Sequence[str] = ()) -> tuple[int, ...]:
        """Return the offset of the end of each generated token in the text of all."""
        return tuple(itertools.accumulate((len(self._decode(ids[: n + 1], control)) for n in range(len(ids))), max))

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return len(self._ids(text))

    def truncate(self, text: str, max_tokens: int, *, keep: End = "start") -> str:
        """Return the first or last tokens of a text."""
        ids = self._ids(text)
        if len(ids) <= max_tokens:
            return text
        return str(self._tokenizer.decode(ids[:max_tokens] if keep == "start" else ids[-max_tokens:])).strip()

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    @cached_property
    def _token_texts(self) -> list[str]:
        """Texts of all tokens of the vocabulary, by id; special tokens have none."""
        texts: list[str] = self._tokenizer.batch_decode([[token] for token in range(len(self._tokenizer))], skip_special_tokens=True)
        return texts

    def _answer_ids(self, words: tuple[str, ...]) -> list[int]:
        """Return the ids of the tokens that begin an answer, as ``AskYesNo`` defines them, shortest text first."""
        if words not in self._known_answer_ids:
            matches = map(answer_pattern(words).match, self._token_texts)
            ids = [token for token, match in enumerate(matches) if match]
            self._known_answer_ids[words] = sorted(ids, key=lambda token: len(self._token_texts[token]))
        return self._known_answer_ids[words]

    def _is_blank(self, token: int) -> bool:
        """Return whether a token is white space. A tokenizer that strips texts shows this in the vocabulary only.

        Models may have more ids than their tokenizer, for padding; these have no text.
        """
        return token < len(self._token_texts) and is_blank(self._token_texts[token] or str(self._tokenizer.convert_ids_to_tokens(token)))

    def _encode_prompt(self, prompt: Prompt, mode: Thinking) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return a prompt as token ids, and the fallbacks used."""
        if isinstance(prompt, TokenIds):
            return prompt.ids, ()
        notes = tuple[str, ...]()
        if not isinstance(prompt, str):
            for folds in FOLDS if self.capabilities.chat else ():
                folded, folded_notes = fold_turns(prompt, folds)
                if (text := self._render(folded, mode)) is not None:
                    return tuple(self._ids(text)), folded_notes
            notes = (_NO_FORM if self.capabilities.chat else NO_TEMPLATE,)
        text = prompt if isinstance(prompt, str) else as_text(prompt)
        return tuple(self._tokenizer.encode(text)) or (padding_id(self._tokenizer),), notes

    def _render(self, prompt: Chat, mode: Thinking) -> str | None:
        """Return a conversation in the chat template's form; None if the template refuses it or drops a system turn."""
        turns = [turn.to_json() for turn in prompt]
        continues = prompt[-1].role == "assistant"
        try:
            text = self._tokenizer.apply_chat_template(
                turns,
                tokenize=False,
                add_generation_prompt=not continues,
                continue_final_message=continues,
                enable_thinking=mode != "off",
            )
        except Exception:  # noqa: BLE001 - a template is a program of the checkpoint's authors, which may raise anything
            return None
        return str(text) if all(turn.content.strip() in text for turn in prompt if turn.role == "system") else None

    def _prepare(self, call: Call) -> PreparedCall | LLMError:
        """Return a call with its prompt cut to fit the context, or an error if the prompt cannot fit or the model cannot answer."""
        if isinstance(call, Score):
            return LLMError(f"{self.name} {NO_SCORES.format(role=call.role)}")
        if isinstance(call, Generate) and (lacking := [token for token in call.control if token not in self._tokenizer.get_vocab()]):
            return LLMError(f"{self.name} has no token {lacking[0]!r}: it is not trained for this method, whose checkpoints have it")
        if not self.capabilities.chat and not isinstance(call.prompt, str | TokenIds):
            call = adapt_to_text(call, call.prompt)
        mode, is_open, stop, max_tokens = self._mode(call), False, tuple[str, ...](), 0
        encode = cache(lambda prompt: self._encode_prompt(prompt, mode))
        if isinstance(call, Generate):
            is_open = self._opens_thought(call.prompt, encode)
            stop, max_tokens = call.decoding.stop, call.decoding.max_tokens
            call = make_room(call, mode, thinks=self._thinks or is_open, context=self.capabilities.context)
        continuation = tuple(self._ids(call.continuation)) if isinstance(call, MeanNll) else ()
        n_reserved = call.decoding.max_tokens if isinstance(call, Generate) else len(continuation) + 1 + MAX_BLANKS
        budget = None if self.capabilities.context is None else self.capabilities.context - n_reserved
        try:
            fitted = fit(call.prompt, budget, lambda prompt: len(encode(prompt)[0]))
        except PromptTooLong as error:
            return error
        ids, degraded = encode(fitted.prompt)
        return PreparedCall(call, ids, continuation, (*degraded, *fitted.degraded), stop, max_tokens, is_open)

    def _opens_thought(self, prompt: Prompt, encode: Callable[[Prompt], tuple[tuple[int, ...], tuple[str, ...]]]) -> bool:
        """Return whether the chat template opens a thought at the end of a prompt. ``encode`` is ``_encode_prompt`` in the call's mode."""
        if isinstance(prompt, str | TokenIds) or not self.capabilities.chat:
            return False
        end = encode(prompt)[0][-_END_TOKENS:]
        return opens_thought(str(self._tokenizer.decode(list(end), skip_special_tokens=False)))


def _ignore(part: Mapping[int, Reply | LLMError]) -> None:
    """Leave replies until the batch is complete."""


def padding_id(tokenizer: Any) -> int:  # noqa: ANN401 - transformers has no types
    """Return the id of the padding token, else of the end-of-text token, else 0."""
    return int((tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id) or 0)
