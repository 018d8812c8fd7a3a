"""What can go wrong with language models. Every message says what happened, with the values, and what to do.

IdxError
└── LLMError            root: a model gave no answer; costs the question that asked, not the run
    └── PromptTooLong   what may not be cut of the prompt is longer than the model's context
"""

from __future__ import annotations

from wikidx.corpora.errors import IdxError


class LLMError(IdxError):
    """A language model gave no answer."""


class PromptTooLong(LLMError):
    """What may not be cut of a prompt is longer than the model's context."""
