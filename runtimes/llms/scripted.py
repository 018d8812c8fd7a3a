"""Models with prepared answers, for tests and for tracing a method without a model.

A script is a file of JSON Lines, with one answer per line. A line may be limited to calls of a ``role``, to prompts that contain the text
``match``, or both; it answers every such call. The other lines answer the remaining calls in order::

    {"text": "Paris"}   {"texts": ["a", "b"]}   {"yes": 0.9}   {"nll": 1.5}   {"role": "know", "match": "Who", "text": "no"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import read_text
from wikidx.runtimes.errors import LLMError

from .base import AskYesNo, Call, Capabilities, Deliver, End, Gen, Generate, MeanNll, Nll, Reply, YesNo, prompt_text
from .text import yes_no_from_word

Scripted = str | float | Sequence[str] | Sequence[Gen] | Gen | YesNo | Nll
"""A text or texts; for a yes/no call, a word or the probability of the positive answer; for an NLL call, the mean; or a result object."""

Script = Callable[[Call], Scripted]

_EXPECTED = {Generate: "a text", AskYesNo: "a probability", MeanNll: "a mean NLL"}


class ScriptedLLM:
    """A model with prepared answers. Tokens are words.

    Args:
        script: the answers in the order of the calls, or a function from a call to its answer.
        name: the model's name.
    """

    def __init__(self, script: Script | Iterable[Scripted], *, name: str = "scripted") -> None:
        self.name = name
        self.capabilities = Capabilities(
            chat=True,
            logprobs=True,
            top_logprobs=None,
            prompt_logprobs=True,
            structured=frozenset({"choice", "json", "regex"}),
            n=True,
            seed=True,
        )
        self.calls: list[Call] = []
        self._script = script if callable(script) else _answer_in_order(script)

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer the calls in order. A call fails if the script has no answer of the right kind."""
        self.calls += calls
        replies: list[Reply | LLMError] = []
        for call in calls:
            try:
                replies.append(_reply(call, self._script(call)))
            except LLMError as error:
                replies.append(error)
        return replies

    def count_tokens(self, text: str) -> int:
        """Return the number of words of a text."""
        return len(text.split())

    def truncate(self, text: str, max_tokens: int, *, keep: End = "start") -> str:
        """Return the first or last words of a text."""
        words = text.split()
        return " ".join(words[:max_tokens] if keep == "start" else words[-max_tokens:])

    def close(self) -> None:
        """Do nothing; the model holds no resources."""


def _answer_in_order(answers: Iterable[Scripted]) -> Script:
    remaining = enumerate(answers, 1)
    n_given = 0

    def next_answer(call: Call) -> Scripted:
        nonlocal n_given
        for number, answer in remaining:
            n_given = number
            return answer
        has = f"{n_given} answer{'' if n_given == 1 else 's'}"
        raise LLMError(f"the script has {has}, and there is one more call, of role '{call.role}': {prompt_text(call.prompt)[-60:]!r}")

    return next_answer


def _reply(call: Call, answer: Scripted) -> Reply:
    n_read = len(prompt_text(call.prompt).split())
    match call:
        case Generate():
            texts = [answer] if isinstance(answer, str | Gen) else answer
            if isinstance(texts, Sequence) and len(texts) == call.n and all(isinstance(text, str | Gen) for text in texts):
                gens = tuple(text if isinstance(text, Gen) else Gen(text=text) for text in texts)
                return Reply(gens, n_read, sum(len(gen.text.split()) for gen in gens))
        case AskYesNo():
            if isinstance(answer, YesNo):
                return Reply(answer, n_read, 1)
            if isinstance(answer, str):
                return Reply(yes_no_from_word(answer, call.positive, call.negative, degraded=()), n_read, 1)
            if isinstance(answer, int | float) and 0 <= answer <= 1:
                return Reply(YesNo(p_positive=answer, p_negative=1 - answer), n_read, 1)
        case MeanNll():
            n_tokens = max(len(call.continuation.split()), 1)
            if isinstance(answer, Nll):
                return Reply(answer, n_read, 0)
            if isinstance(answer, int | float):
                return Reply(Nll(total=answer * n_tokens, n_tokens=n_tokens), n_read, 0)
    expected = f"{call.n} texts" if isinstance(call, Generate) and call.n > 1 else _EXPECTED[type(call)]
    raise LLMError(f"the script answers {answer!r:.60} where it should answer {expected}, as '{call.role}': correct the script")


def read_script(file: Path) -> Script:
    """Read a script.

    Raises:
        InputError: the file does not exist, or a line is not an answer.
    """
    lines = read_text(file).split("\n")
    entries = [_entry(line, f"{file}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    matching_entries = [entry for entry in entries if len(entry) > 1]
    answer_in_order = _answer_in_order([entry["answer"] for entry in entries if len(entry) == 1])

    def answer(call: Call) -> Scripted:
        prompt = prompt_text(call.prompt)
        for entry in matching_entries:
            if entry.get("role", call.role) == call.role and entry.get("match", "") in prompt:
                matched: Scripted = entry["answer"]
                return matched
        return answer_in_order(call)

    return answer


def _entry(line: str, location: str) -> dict[str, Any]:
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise InputError(f"{location} is not JSON: {error}") from error
    kinds: dict[str, type | tuple[type, ...]] = {"text": str, "texts": list, "yes": (int, float), "nll": (int, float)}
    given = [kind for kind in kinds if isinstance(entry, dict) and isinstance(entry.get(kind), kinds[kind])]
    if len(given) != 1 or not set(entry) <= {given[0], "match", "role"}:
        raise InputError(
            f'{location} is no answer: it needs one of "text", "texts", "yes", "nll", and may have "match" and "role": {line:.80}'
        )
    return {"answer": entry[given[0]], **{name: entry[name] for name in ("match", "role") if name in entry}}
