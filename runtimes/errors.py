"""Errors of language models.

IdxError
└── LLMError            a model gave no answer: the question fails, the run goes on
    ├── Unreachable     the endpoint accepts no connection
    └── PromptTooLong   the prompt exceeds the model's context and cannot be cut further
"""

from __future__ import annotations

from wikidx.base.errors import IdxError


class LLMError(IdxError):
    """A language model gave no answer."""


class Unreachable(LLMError):
    """An endpoint accepts no connection."""


class PromptTooLong(LLMError):
    """A prompt exceeds the model's context and cannot be cut further.

    Only passages are cut. For a ``MeanNll`` at an endpoint, passages are not cut either.
    """
