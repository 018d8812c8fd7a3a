"""Models with prepared answers, for tests and for tracing a method without a model.

A script is a file of JSON Lines, with one answer per line. A line may be limited to calls of a ``role``, to prompts that contain the text
``match``, or both; it answers every such call. The other lines answer the remaining calls in order::

    {"text": "Paris"}   {"texts": ["a", "b"]}   {"yes": 0.9}   {"nll": 1.5}   {"scores": [1, -1]}
    {"role": "know", "match": "Who", "text": "no"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import read_text
from wikidx.runtimes.errors import LLMError

from .base import AskYesNo, Call, Capabilities, Deliver, Gen, Generate, MeanNll, Mix, Nll, Reply, Score, Scores, YesNo
from .prompts import End, prompt_text
from .text import yes_no_from_word

Scripted = str | float | Sequence[str] | Sequence[float] | Sequence[Gen] | Gen | YesNo | Nll | Scores
"""A text or texts; for a yes/no call, a word or the probability of the positive answer; for an NLL call, the mean; for scores, the numbers;
or a result object."""

Script = Callable[[Call], Scripted]

_EXPECTED = {Generate: "a text", AskYesNo: "a probability", MeanNll: "a mean NLL", Mix: "a text", Score: "a number for each text"}


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
    result = _READERS[type(call)](call, answer)
    if result is None:
        expected = f"{call.n} texts" if isinstance(call, Generate) and call.n > 1 else _EXPECTED[type(call)]
        raise LLMError(f"the script answers {answer!r:.60} where it should answer {expected}, as '{call.role}': correct the script")
    n_written = sum(len(gen.text.split()) for gen in result) if isinstance(result, tuple) else int(isinstance(result, YesNo))
    return Reply(result, len(prompt_text(call.prompt).split()), n_written)


def _texts(call: Generate | Mix, answer: Scripted) -> tuple[Gen, ...] | None:
    texts = [answer] if isinstance(answer, str | Gen) else answer
    if not isinstance(texts, Sequence) or len(texts) != call.n or not all(isinstance(text, str | Gen) for text in texts):
        return None
    return tuple(text if isinstance(text, Gen) else Gen(text=str(text)) for text in texts)


def _yes_no(call: AskYesNo, answer: Scripted) -> YesNo | None:
    if isinstance(answer, str):
        return yes_no_from_word(answer, call.positive, call.negative, degraded=())
    if isinstance(answer, int | float) and 0 <= answer <= 1:
        return YesNo(p_positive=answer, p_negative=1 - answer)
    return answer if isinstance(answer, YesNo) else None


def _nll(call: MeanNll, answer: Scripted) -> Nll | None:
    n_tokens = max(len(call.continuation.split()), 1)
    if isinstance(answer, int | float):
        return Nll(total=answer * n_tokens, n_tokens=n_tokens)
    return answer if isinstance(answer, Nll) else None


def _scores(call: Score, answer: Scripted) -> Scores | None:
    if isinstance(answer, Sequence) and len(answer) == len(call.texts):
        numbers = [float(each) for each in answer if isinstance(each, int | float)]
        return Scores(values=tuple(numbers)) if len(numbers) == len(answer) else None
    return answer if isinstance(answer, Scores) else None


_READERS: dict[type[Call], Callable[[Any, Scripted], Any]] = {
    Generate: _texts,
    Mix: _texts,
    AskYesNo: _yes_no,
    MeanNll: _nll,
    Score: _scores,
}
"""Kind of call -> function: (call, the script's answer) -> result; None: the answer is of another kind."""


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
    kinds: dict[str, type | tuple[type, ...]] = {"text": str, "texts": list, "yes": (int, float), "nll": (int, float), "scores": list}
    given = [kind for kind in kinds if isinstance(entry, dict) and isinstance(entry.get(kind), kinds[kind])]
    if len(given) != 1 or not set(entry) <= {given[0], "match", "role"}:
        raise InputError(
            f'{location} is no answer: it needs one of "text", "texts", "yes", "nll", "scores", and may have "match" and "role": {line:.80}'
        )
    return {"answer": entry[given[0]], **{name: entry[name] for name in ("match", "role") if name in entry}}
