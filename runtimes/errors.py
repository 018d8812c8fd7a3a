"""Errors of language models. Every message states the problem, with the values, and its remedy.

IdxError
└── LLMError            base class: a model gave no answer; fails the question, not the run
    └── PromptTooLong   the prompt exceeds the model's context even without its passages
"""

from __future__ import annotations

from wikidx.corpora.errors import IdxError


class LLMError(IdxError):
    """A language model gave no answer."""


class PromptTooLong(LLMError):
    """A prompt exceeds the model's context even without its passages, the only part that may be cut."""
