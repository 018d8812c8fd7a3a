"""Log-probabilities in the answers of OpenAI-compatible endpoints, in the forms of chat and of completions."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice, zip_longest
from typing import Any

from .base import Control, Gen
from .json_shape import find_mismatch
from .text import NextToken

_LEAST_LOGPROB = -1e4  # OpenAI writes -9999 for impossible tokens


def with_tokens(gen: Gen, logprobs: Mapping[str, Any] | None, *, is_cut: bool) -> Gen:
    """Return a text with the log-probabilities of its tokens, if the answer has any.

    Tokens before the text, as those of thoughts, are left out.

    Args:
        gen: the text.
        logprobs: the log-probabilities of all generated tokens, as the endpoint writes them.
        is_cut: whether the endpoint may have cut a stop text; tokens after the text are then left out, else they are the end of text.
    """
    tokens = generated_tokens(logprobs)
    if not tokens:
        return gen
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [decoder.decode(token) for token, _ in tokens]
    written = "".join(texts)
    whole = replace(gen, text=written, logprobs=tuple(logprob for _, logprob in tokens), ends=tuple(accumulate(map(len, texts))))
    is_first = gen.text and (written.startswith(gen.text) or (written and gen.text.startswith(written)))  # llama.cpp cuts tokens at stops
    start = 0 if is_first else written.rfind(gen.text)
    if start < 0:  # without bytes the parts of a character are unknown
        return replace(whole, text=gen.text, ends=None, logprobs=None if is_cut or gen.reasoning else whole.logprobs)
    return replace(whole.part(start, start + len(gen.text) if is_cut else len(written)), text=gen.text)


def generated_tokens(logprobs: Mapping[str, Any] | None) -> list[tuple[bytes, float]]:
    """Return the generated tokens that have a log-probability, with it."""
    given = logprobs or {}
    pairs = zip_longest(*(given.get(name) or [] for name in ("tokens", "token_logprobs")))
    of_chat = isinstance(given.get("content"), list)
    content = given["content"] if of_chat else [{"token": token, "logprob": value} for token, value in pairs]
    return [(_to_bytes(token), clip_logprob(token["logprob"])) for token in content if token.get("logprob") is not None]


def _to_bytes(token: Mapping[str, Any]) -> bytes:
    """Return the bytes of a token, which may end within a character; those of its text are not exact."""
    code: Any = token.get("bytes")
    is_known = isinstance(code, list) and find_mismatch(code, [int], "bytes") is None
    return bytes(number % 256 for number in code) if is_known else (token.get("token") or "").encode("utf-8", "replace")


def clip_logprob(value: float) -> float:
    """Clip a log-probability of an endpoint to [-10,000, 0]."""
    return float(max(_LEAST_LOGPROB, min(0.0, value)))


def positions_of(logprobs: Mapping[str, Any]) -> list[NextToken]:
    """Return the positions of a text, each with its generated token and the likeliest tokens."""
    if content := logprobs.get("content"):
        return [_position((token.get("token"), token.get("logprob")), _pairs(token.get("top_logprobs") or [token])) for token in content]
    tops = [list((top or {}).items()) for top in logprobs.get("top_logprobs") or []]
    generated = zip_longest(logprobs.get("tokens") or [], logprobs.get("token_logprobs") or [])
    return [_position(token or (None, None), top) for top, token in zip_longest(tops, islice(generated, len(tops)))]


def control_of(logprobs: Mapping[str, Any], control: Sequence[str]) -> tuple[Control, ...]:
    """Return the distributions of control tokens at the first place of a text and where it has one; one that is not told has -10,000."""
    found, place = list[Control](), 0
    for number, position in enumerate(positions_of(logprobs)):
        token = position.generated[0] if position.generated else ""
        if number == 0 or token in control:
            known = dict([*position.likeliest, *([position.generated] if position.generated else [])])
            found.append(Control(place, tuple(known.get(name, _LEAST_LOGPROB) for name in control)))
        place += len(token)
    return tuple(found)


def _pairs(tokens: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return [(token.get("token"), token.get("logprob")) for token in tokens]


def _position(generated: tuple[Any, Any], likeliest: Sequence[tuple[Any, Any]]) -> NextToken:
    own, *others = ([(token, clip_logprob(logprob))] if _is_scored(token, logprob) else [] for token, logprob in (generated, *likeliest))
    return NextToken(own[0] if own else None, [pair for pairs in others for pair in pairs])


def _is_scored(token: object, logprob: object) -> bool:
    return isinstance(token, str) and isinstance(logprob, int | float)
