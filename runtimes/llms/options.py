"""Options of backends of language models."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_CONCURRENCY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options of an endpoint.

    Attributes:
        concurrency: maximum number of concurrent requests; None: as many as the server has slots (llama.cpp tells), at most 16.
        timeout: maximum time until an answer is complete, in seconds, for each attempt.
        retries: maximum number of retries of a request.
        first_pause: maximum pause before the first retry, in seconds; doubled for each further retry.
        api_key: the API key; None: the environment's OPENAI_API_KEY, or else a placeholder, which local servers accept.
        context: maximum number of tokens of prompt and answer together; None: as the endpoint reports (vLLM does), else unknown.
    """

    concurrency: int | None = None
    timeout: float = 120.0
    retries: int = 5
    first_pause: float = 0.5
    api_key: str | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of a checkpoint in this process.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:1".
        dtype: "auto" (float32 on the CPU, the checkpoint's dtype on a GPU), "float32", "float16", "bfloat16".
        revision: revision of a repository on the Hugging Face hub.
        batch_tokens: maximum number of tokens per batch, including padding and generated tokens; None: a default for the device.
    """

    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    batch_tokens: int | None = None
