"""Options of backends, apart from the model's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options of an endpoint.

    Attributes:
        concurrency: maximum number of concurrent requests.
        timeout: maximum seconds until an answer is complete, for each attempt.
        retries: maximum number of retries of a request.
        first_pause: maximum seconds before the first retry; doubled for each further one.
        api_key: the endpoint's key; None: the environment's OPENAI_API_KEY, or else a placeholder, which local servers accept.
        context: maximum tokens of prompt and answer together; None: as reported by the endpoint (vLLM reports it), else unknown.
    """

    concurrency: int = 16
    timeout: float = 120.0
    retries: int = 5
    first_pause: float = 0.5
    api_key: str | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of running a checkpoint.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:1".
        dtype: "auto" (the checkpoint's on a GPU, float32 on the CPU), "float32", "float16", "bfloat16".
        revision: revision of a repository on the Hugging Face hub.
        batch_tokens: maximum tokens per batch, including padding and generated tokens; None: a default for the device.
    """

    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    batch_tokens: int | None = None
