"""Base class of engines that run a checkpoint in this process.

The engines get prompts as token ids. The chat template is applied here, so the engine does not add a second beginning-of-text token. Turns
that the template refuses are folded (``turns``).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, NamedTuple

from wikidx.runtimes.errors import PromptTooLong

from .base import Call, Capabilities, Chat, Generate, MeanNll, Prompt, TokenIds
from .fitting import fit
from .text import MAX_BLANKS, NO_TEMPLATE, answer_pattern, is_blank
from .turns import FOLDS, adapt_to_text, as_text, fold_turns

_NO_FORM = "the chat template refuses the conversation: the turns are one text"


class PreparedCall(NamedTuple):
    """A call as token ids.

    Attributes:
        call: the call.
        ids: the prompt, cut to fit the context.
        continuation: ids of the text that a ``MeanNll`` scores; empty for other calls.
        degraded: fallbacks used for the prompt.
    """

    call: Any
    ids: tuple[int, ...]
    continuation: tuple[int, ...]
    degraded: tuple[str, ...]


class CheckpointLLM:
    """A model with a local tokenizer.

    Args:
        name: backend and model, as named by the user.
        tokenizer: a tokenizer of transformers.
        top_logprobs, structured, context: see ``Capabilities``.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Any,  # noqa: ANN401 - transformers has no types
        *,
        top_logprobs: int | None,
        structured: frozenset[str],
        context: int | None,
    ) -> None:
        self.name, self._tokenizer = name, tokenizer
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

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return len(self._ids(text))

    def truncate(self, text: str, max_tokens: int, *, keep: Literal["start", "end"] = "start") -> str:
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
        """Return whether a token is white space. A tokenizer that strips texts shows this in the vocabulary only."""
        return is_blank(self._token_texts[token] or str(self._tokenizer.convert_ids_to_tokens(token)))

    def _prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        return self._encode_prompt(prompt)[0]

    def _encode_prompt(self, prompt: Prompt) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return a prompt as token ids, and the fallbacks used."""
        if isinstance(prompt, TokenIds):
            return prompt.ids, ()
        notes = tuple[str, ...]()
        if not isinstance(prompt, str):
            for folds in FOLDS if self.capabilities.chat else ():
                folded, folded_notes = fold_turns(prompt, folds)
                if (text := self._render(folded)) is not None:
                    return tuple(self._ids(text)), folded_notes
            notes = (_NO_FORM if self.capabilities.chat else NO_TEMPLATE,)
        text = prompt if isinstance(prompt, str) else as_text(prompt)
        return tuple(self._tokenizer.encode(text)) or (padding_id(self._tokenizer),), notes

    def _render(self, prompt: Chat) -> str | None:
        """Return a conversation in the chat template's form; None if the template refuses it or drops a system turn."""
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt]
        continues = prompt[-1].role == "assistant"
        try:
            text = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=not continues, continue_final_message=continues, enable_thinking=False
            )
        except Exception:  # noqa: BLE001 - a template is a program of the checkpoint's authors, which may raise anything
            return None
        return str(text) if all(turn.content.strip() in text for turn in prompt if turn.role == "system") else None

    def _prepare(self, call: Call) -> PreparedCall | PromptTooLong:
        """Return a call with its prompt cut to fit the context, or an error if the prompt cannot fit."""
        if not self.capabilities.chat and not isinstance(call.prompt, str | TokenIds):
            call = adapt_to_text(call, call.prompt)
        continuation = tuple(self._ids(call.continuation)) if isinstance(call, MeanNll) else ()
        n_reserved = call.decoding.max_tokens if isinstance(call, Generate) else len(continuation) + 1 + MAX_BLANKS
        budget = None if self.capabilities.context is None else self.capabilities.context - n_reserved
        try:
            fitted = fit(call.prompt, budget, lambda prompt: len(self._prompt_ids(prompt)))
        except PromptTooLong as error:
            return error
        ids, degraded = self._encode_prompt(fitted.prompt)
        return PreparedCall(call, ids, continuation, (*degraded, *fitted.degraded))


def padding_id(tokenizer: Any) -> int:  # noqa: ANN401 - transformers has no types
    """Return the id of the padding token, else of the end-of-text token, else 0."""
    return int((tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id) or 0)
